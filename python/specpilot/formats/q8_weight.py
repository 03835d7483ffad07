"""Drafter weights of 8 bits, a scale a row: csrc/ops/linear_q8/linear_q8.h. Not lossless, and never for a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from . import cuda_layout
from .slabs import Slabs

DrafterFormat = Literal["q8", "w12", "bf16"]
_BAND, _GROUP, _TILE_K, _ZERO = 16, 4, 64, 128
_LEAST = 2.0**-100  # a row of smaller magnitudes counts as zeros
_BANDS_AT_ONCE = 64  # quantised together: bounds the temporary memory


@dataclass(frozen=True)
class Q8Weight:
    """A weight [n, k] as ``linear_q8`` takes it.

    ``data``   uint8 [bands, groups, 16, 4], 128 more than the integers
    ``scale``  fp32 [n]
    """

    n: int
    k: int
    data: torch.Tensor
    scale: torch.Tensor

    @property
    def args(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the op takes: data, scale."""
        return self.data, self.scale

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scale.nbytes

    def integers(self) -> torch.Tensor:
        """int8 [n, k]: the weight in units of its rows' scales."""
        rows = self.data.permute(0, 2, 1, 3).reshape(-1, self.data.shape[1] * _GROUP)
        return (rows[: self.n, : self.k].short() - _ZERO).char()

    def to_float(self) -> torch.Tensor:
        """The weight as fp32 [n, k]."""
        return self.integers() * self.scale[:, None]


def q8_bytes(n: int, k: int) -> int:
    """Memory of a weight [n, k]."""
    return -(-n // _BAND) * _BAND * (-(-k // _TILE_K) * _TILE_K) + 4 * n


def q8_weight(weight: torch.Tensor, slabs: Slabs | None = None) -> Q8Weight:
    """Rounds a bf16 weight [n, k] to 255 levels a row, symmetric about zero, the largest magnitude exactly representable.

    ``data`` lies in ``slabs`` (on the CPU), or in memory of its own on the weight's device; the bits are the same on every device.
    Raises ValueError for a weight that is not finite.
    """
    if weight.dtype != torch.bfloat16 or weight.dim() != 2:
        raise ValueError(
            f"q8_weight: weight is {weight.dtype} {list(weight.shape)}, expected torch.bfloat16 [rows, columns]"
        )
    n, k = weight.shape
    bands, groups = -(-n // _BAND), -(-k // _TILE_K) * (_TILE_K // _GROUP)
    device, shape = weight.device, (bands, groups, _BAND, _GROUP)
    data = (
        slabs.take(*shape, dtype=torch.uint8)
        if slabs
        else torch.empty(shape, dtype=torch.uint8, device=device)
    )
    scale = torch.empty(n, device=device)
    levels_a_side = torch.tensor(
        127.0, device=device
    )  # by a plain number, CUDA would multiply with its reciprocal
    for band in range(0, bands, _BANDS_AT_ONCE):
        rows = slice(band * _BAND, min((band + _BANDS_AT_ONCE) * _BAND, n))
        values = weight[rows].float()
        largest = values.abs().amax(1)
        if not largest.isfinite().all():
            row = rows.start + int((~largest.isfinite()).nonzero()[0])
            raise ValueError(f"row {row} has an infinity or NaN")
        scale[rows] = largest / levels_a_side
        units = values * torch.where(largest >= _LEAST, largest.reciprocal() * 127, 0.0)[:, None]
        levels = (units.round() + _ZERO).to(torch.uint8)
        padded = F.pad(levels, (0, groups * _GROUP - k, 0, -len(levels) % _BAND), value=_ZERO)
        data[band : band + _BANDS_AT_ONCE] = padded.view(-1, _BAND, groups, _GROUP).transpose(1, 2)
    cuda_layout.settle(data.device)
    return Q8Weight(n, k, data, scale)
