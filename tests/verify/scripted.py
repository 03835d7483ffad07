"""A DFlash drafter that works in full and whose drafts are then replaced by op calls alone, so that no step needs the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import oracle
import pytest
import torch

from specpilot import load, ops
from specpilot.drafters import DRAFTERS
from specpilot.drafters.dflash import DFlashDraftModel
from specpilot.engine import Engine
from specpilot.width_policy import WidthPolicy

PREFERENCE = 2.0  # logits by which every draft beats the runner-up


class Scripted(DFlashDraftModel):
    """Drafts a position's token of a script, wherever the block begins."""

    def allocate(self, memory) -> None:
        super().allocate(memory)
        size, device = memory.max_context + self.block_size, self.target.embedding.data.device
        self._table = torch.zeros(size, self.target.vocab, dtype=torch.bfloat16, device=device)
        self._chosen = torch.zeros_like(self._table[: self.block_size - 1])

    def script(self, tokens: Sequence[int], first: int) -> None:
        """The tokens of positions first, first + 1, …"""
        self._table.zero_()
        at = torch.arange(first, first + len(tokens))
        self._table[at, torch.tensor(tokens)] = PREFERENCE

    def draft(self, ids: torch.Tensor, margins: torch.Tensor) -> None:
        super().draft(ids, margins)
        n = ids.shape[0]
        ops.gather_rows(self._table, self._block.positions[1 : n + 1], self._chosen[:n])
        ops.argmax(self._chosen[:n], self.target.vocab, ids, margins)


def engine_of(target: Path, drafter: Path, device: str) -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DRAFTERS._entries, "DFlashDraftModel", Scripted)
        return load(target, drafter, drafter_weights="w12", max_context=oracle.MAX_CONTEXT, device=device)


class Recorder(WidthPolicy):
    """Another policy, and what it was shown: (drafted, verified, emitted, margins) of each step that was not an end."""

    def __init__(self, policy: WidthPolicy) -> None:
        self._policy = policy
        self.steps: list[tuple[int, int, int, list[float]]] = []

    def begin(self) -> None:
        self._policy.begin()

    def width(self) -> int:
        return self._policy.width()

    def observe(self, drafted, verified, emitted, time, margins) -> None:
        assert time is None or (time.draft >= 0 and time.verify > 0)
        self.steps.append((drafted, verified, emitted, margins.tolist()))
        self._policy.observe(drafted, verified, emitted, time, margins)

    def narrow(self, margins) -> int:
        return self._policy.narrow(margins)

    @property
    def taken_in(self) -> int:
        """Tokens whose positions the drafter has surely taken in: those before the last step that drafted."""
        last = max((i for i, s in enumerate(self.steps) if s[0] > 1), default=0)
        return sum(s[2] for s in self.steps[:last])
