"""A drafted chain through the target: the longest prefix that it agrees with, and the bonus token."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import ops
from ..layers import Taps
from .base import Parts


class ChainPass:
    """Op calls of a verify pass over up to ``width`` rows, and what they write: ``emitted`` int32 [1, width], ``length`` [1]."""

    def __init__(self, parts: Parts, width: int) -> None:
        self._parts, device = parts, parts.target.device

        def ints(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        self.emitted, self.length = ints(1, width), ints(1)
        self._choice, self._path = ints(width), ints(1, width)
        self._parents = torch.arange(-1, width - 1, dtype=torch.int32, device=device)
        self._cu_rows = [torch.tensor([0, n], dtype=torch.int32, device=device) for n in range(width + 1)]

    def calls(self, n: int, taps: Taps | None) -> None:
        """The first n rows of ``parts.rows``: KV, taps, and which of them the target agrees with."""
        p, choice = self._parts, self._choice[:n]
        p.target.forward(p.rows, n, p.kv, p.work, taps)
        p.target.logits(p.work, n)
        ops.argmax(p.work.logits[:n], p.vocab, choice)
        ops.accept(
            self._cu_rows[n], p.rows.ids[:n], self._parents[:n], choice, self._path, self.emitted, self.length
        )
