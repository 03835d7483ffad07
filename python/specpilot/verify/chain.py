"""A drafted chain verified in one pass: the longest prefix that the target agrees with, and the bonus token."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from .. import ops
from ..cost import StepTime
from ..drafters import Drafter
from .base import Narrow, Parts, Verifier


def _ints(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


class Chain(Verifier):
    """Three captured programs make a step: the drafter's context (by its rows), the draft and the verify pass (by width).

    Rows that the drafter has not taken in yet wait in the tap buffer, at most a block of them: a step of width 1 does not draft,
    so it need not extend either, and its own tap row queues up behind the others.
    """

    def __init__(self, parts: Parts) -> None:
        if parts.drafter is None or parts.taps is None:
            raise ValueError("verify: a chain needs a drafter; name one, or use verify='ar'")
        super().__init__(parts)
        self.drafter: Drafter = parts.drafter
        self._taps = parts.taps
        self.max_width = width = parts.drafter.block_size
        self._choice, self._parents = _ints(width), torch.arange(-1, width - 1, dtype=torch.int32)
        path, emitted, length = _ints(1, width), _ints(1, width), _ints(1)
        self._cu_rows = [torch.tensor([0, n], dtype=torch.int32) for n in range(width + 1)]
        self._path, self._emitted, self._length = path, emitted, length
        self._host_emitted, self._host_length = emitted.numpy()[0], length.numpy()
        self._margins = torch.zeros(width - 1)
        self._host_margins = self._margins.numpy()
        self._graphs: dict[tuple[str, int, int], ops.Graph] = {}
        self._waiting = 0

    def begin(self) -> None:
        self._waiting = 0

    def step(self, anchor: int, start: int, width: int, narrow: Narrow | None = None) -> list[int]:
        begin = perf_counter()
        self._parts.rows.put([anchor])
        if width > 1:
            self._draft(anchor, start, width)
        elif self._waiting == self.max_width:
            self._extend(start)
        drafted = perf_counter()
        if narrow and width > 1:
            width = narrow(self._host_margins[: width - 1])
        chosen = perf_counter()
        self._parts.rows.chain(start, width)
        self._run("verify", width, self._waiting)
        count = int(self._host_length[0])
        self._waiting += count
        self.time, self.verified = StepTime(drafted - begin, perf_counter() - chosen), width
        return self._host_emitted[:count].tolist()

    def seconds(self, width: int) -> StepTime:
        self._waiting = 1 if width > 1 else 0  # a step that drafts has a row to extend by
        self.step(0, self._waiting, width)
        self.begin()
        return self.time

    def _draft(self, anchor: int, start: int, width: int) -> None:
        self._extend(start)
        self.drafter.place_block(start, anchor)
        self._run("draft", width)

    def _extend(self, start: int) -> None:
        if self._waiting:
            self.drafter.place_context(start - self._waiting, self._waiting)
            self._run("extend", self._waiting)
            self._waiting = 0

    def _run(self, what: str, n: int, first_tap: int = 0) -> None:
        key = (what, n, first_tap)
        graph = self._graphs.get(key)
        if graph is None:
            with ops.capture() as graph:
                self._record(what, n, first_tap)
            self._graphs[key] = graph
        graph.run()

    def _record(self, what: str, n: int, first_tap: int) -> None:
        p = self._parts
        if what == "extend":
            self.drafter.extend(self._taps.buffer, n)
        elif what == "draft":
            self.drafter.draft(p.rows.ids[1:n], self._margins[: n - 1])
        else:
            choice = self._choice[:n]
            p.target.forward(p.rows, n, p.kv, p.work, self._taps.rows_from(first_tap))
            p.target.logits(p.work, n)
            ops.argmax(p.work.logits[:n], p.vocab, choice)
            ops.accept(
                self._cu_rows[n],
                p.rows.ids[:n],
                self._parents[:n],
                choice,
                self._path,
                self._emitted,
                self._length,
            )
