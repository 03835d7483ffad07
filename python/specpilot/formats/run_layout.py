"""Weights in memory, as the kernels stream them: csrc/ops/linear/linear.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .. import _C
from . import cuda_layout
from .slabs import Slabs

Format = Literal["bf16", "w12"]
_BAND, _TILE_K, _TILE_BYTES = 16, 32, 768


@dataclass(frozen=True)
class RunWeight:
    """A weight [n, k] as ``linear`` and ``embed`` take it on its device; only ``data`` for bf16.

    On the CPU:

    ``data``       bf16 [bands, tiles, 16, 32] or uint8 [bands, tiles, 768]
    ``base``       uint8 [bands]
    ``exc_begin``  int32 [bands + 1];  ``exc_pos`` int32 [E];  ``exc_val`` bf16 [E]

    On CUDA (csrc/formats/w12_cuda.h):

    ``data``       bf16 [row groups, steps, tiles, 4, 32, 8] or uint8 [row groups, steps, tiles, 1552]
    ``exc_pos``    int32 [E], the overflow list of w12
    """

    n: int
    k: int
    format: Format
    data: torch.Tensor
    base: torch.Tensor | None = None
    exc_begin: torch.Tensor | None = None
    exc_pos: torch.Tensor | None = None
    exc_val: torch.Tensor | None = None

    @property
    def args(self) -> tuple[torch.Tensor | int | None, ...]:
        """What the ops take: data, base, exc_begin, exc_pos, exc_val, n."""
        return self.data, self.base, self.exc_begin, self.exc_pos, self.exc_val, self.n

    @property
    def nbytes(self) -> int:
        tensors = (self.data, self.base, self.exc_begin, self.exc_pos, self.exc_val)
        return sum(t.nbytes for t in tensors if t is not None)

    @property
    def bits_per_weight(self) -> float:
        """All overhead and padding counted; 0 for an empty weight."""
        return 8 * self.nbytes / (self.n * self.k) if self.n else 0.0

    def to_bf16(self) -> torch.Tensor:
        """The weight as bf16 [n, k], bit for bit what went in, on its device."""
        if self.data.is_cuda:
            return cuda_layout.unpack(self.data, self.exc_pos, self.n, self.k)
        weight = torch.empty(self.n, self.k, dtype=torch.bfloat16)
        _C.run_unpack(self.data, self.base, self.exc_begin, self.exc_pos, self.exc_val, weight)
        return weight


def run_weight(
    parts: Sequence[torch.Tensor], format: Format = "w12", slabs: Slabs | None = None
) -> RunWeight:
    """Stacks bf16 ``parts`` [Ni, K] by rows (q|k|v, gate|up) and lays them out for the device that they lie on.

    On the CPU the words lie in ``slabs``, or in memory of their own. ``"w12"`` gives ``"bf16"`` where the exceptions would
    cost more bytes than the 12-bit words save.
    """
    if format not in ("bf16", "w12"):
        raise ValueError(f"run_weight: format {format!r}, expected 'bf16' or 'w12'")
    if not parts:
        raise ValueError("run_weight: no parts")
    for i, part in enumerate(parts):
        if part.dtype != torch.bfloat16 or part.dim() != 2 or part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"run_weight: part {i} is {part.dtype} {list(part.shape)}, expected torch.bfloat16 "
                f"[rows, {parts[0].shape[-1]}]"
            )
    take = slabs.take if slabs else torch.empty
    weight = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    if weight.stride(1) != 1:
        weight = weight.contiguous()
    n, k = weight.shape
    if weight.is_cuda:
        return _cuda_weight(weight, format)
    bands, tiles = -(-n // _BAND), -(-k // _TILE_K)
    if format == "w12":
        base, begin = torch.empty(bands, dtype=torch.uint8), torch.empty(bands + 1, dtype=torch.int64)
        exceptions = _C.w12_scan(weight, base, begin)
        if bands * tiles * _TILE_BYTES + 5 * bands + 4 + 6 * exceptions < bands * tiles * 1024:
            exc_begin = begin.to(torch.int32)
            data = take(bands, tiles, _TILE_BYTES, dtype=torch.uint8)
            exc_pos = torch.empty(exceptions, dtype=torch.int32)
            exc_val = torch.empty(exceptions, dtype=torch.bfloat16)
            _C.run_pack_w12(weight, base, exc_begin, data, exc_pos, exc_val)
            return RunWeight(n, k, "w12", data, base, exc_begin, exc_pos, exc_val)
    data = take(bands, tiles, _BAND, _TILE_K, dtype=torch.bfloat16)
    _C.run_pack_bf16(weight, data)
    return RunWeight(n, k, "bf16", data)


def _cuda_weight(weight: torch.Tensor, format: Format) -> RunWeight:
    n, k = weight.shape
    packed = None
    if format == "w12":
        data, overflow = cuda_layout.pack_w12(weight)
        if (
            data.nbytes + overflow.nbytes
            < data[..., 0].numel() * 2 * cuda_layout.TILE_ROWS * cuda_layout.TILE_K
        ):
            packed = RunWeight(n, k, "w12", data, exc_pos=overflow)
    packed = packed or RunWeight(n, k, "bf16", cuda_layout.pack_bf16(weight))
    cuda_layout.settle(weight.device)
    return packed
