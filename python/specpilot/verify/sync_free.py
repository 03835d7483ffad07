"""Steps that need no answer of the host: the next one is launched before the tokens of the last are known."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import islice

import numpy as np
import torch

from .. import ops
from ..cost import StepTime
from ..drafters import Drafter
from ..mirror import Mirror
from ..moment import moment
from .base import Narrow, Parts, Step, Verifier
from .chain import drafting_parts
from .chain_pass import ChainPass
from .graphs import Graphs

RING = 4  # entries: one is read while the next two are written
STOPS = 32  # stop tokens that the device looks for; the host sees to all of them


class _SyncFree(Verifier):
    """A chain, or one-token decoding without a drafter. What the host decides before a step is its width, nothing else.

    The verify graph ends with ``ops.advance``, which makes the rows of the next step from what was accepted, and with a copy of its
    ring to the host. Tap rows of all rows of a pass, accepted or not, wait for the drafter in their order, at most a block of
    them: a step of width 1 does not draft, and its row queues up behind the others.
    """

    lag = 1
    ends_itself = True  # so that no graph is captured for the widths that are left before an end

    def __init__(self, parts: Parts, drafter: Drafter | None) -> None:
        super().__init__(parts)
        device = parts.target.device
        self.drafter, self.max_width = drafter, drafter.block_size if drafter else 1
        self._pass = ChainPass(parts, self.max_width)
        self._margins = torch.zeros(1, self.max_width - 1, device=device)

        def ints(*shape: int) -> Mirror:
            return Mirror(torch.zeros(*shape, dtype=torch.int32, device=device))

        self._state, self._stops = ints(1, 4), ints(STOPS)
        self._ring = ints(RING, 1, 2 * self.max_width + 1)
        self._moments = [[moment(device) for _ in range(3)] for _ in range(RING)]
        self._graphs = Graphs(device)
        self._under_way: deque[tuple[int, int, bool]] = deque()  # (step, width, steady)
        self._steps, self._waiting = 0, 0

    def begin(self, anchor: int, start: int, left: int, stop_ids: Collection[int]) -> None:
        self._under_way.clear()
        self._steps, self._waiting = 0, 0
        self._parts.rows.put([anchor])
        self._parts.rows.chain(start, self.max_width)
        if self.drafter:
            self.drafter.place_block(start, anchor)
        self._state.writable()[:] = [start, left, 0, 0]
        self._state.upload()
        stops = self._stops.writable()
        stops[:] = -1
        stops[: len(stop_ids)] = [*islice(stop_ids, STOPS)]
        self._stops.upload()

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def launch(self, width: int, narrow: Narrow | None = None) -> None:
        begin, drafted, end = self._moments[self._steps % RING]
        begin.record()
        steady = True
        if self._waiting and (width > 1 or self._waiting == self.max_width):
            n, self._waiting = self._waiting, 0
            steady = self._graphs.run(("extend", n), lambda: self._extend_calls(n))
        if width > 1:
            steady &= self._graphs.run(("draft", width), lambda: self._draft_calls(width))
        drafted.record()
        first_tap = self._waiting
        steady &= self._graphs.run(("verify", width, first_tap), lambda: self._verify_calls(width, first_tap))
        end.record()
        self._waiting += width if self.drafter else 0
        self._under_way.append((self._steps, width, steady))
        self._steps += 1

    def collect(self) -> Step:
        step, width, steady = self._under_way.popleft()
        begin, drafted, end = self._moments[step % RING]
        end.wait()
        entry = self._ring.numpy[step % RING, 0]
        count, done = entry[:2].tolist()
        margins = entry[2 + self.max_width :][: width - 1].copy().view(np.float32)
        time = StepTime(drafted.since(begin) if self.drafter else 0.0, end.since(drafted))
        return Step(entry[2 : 2 + count].tolist(), width, width, time, margins, steady, bool(done))

    def _sample(self, width: int) -> StepTime:
        for _ in range(2):  # the first captures, the second captures what extends by the rows of the first
            super()._sample(width)
        self.launch(width)  # a request that has ended takes the same time
        self.launch(width)  # behind another step, as in decoding: the host's part is hidden
        self.collect()
        return self.collect().time

    def _extend_calls(self, n: int) -> None:
        assert self.drafter and self._parts.taps
        self.drafter.extend(self._parts.taps.buffer, n)

    def _draft_calls(self, width: int) -> None:
        assert self.drafter
        self.drafter.draft(self._parts.rows.ids[1:width], self._margins[0, : width - 1])

    def _verify_calls(self, width: int, first_tap: int) -> None:
        p, rows, n = self._parts, self.drafter.rows if self.drafter else None, self.max_width
        taps = p.taps.rows_from(first_tap) if rows and p.taps else None
        self._pass.calls(width, taps)
        ops.advance(
            self._state.tensor,
            self._pass.emitted,
            self._pass.length,
            self._margins,
            self._stops.tensor,
            p.rows.slot_table,
            p.rows.part(0, n),
            rows.block.part(0, n) if rows else None,
            rows.causal.part(0, n) if rows and rows.causal else None,
            rows.context.part(first_tap, width) if rows else None,
            self._ring.tensor,
        )
        self._ring.download()


class SyncFreeAR(_SyncFree):
    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, None)


class SyncFreeChain(_SyncFree):
    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, drafting_parts(parts))
