"""How wide to draft and verify, by what widths cost and how likely drafts are to survive.

A width never decides a token, only how many are checked at once: every policy gives the same text.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .cost import StepCosts, StepTime
from .survival import Survival


class WidthPolicy(ABC):
    """Chooses how many rows a step drafts for, and how many of them it verifies: one more than drafts are used."""

    def begin(self) -> None:  # noqa: B027 (optional)
        """A request starts: steps of the one before that were not observed never will be."""

    @abstractmethod
    def width(self) -> int:
        """Rows to draft for; 1 leaves the drafter out."""

    def narrow(self, margins: NDArray[np.float32]) -> int:
        """Rows to verify, 1 … len(margins) + 1, once the drafts and their ``margins`` over the runners-up are there. Not asked
        by steps that cannot wait for the drafts (verify/sync_free.py)."""
        return len(margins) + 1

    def observe(  # noqa: B027 (optional)
        self, drafted: int, verified: int, emitted: int, time: StepTime | None, margins: NDArray[np.float32]
    ) -> None:
        """What came of a step: widths drafted for and verified, tokens emitted, its time (None: not that of others of its
        widths), margins of the drafts. Steps are observed in the order of their ``width()``, some of them after the next one's."""


class Fixed(WidthPolicy):
    def __init__(self, width: int) -> None:
        self._width = width

    def width(self) -> int:
        return self._width


class Auto(WidthPolicy):
    """The widths with the most expected tokens a second.

    A row is verified while the tokens it may add are worth its time at the present rate (Dinkelbach's condition for the best
    ratio of sums). The width to draft for is the one that would have done best on the recent drafts. Now and then the best one
    above or below is tried in full, in turns: times or acceptance may have changed there. A try that pays is repeated.

    ``narrows``: whether drafts are cut off by ``narrow``; without it, all that is drafted for is verified.
    """

    PATIENCE, LONGEST = 64, 512  # steps before a try; doubles with each that changes nothing
    PLANNED = 8  # steps between plans

    def __init__(self, costs: Mapping[int, StepTime], narrows: bool = True) -> None:
        self.widths = sorted(costs)
        self.draft = StepCosts({w: c.draft for w, c in costs.items() if w > 1})
        self.verify = StepCosts({w: c.verify for w, c in costs.items()})
        self.survival = Survival(self.widths[-1] - 1)
        self._rows = np.array(self.widths) - 1
        self._narrows = narrows
        self._rate = 1 / self.verify[1]  # tokens a second
        self._best, self._up = 0, True
        self._again = False  # the last try paid
        self._asked = self._observed = self._tried = (
            0  # steps; the number of the one that is a try, 0 without
        )
        self._patience, self._idle, self._age = self.PATIENCE, 0, 0
        for _ in range(3):  # until the rate agrees with the plan made at it
            self._plan()

    def _plan(self) -> None:
        """Rates of all widths on the recent drafts, each verified as far as pays."""
        expected = self.survival.tokens()[:, self._rows]
        self._seconds = [self.verify[w] for w in self.widths]
        verify = np.array(self._seconds)
        gain, every = expected - self._rate * verify, np.arange(len(expected))
        self._rates = [1 / self._seconds[0]]
        for i, w in enumerate(self.widths[1:], 2):
            chosen = gain[:, :i].argmax(1) if self._narrows else np.full(len(expected), i - 1)
            seconds = self.draft[w] + verify[chosen].mean()
            self._rates.append(float(expected[every, chosen].mean() / seconds))
        self._rate, self._age = max(self._rates), 0

    def begin(self) -> None:
        self._observed, self._tried = self._asked, 0

    def width(self) -> int:
        self._age += 1
        self._asked += 1
        if self._age > self.PLANNED:
            self._plan()
        best = self._rates.index(self._rate)
        if best != self._best:
            self._best, self._patience, self._again = best, self.PATIENCE, False
        self._idle += 1
        if len(self.widths) == 1 or self._tried or not (self._again or self._idle > self._patience):
            return self.widths[best]
        if not self._again:
            self._patience, self._idle = min(2 * self._patience, self.LONGEST), 0
            self._up = not self._up if 0 < best < len(self.widths) - 1 else best == 0
        self._again, self._tried = False, self._asked
        others = range(best + 1, len(self.widths)) if self._up else range(best)
        return self.widths[max(others, key=self._rates.__getitem__)]

    def narrow(self, margins: NDArray[np.float32]) -> int:
        if self._tried:
            return len(margins) + 1
        expected, alive = [1.0], 1.0
        for chance in self.survival.chances(margins.tolist()):
            alive *= chance
            expected.append(expected[-1] + alive)
        best, width = -math.inf, 1
        for w, seconds in zip(self.widths, self._seconds, strict=True):
            if w <= len(expected) and (gain := expected[w - 1] - self._rate * seconds) > best:
                best, width = gain, w
        return width

    def observe(
        self, drafted: int, verified: int, emitted: int, time: StepTime | None, margins: NDArray[np.float32]
    ) -> None:
        self._observed += 1
        if self._observed == self._tried:
            paid = time is None or emitted > self._rate * sum(time)
            self._again, self._age, self._tried = paid, self.PLANNED, 0
        if drafted > 1:
            shown = margins.tolist()
            self.survival.remember(shown)
            self.survival.learn(shown, verified, emitted)
        if time is None:
            return
        if drafted > 1:
            self.draft.observe(drafted, time.draft)
        self.verify.observe(verified, time.verify)
