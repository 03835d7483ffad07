"""Steps that the host sees through: it knows the tokens of one before it launches the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection

from .base import Narrow, Parts, Step, Verifier
from .graphs import Graphs


class HostDriven(Verifier):
    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._graphs = Graphs(parts.target.device)
        self._anchor, self._start = 0, 0
        self._step: Step | None = None

    def begin(self, anchor: int, start: int, left: int, stop_ids: Collection[int]) -> None:
        self._anchor, self._start, self._step = anchor, start, None

    @property
    def under_way(self) -> int:
        return int(self._step is not None)

    def launch(self, width: int, narrow: Narrow | None = None) -> None:
        self._step = step = self._run(self._anchor, self._start, width, narrow)
        self._anchor, self._start = step.tokens[-1], self._start + len(step.tokens)

    def collect(self) -> Step:
        step, self._step = self._step, None
        assert step is not None, "no step is under way"
        return step

    @abstractmethod
    def _run(self, anchor: int, start: int, width: int, narrow: Narrow | None) -> Step:
        """A whole step after the anchor at position ``start``."""
