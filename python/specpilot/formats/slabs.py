"""Memory for weights: large slabs in huge pages, filled in the order in which a step reads them."""

from __future__ import annotations

import torch

from .. import _C

SLAB = 32 << 20  # what a model wastes at most, at its end
_HUGE, _LINE = 2 << 20, 64


class Slabs:
    """Hands out memory that is never given back singly; a slab lives as long as a tensor in it does."""

    def __init__(self) -> None:
        self._slab, self._used = torch.empty(0, dtype=torch.uint8), 0

    def take(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor, aligned to a cache line."""
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        if self._used + nbytes > self._slab.numel():
            size = max(SLAB, -(-nbytes // _HUGE) * _HUGE)
            slab = torch.empty(size + _HUGE, dtype=torch.uint8)
            begin = -slab.data_ptr() % _HUGE
            self._slab, self._used = slab[begin : begin + size], 0
            _C.advise_huge_pages(self._slab)
        piece = self._slab[self._used : self._used + nbytes]
        self._used += -(-nbytes // _LINE) * _LINE
        return piece.view(dtype).view(shape)
