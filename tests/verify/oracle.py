"""A DFlash drafter that works in full, and whose drafts are then replaced: right for a while, then wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tiny_drafters
import tiny_engines
import tiny_targets
import torch

from specpilot import ops
from specpilot.drafters.dflash import DFlashDraftModel
from specpilot.engine import Engine, Result
from specpilot.engine.decode import Generation, Request
from specpilot.formats import open_checkpoint
from specpilot.width_policy import Fixed, WidthPolicy

MAX_CONTEXT = 200
BLOCK = 16


class Oracle(DFlashDraftModel):
    """``script(start)`` gives the drafts for positions start + 1 …; ``extended`` is how far its context reaches."""

    script: Callable[[int], Sequence[int]]
    extended = 0
    preference = 1.0  # logits by which every draft beats the runner-up

    def allocate(self, memory) -> None:
        super().allocate(memory)
        self._chosen = torch.zeros(self.block_size - 1, self.target.vocab, dtype=torch.bfloat16)

    def place_context(self, start: int, n: int) -> None:
        assert start == 0 or start == self.extended, "a gap in the drafter's context"
        super().place_context(start, n)
        self.extended = start + n

    def place_block(self, start: int, anchor: int) -> None:
        assert start == self.extended, "a draft before the context is complete"
        super().place_block(start, anchor)
        self._chosen.zero_()
        for row, token in zip(self._chosen, self.script(start), strict=True):
            row[token] = self.preference

    def draft(self, ids: torch.Tensor, margins: torch.Tensor) -> None:
        super().draft(ids, margins)
        n = ids.shape[0]
        ops.argmax(self._chosen[:n], self.target.vocab, ids, margins)


class Widths(WidthPolicy):
    """Widths one after the other, from the start again at the end."""

    def __init__(self, *widths: int) -> None:
        self.widths, self.at = widths, 0

    def width(self) -> int:
        self.at += 1
        return self.widths[(self.at - 1) % len(self.widths)]


def engine_of(
    target: Path, drafter: Path, weights: str = "w12", stop_ids=(), max_context: int = MAX_CONTEXT
) -> Engine:
    """With an ``Oracle``."""
    model = tiny_targets.target_of(target, weights)
    checkpoint = open_checkpoint(drafter)
    oracle = Oracle(checkpoint.config, checkpoint, tiny_drafters.parts_of(model), weights)
    return Engine(model, oracle, max_context=max_context, stop_ids=stop_ids)


def run(engine: Engine, prompt: Sequence[int], new: int, policy: WidthPolicy | None, stop_ids=()) -> Result:
    """A chain under a width policy; AR without one."""
    verifier = engine._verifier("chain" if policy else "ar")
    request = Request(list(prompt), new, frozenset(stop_ids))
    generation = Generation(engine, request, verifier, policy or Fixed(1), every_step=False)
    for _ in generation:
        pass
    return generation.result


def drafts(tokens: Sequence[int], prompt_tokens: int, right: Callable[[int], int], vocab: int) -> Callable:
    """A script: of the drafts for positions start + 1 … the first right(start) are what AR emits, the next is not, the rest are."""

    def script(start: int) -> list[int]:
        after = list(tokens[start + 1 - prompt_tokens :][: BLOCK - 1])
        after += [0] * (BLOCK - 1 - len(after))
        wrong = right(start)
        if wrong < BLOCK - 1:
            after[wrong] = (after[wrong] + 1) % vocab
        return after

    return script


def contexts(engine: Engine, n: int) -> dict[str, torch.Tensor]:
    """KV of the first n positions in the target, and of as many as the drafter has taken in."""
    drafter = engine.drafter
    assert isinstance(drafter, Oracle)
    return {
        "target": tiny_engines.kv_at(engine._kv, torch.arange(n)),
        "drafter": tiny_engines.kv_at(drafter._kv, torch.arange(min(n, drafter.extended))),
    }


def prefilled(engine: Engine, ids: Sequence[int]) -> dict[str, torch.Tensor]:
    """The same for tokens that were all there from the start."""
    engine.acquire()
    engine.prefill(ids, engine._verifier("chain"))
    engine.release()
    return contexts(engine, len(ids))
