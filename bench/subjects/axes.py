"""Where the rows and columns of a small weight go in a large one, and what stands in the rest of it.

An entry of the large weight is
- the small one's, where both its row and its column are the small weight's,
- zero, where its column's input can be other than zero and its row is live or has to stay silent,
- filler everywhere else: bytes that are read, and multiplied by exact zeros or never looked at.

Filler is drawn from the small weight itself, from the same row where there is one: so it has a real weight's statistics, and no
row grows a larger magnitude than it had.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROWS = 4096  # made together: bounds the temporary memory


@dataclass(frozen=True)
class Axis:
    """Rows, or columns, of a large weight.

    ``source``  int64: the small weight's row or column, -1 where there is none
    ``strict``  bool: of a row, its output must be zero where it has no source; of a column, its input can be other than zero
    """

    source: Tensor
    strict: Tensor

    @property
    def size(self) -> int:
        return len(self.source)


def spread(small: int, large: int, silent: bool = False) -> Axis:
    """Entries at even distances, so that no tile lacks dead ones. ``silent``: dead rows give zero."""
    source = torch.full((large,), -1)
    source[torch.arange(small) * large // small] = torch.arange(small)
    return Axis(source, torch.ones_like(source, dtype=torch.bool) if silent else source >= 0)


def free(source: Tensor) -> Axis:
    """Rows that may give anything where they have no source."""
    return Axis(source, torch.zeros_like(source, dtype=torch.bool))


def prefix(small: int, large: int) -> Axis:
    """The first rows; the others are never looked at."""
    return free(torch.arange(large).masked_fill_(torch.arange(large) >= small, -1))


def dims(small: int, large: int) -> Tensor:
    """int64 [large]: the dim of a small head that a dim of a large one stands for, or -1. Rotary frequencies stay what they are:
    dim i of each half goes to r i, r = large / small."""
    source = torch.full((large,), -1)
    ratio, half = large // small, torch.arange(small // 2)
    source[ratio * half], source[ratio * half + large // 2] = half, half + small // 2
    return source


def heads(small: int, large: int, small_groups: int, large_groups: int, dim: Tensor) -> tuple[Tensor, Tensor]:
    """Query heads in groups of one key head, or key heads themselves in ``groups`` of one: [large_groups * large * D] each.

    ``small``, ``large``: heads a group. Gives the source of every row or -1, and which rows belong to a live dim of a group that
    the small model has: there, a head that it lacks gives what is not zero either.
    """
    small_dim = int(dim.max()) + 1
    group, head = torch.arange(large_groups)[:, None, None], torch.arange(large)[None, :, None]
    known = (group < small_groups) & (dim >= 0)
    source = ((group * small + head) * small_dim + dim).where(known & (head < small), -1)
    return source.flatten(), known.expand(-1, large, -1).flatten()


def enlarge(weight: Tensor, rows: Axis, columns: Axis, generator: torch.Generator) -> Tensor:
    """bf16 [rows, columns] out of a bf16 matrix, by the rules above, on the generator's device."""
    device = generator.device
    weight = weight.to(device)
    n, k = weight.shape
    column_source, column_strict = columns.source.to(device), columns.strict.to(device)
    own = column_source.clamp(min=0)
    out = torch.empty(rows.size, columns.size, dtype=weight.dtype, device=device)
    pieces = (out.split(_ROWS), rows.source.to(device).split(_ROWS), rows.strict.to(device).split(_ROWS))
    for begin, (piece, source, strict) in enumerate(zip(*pieces, strict=True)):
        live = source >= 0
        others = torch.arange(begin * _ROWS, begin * _ROWS + len(source), device=device) % n
        from_row = weight[torch.where(live, source, others)]
        picks = torch.randint(k, piece.shape, generator=generator, device=device)
        torch.gather(from_row, 1, picks, out=piece)
        real = live[:, None] & (column_source >= 0)
        torch.where(real, from_row[:, own], piece, out=piece)
        piece.masked_fill_((live | strict)[:, None] & column_strict & ~real, 0)
    return out
