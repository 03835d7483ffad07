"""How wide to draft and verify: measured step times of this machine and model, and how likely each draft is to survive.

A width never decides a token, only how many are checked at once: every policy gives the same text.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _C
from .fetch import cache_dir
from .machine import cpu_model, release
from .survival import Survival

log = logging.getLogger(__name__)
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
BUDGET = 1.0  # seconds that measuring may take


def widths_up_to(limit: int) -> list[int]:
    """The widths that are worth choosing among, the largest possible included."""
    return sorted({w for w in WIDTHS if w < limit} | {limit})


class StepTime(NamedTuple):
    """Seconds of a step's two halves."""

    draft: float
    verify: float


class StepCosts:
    """Seconds of one half of a step by width: calibrated once, then corrected by every step that runs."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._log = {w: math.log(s) for w, s in seconds.items()}
        self._seen = dict.fromkeys(self._log, 0)

    def __getitem__(self, width: int) -> float:
        return math.exp(self._log[width])

    def observe(self, width: int, seconds: float) -> None:
        """A part of a surprise is common to all widths (a busier machine, a longer context), the rest is the width's own; at first
        most of it is common. The more has been seen, the less a surprise weighs."""
        if width not in self._log:
            return
        surprise = max(-0.7, min(0.7, math.log(seconds) - self._log[width]))
        common = max(0.05, 0.5 * 0.8 ** sum(self._seen.values()))
        own = max(0.05, 0.5 * 0.8 ** self._seen[width] - common)
        for w in self._log:
            self._log[w] += common * surprise
        self._log[width] += own * surprise
        self._seen[width] += 1


def measure(
    run: Callable[[int], StepTime], widths: Sequence[int], budget: float = BUDGET
) -> dict[int, StepTime]:
    """Best of some runs a width, ``run(width)`` giving its times. Widths that the budget leaves out are interpolated."""
    ends = [widths[0], widths[-1]]
    middle = sorted(widths[1:-1], key=lambda w: abs(math.log2(w) - 0.5 * math.log2(widths[-1])))
    begin = perf_counter()
    times: dict[int, StepTime] = {}
    for w in dict.fromkeys(ends + middle):
        if len(times) >= len(set(ends)) and perf_counter() - begin > budget:
            break
        runs = [run(w)]
        if perf_counter() - begin + 2 * sum(runs[0]) < budget:
            runs += [run(w), run(w)]
        times[w] = StepTime(*map(min, zip(*runs, strict=True)))
    return {w: times.get(w) or _between(w, times) for w in widths}


def _between(w: int, times: Mapping[int, StepTime]) -> StepTime:
    low, high = max(k for k in times if k < w), min(k for k in times if k > w)
    share = (w - low) / (high - low)
    return StepTime(*(a + (b - a) * share for a, b in zip(times[low], times[high], strict=True)))


def stored(
    facts: Mapping[str, Any], widths: Sequence[int], make: Callable[[], dict[int, StepTime]]
) -> dict[int, StepTime]:
    """``make()``, the times of these widths, or what it gave an earlier process on the same machine, build and models."""
    key = {
        **facts,
        "widths": list(widths),
        "cpu": cpu_model(),
        "tier": _C.active_tier(),
        "threads": _C.threads(),
        "version": release(),
    }
    key["build"] = os.stat(_C.__file__).st_mtime_ns
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    cache = cache_dir()
    path = cache / f"step-costs-{name}.json"
    try:
        kept = {int(w): StepTime(*map(float, t)) for w, t in json.loads(path.read_text())["seconds"].items()}
        if kept.keys() == set(widths) and all(_plausible(w, t) for w, t in kept.items()):
            return kept
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not measured yet, or not ours: measure
    times = make()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"key": key, "seconds": times}, indent=1))
        part.replace(path)
    except OSError as e:
        log.debug("step costs are not kept: %s", e)
    return times


def _plausible(width: int, time: StepTime) -> bool:
    """A step of one row does not draft; every other time is a positive number."""
    return 0 < time.verify < math.inf and (width == 1 or 0 < time.draft < math.inf)


class WidthPolicy(ABC):
    """Chooses how many rows a step drafts for, and how many of them it verifies: one more than drafts are used."""

    @abstractmethod
    def width(self) -> int:
        """Rows to draft for; 1 leaves the drafter out."""

    def narrow(self, margins: NDArray[np.float32]) -> int:
        """Rows to verify, 1 … len(margins) + 1, once the drafts and their ``margins`` over the runners-up are there."""
        return len(margins) + 1

    def observe(self, drafted: int, verified: int, emitted: int, time: StepTime) -> None:  # noqa: B027 (optional)
        """What came of a step: widths drafted for and verified, tokens emitted."""


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
    """

    PATIENCE, LONGEST = 64, 512  # steps before a try; doubles with each that changes nothing
    PLANNED = 8  # steps between plans

    def __init__(self, costs: Mapping[int, StepTime]) -> None:
        self.widths = sorted(costs)
        self.draft = StepCosts({w: c.draft for w, c in costs.items() if w > 1})
        self.verify = StepCosts({w: c.verify for w, c in costs.items()})
        self.survival = Survival(self.widths[-1] - 1)
        self._rows = np.array(self.widths) - 1
        self._margins: list[float] = []
        self._rate = 1 / self.verify[1]  # tokens a second
        self._best, self._up, self._trying = 0, True, False
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
            chosen = gain[:, :i].argmax(1)
            seconds = self.draft[w] + verify[chosen].mean()
            self._rates.append(float(expected[every, chosen].mean() / seconds))
        self._rate, self._age = max(self._rates), 0

    def width(self) -> int:
        self._age += 1
        if self._age > self.PLANNED:
            self._plan()
        best = self._rates.index(self._rate)
        if best != self._best:
            self._best, self._patience, self._trying = best, self.PATIENCE, False
        self._idle += 1
        if len(self.widths) == 1 or not (self._trying or self._idle > self._patience):
            return self.widths[best]
        if not self._trying:
            self._patience, self._idle = min(2 * self._patience, self.LONGEST), 0
            self._up = not self._up if 0 < best < len(self.widths) - 1 else best == 0
            self._trying = True
        others = range(best + 1, len(self.widths)) if self._up else range(best)
        return self.widths[max(others, key=self._rates.__getitem__)]

    def narrow(self, margins: NDArray[np.float32]) -> int:
        self._margins = margins.tolist()
        if self._trying:
            return len(margins) + 1
        expected, alive = [1.0], 1.0
        for chance in self.survival.chances(self._margins):
            alive *= chance
            expected.append(expected[-1] + alive)
        best, width = -math.inf, 1
        for w, seconds in zip(self.widths, self._seconds, strict=True):
            if w <= len(expected) and (gain := expected[w - 1] - self._rate * seconds) > best:
                best, width = gain, w
        return width

    def observe(self, drafted: int, verified: int, emitted: int, time: StepTime) -> None:
        if self._trying:
            self._trying, self._age = emitted > self._rate * sum(time), self.PLANNED
        if drafted > 1:
            self.draft.observe(drafted, time.draft)
            self.survival.remember(self._margins)
            self.survival.learn(self._margins, verified, emitted)
        self.verify.observe(verified, time.verify)
