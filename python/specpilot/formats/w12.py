"""w12, the 12-bit lossless form of a bf16 weight, as it lies in files: docs/format.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError

from .. import _C
from .errors import CheckpointError

FIELDS = ("low", "high", "base", "exc_pos", "exc_val")
MAX_WEIGHTS = 2**32  # positions are 32-bit
_BAND = 16
_TORCH = {"U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32}


@dataclass(frozen=True)
class PackedWeight:
    """A bf16 weight of ``shape`` [..., N, K], read as rows of K in bands of 16 that never cross a leading index.

    ``low``      uint8 [rows, K]            code bit 0 and mantissa
    ``high``     uint8 [rows, ceil(K / 2)]  sign and code bits 3…1, even k in the low nibble
    ``base``     uint8 [bands]              exponent field of code c is base + c
    ``exc_pos``  uint32 [E] ascending row-major positions of what does not fit;  ``exc_val`` uint16 [E], its bits
    """

    low: torch.Tensor
    high: torch.Tensor
    base: torch.Tensor
    exc_pos: torch.Tensor
    exc_val: torch.Tensor
    shape: tuple[int, ...]
    name: str = "weight"  # in messages

    @property
    def arrays(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.low, self.high, self.base, self.exc_pos, self.exc_val

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def bits_per_weight(self) -> float:
        """All five arrays counted; 0 for an empty weight."""
        return 8 * self.nbytes / max(1, math.prod(self.shape))


def can_pack(shape: tuple[int, ...]) -> bool:
    """Whether w12 has a form for a bf16 tensor of this shape."""
    return len(shape) >= 2 and shape[-1] >= 1 and math.prod(shape) <= MAX_WEIGHTS


def layout(shape: tuple[int, ...], exceptions: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Safetensors dtype and shape of each array of a packed weight."""
    groups, n, k = _matrices(shape)
    return {
        "low": ("U8", (groups * n, k)),
        "high": ("U8", (groups * n, -(-k // 2))),
        "base": ("U8", (groups * -(-n // _BAND),)),
        "exc_pos": ("U32", (exceptions,)),
        "exc_val": ("U16", (exceptions,)),
    }


def count_exceptions(weight: torch.Tensor) -> int:
    """How many weights :func:`pack` would set aside."""
    return _scan(_source(weight))[2]


def pack(weight: torch.Tensor) -> PackedWeight:
    """Packs a bf16 tensor [..., N, K] with K >= 1 and at most 2**32 elements; any bit pattern comes back."""
    source = _source(weight)
    base, begin, exceptions = _scan(source)
    shape = tuple(weight.shape)
    low, high, exc_pos, exc_val = (
        torch.empty(size, dtype=_TORCH[dtype])
        for field, (dtype, size) in layout(shape, exceptions).items()
        if field != "base"
    )
    _C.w12_pack(source, base, begin, low, high, exc_pos, exc_val)
    return PackedWeight(low, high, base, exc_pos, exc_val, shape)


def unpack(packed: PackedWeight) -> torch.Tensor:
    """The bf16 tensor, bit for bit what was packed; :class:`CheckpointError` for arrays that no packer writes."""
    _check_layout(packed)
    weight = torch.empty(packed.shape, dtype=torch.bfloat16)
    with _named(packed.name):
        _C.w12_unpack(*packed.arrays, weight.view(_matrices(packed.shape)))
    return weight


def verify(packed: PackedWeight, weight: torch.Tensor) -> None:
    """:class:`CheckpointError` unless ``packed`` unpacks to exactly the bits of ``weight``."""
    if tuple(weight.shape) != packed.shape:
        raise CheckpointError(
            f"tensor {packed.name}: packed from {list(packed.shape)}, not from {list(weight.shape)}"
        )
    _check_layout(packed)
    with _named(packed.name):
        position = _C.w12_first_difference(*packed.arrays, _source(weight))
    if position >= 0:
        raise CheckpointError(f"tensor {packed.name}: the weight at position {position} does not come back")


def read_packed(handle: Any, name: str, shape: tuple[int, ...] | None = None) -> PackedWeight:
    """The arrays of tensor ``name`` from an open safetensors file; unchecked until they are unpacked.

    ``handle`` is what ``safetensors.safe_open`` gives; ``shape`` that of the weight, [rows, K] when None.
    """
    try:
        low, high, base, exc_pos, exc_val = (handle.get_tensor(f"{name}.w12_{field}") for field in FIELDS)
    except (SafetensorError, OSError, RuntimeError) as e:
        raise CheckpointError(f"tensor {name}: cannot be read: {e}") from e
    return PackedWeight(low, high, base, exc_pos, exc_val, tuple(low.shape) if shape is None else shape, name)


def _matrices(shape: tuple[int, ...]) -> tuple[int, int, int]:
    *leading, n, k = shape
    return math.prod(leading), n, k


def _source(weight: torch.Tensor) -> torch.Tensor:
    shape = tuple(weight.shape)
    if weight.dtype != torch.bfloat16 or not can_pack(shape):
        raise ValueError(
            f"w12: weight is {weight.dtype} {list(shape)}, expected torch.bfloat16 of two or more dims, "
            f"rows of at least 1 and at most {MAX_WEIGHTS} elements"
        )
    return weight.detach().contiguous().view(_matrices(shape))


def _scan(source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    bands = source.shape[0] * -(-source.shape[1] // _BAND)
    base, begin = torch.empty(bands, dtype=torch.uint8), torch.empty(bands + 1, dtype=torch.int64)
    return base, begin, _C.w12_scan(source, base, begin)


def _check_layout(packed: PackedWeight) -> None:
    if not can_pack(packed.shape):
        raise CheckpointError(f"tensor {packed.name}: shape {list(packed.shape)} has no w12 form")
    for field, (dtype, shape) in layout(packed.shape, packed.exc_pos.numel()).items():
        array = getattr(packed, field)
        if array.dtype != _TORCH[dtype] or tuple(array.shape) != shape:
            raise CheckpointError(
                f"tensor {packed.name}: w12_{field} is {array.dtype} {list(array.shape)}, "
                f"expected {dtype} {list(shape)}"
            )


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except _C.KernelError as e:
        what = str(e).partition("  [")[0]  # without the place in the source: the file is at fault
        raise CheckpointError(f"tensor {name}: {what}") from None
