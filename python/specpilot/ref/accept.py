"""Oracle of accept: the walk over a children table, one request after the other."""

from __future__ import annotations

import torch
from torch import Tensor


def accept(
    cu_rows: Tensor, tokens: Tensor, parents: Tensor, choice: Tensor, max_path: int
) -> tuple[Tensor, Tensor, Tensor]:
    """int32 tensors as the op takes them → path [B, P], emitted [B, P], length [B]."""
    bounds = cu_rows.tolist()
    shape = (len(bounds) - 1, max_path)
    path, emitted = torch.full(shape, -1, dtype=torch.int32), torch.full(shape, -1, dtype=torch.int32)
    length = torch.zeros(shape[0], dtype=torch.int32)
    for b, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        children: dict[tuple[int, int], int] = {}
        for row in reversed(range(begin, end)):  # the lowest row of equal ones is entered last
            children[int(parents[row]) + begin, int(tokens[row])] = row
        at: int | None = begin if end > begin else None
        while at is not None and length[b] < max_path:
            path[b, length[b]], emitted[b, length[b]] = at, choice[at]
            length[b] += 1
            at = children.get((at, int(choice[at])))
    return path, emitted, length
