"""A drafted chain verified in one pass, its width chosen once its drafts are known."""

from __future__ import annotations

from collections.abc import Collection
from time import perf_counter

import torch

from ..cost import StepTime
from ..drafters import Drafter
from ..mirror import Mirror
from .base import Narrow, Parts, Step
from .chain_pass import ChainPass
from .host_driven import HostDriven


def drafting_parts(parts: Parts) -> Drafter:
    """The drafter of a chain, which must be there."""
    if parts.drafter is None or parts.taps is None:
        raise ValueError("verify: a chain needs a drafter; name one, or use verify='ar'")
    return parts.drafter


class Chain(HostDriven):
    """Three captured programs make a step: the drafter's context (by its rows), the draft and the verify pass (by width).

    Rows that the drafter has not taken in yet wait in the tap buffer, at most a block of them: a step of width 1 does not draft,
    so it need not extend either, and its own tap row queues up behind the others.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.drafter: Drafter = drafting_parts(parts)
        self.max_width = width = self.drafter.block_size
        self._pass = ChainPass(parts, width)
        self._emitted, self._length = Mirror(self._pass.emitted), Mirror(self._pass.length)
        self._margins = Mirror(torch.zeros(width - 1, device=parts.target.device))
        self._waiting = 0

    def begin(self, anchor: int, start: int, left: int, stop_ids: Collection[int]) -> None:
        super().begin(anchor, start, left, stop_ids)
        self._waiting = 0

    def _run(self, anchor: int, start: int, width: int, narrow: Narrow | None) -> Step:
        begin = perf_counter()
        rows, verified, margins = self._parts.rows, width, self._margins.numpy[: width - 1]
        rows.put([anchor])
        if width > 1:
            self._extend(start)
            self.drafter.place_block(start, anchor)
            self._graphs.run(("draft", width), lambda: self._draft_calls(width))
            margins = self._margins.read()[: width - 1]
        elif self._waiting == self.max_width:
            self._extend(start)
        drafted = perf_counter()
        if narrow and width > 1:
            verified = narrow(margins)
        chosen, first_tap = perf_counter(), self._waiting
        rows.chain(start, verified)
        self._graphs.run(("verify", verified, first_tap), lambda: self._verify_calls(verified, first_tap))
        count = int(self._length.read()[0])
        tokens = self._emitted.read()[0, :count].tolist()
        self._waiting += count
        return Step(
            tokens, width, verified, StepTime(drafted - begin, perf_counter() - chosen), margins.copy()
        )

    def _sample(self, width: int) -> StepTime:
        if width > 1:
            self._start = self._waiting = 1  # a step that drafts has a row to extend by
        return super()._sample(width)

    def _extend(self, start: int) -> None:
        n = self._waiting
        if n:
            self.drafter.place_context(start - n, n)
            self._graphs.run(("extend", n), lambda: self._extend_calls(n))
            self._waiting = 0

    def _extend_calls(self, n: int) -> None:
        assert self._parts.taps
        self.drafter.extend(self._parts.taps.buffer, n)

    def _draft_calls(self, width: int) -> None:
        self.drafter.draft(self._parts.rows.ids[1:width], self._margins.tensor[: width - 1])

    def _verify_calls(self, width: int, first_tap: int) -> None:
        assert self._parts.taps
        self._pass.calls(width, self._parts.taps.rows_from(first_tap))
