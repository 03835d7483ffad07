"""How wide to verify: measured step times of this machine and model, and how often each drafted position survives.

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
from typing import Any

from . import _C
from .fetch import cache_dir
from .machine import cpu_model, release

log = logging.getLogger(__name__)
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
BUDGET = 1.0  # seconds that measuring may take


def widths_up_to(limit: int) -> list[int]:
    """The widths that are worth choosing among, the largest possible included."""
    return sorted({w for w in WIDTHS if w < limit} | {limit})


class StepCosts:
    """Seconds of a step (draft and verify) by width: calibrated once, then corrected by every step that runs."""

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


def measure(run: Callable[[int], float], widths: Sequence[int], budget: float = BUDGET) -> dict[int, float]:
    """Best of some runs a width, ``run(width)`` giving its seconds. Widths that the budget leaves out are interpolated."""
    ends = [widths[0], widths[-1]]
    middle = sorted(widths[1:-1], key=lambda w: abs(math.log2(w) - 0.5 * math.log2(widths[-1])))
    begin = perf_counter()
    seconds: dict[int, float] = {}
    for w in dict.fromkeys(ends + middle):
        if len(seconds) >= len(set(ends)) and perf_counter() - begin > budget:
            break
        first = run(w)
        again = 2 if perf_counter() - begin + 2 * first < budget else 0
        seconds[w] = min([first, *(run(w) for _ in range(again))])
    return {w: seconds.get(w) or _between(w, seconds) for w in widths}


def _between(w: int, seconds: Mapping[int, float]) -> float:
    low, high = max(k for k in seconds if k < w), min(k for k in seconds if k > w)
    return seconds[low] + (seconds[high] - seconds[low]) * (w - low) / (high - low)


def stored(
    facts: Mapping[str, Any], widths: Sequence[int], make: Callable[[], dict[int, float]]
) -> dict[int, float]:
    """``make()``, seconds of these widths, or what it gave an earlier process on the same machine, build and models."""
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
        kept = {int(w): float(s) for w, s in json.loads(path.read_text())["seconds"].items()}
        if kept.keys() == set(widths) and all(0 < s < math.inf for s in kept.values()):
            return kept
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not measured yet, or not ours: measure
    seconds = make()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"key": key, "seconds": seconds}, indent=1))
        part.replace(path)
    except OSError as e:
        log.debug("step costs are not kept: %s", e)
    return seconds


class Survival:
    """Chance that a drafted position is accepted when all before it were: recent counts, and a prior of two observations.

    The prior of a position is the chance of the one before it: where drafts do well, wider passes are worth a try.
    """

    PRIOR, WEIGHT, DECAY = 0.7, 2.0, 0.97

    def __init__(self, drafts: int) -> None:
        self._hits, self._trials = [0.0] * drafts, [0.0] * drafts

    def observe(self, width: int, emitted: int) -> None:
        """A pass of ``width`` rows emitted so many tokens: all but the last were drafts."""
        judged = min(emitted, width - 1)
        for i in range(len(self._trials)):
            self._trials[i] = self._trials[i] * self.DECAY + (i < judged)
            self._hits[i] = self._hits[i] * self.DECAY + (i < emitted - 1)

    def expected(self, widths: Sequence[int]) -> list[float]:
        """Tokens that a pass of each width (ascending) may be expected to emit."""
        out, total, alive, at, chance = [], 1.0, 1.0, 0, self.PRIOR
        for w in widths:
            for i in range(at, w - 1):
                chance = (self._hits[i] + chance * self.WEIGHT) / (self._trials[i] + self.WEIGHT)
                alive *= chance
                total += alive
            at = max(at, w - 1)
            out.append(total)
        return out


class WidthPolicy(ABC):
    """Chooses how many rows the next pass verifies."""

    @abstractmethod
    def width(self) -> int: ...

    def observe(self, width: int, emitted: int, seconds: float) -> None:  # noqa: B027 (optional)
        """What came of a step."""


class Fixed(WidthPolicy):
    def __init__(self, width: int) -> None:
        self._width = width

    def width(self) -> int:
        return self._width


class Auto(WidthPolicy):
    """The width with the most expected tokens a second. Now and then it tries the best one above or below, in turns: times or
    acceptance may have changed there."""

    PATIENCE, LONGEST = 32, 512  # steps before a try; doubles with each that changes nothing

    def __init__(self, costs: Mapping[int, float]) -> None:
        self.widths = sorted(costs)
        self.costs, self.survival = StepCosts(costs), Survival(self.widths[-1] - 1)
        self._best, self._up = 0, True
        self._patience, self._idle = self.PATIENCE, 0

    def width(self) -> int:
        expected = self.survival.expected(self.widths)
        rates = [e / self.costs[w] for e, w in zip(expected, self.widths, strict=True)]
        best = rates.index(max(rates))
        if best != self._best:
            self._best, self._patience = best, self.PATIENCE
        self._idle += 1
        if self._idle <= self._patience or len(rates) == 1:
            return self.widths[best]
        self._patience, self._idle = min(2 * self._patience, self.LONGEST), 0
        self._up = not self._up if 0 < best < len(rates) - 1 else best == 0
        others = range(best + 1, len(rates)) if self._up else range(best)
        return self.widths[max(others, key=rates.__getitem__)]

    def observe(self, width: int, emitted: int, seconds: float) -> None:
        self.survival.observe(width, emitted)
        self.costs.observe(width, seconds)
