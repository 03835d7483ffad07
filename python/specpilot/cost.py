"""What a step costs on this machine with these models, by width: measured, corrected by what runs, kept for later processes."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

from . import _C
from .fetch import cache_dir
from .machine import machine_identity, release

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
    facts: Mapping[str, Any],
    device: torch.device,
    widths: Sequence[int],
    make: Callable[[], dict[int, StepTime]],
) -> dict[int, StepTime]:
    """``make()``, the times of these widths on ``device``, or what it gave an earlier process on the same machine and build with
    the same ``facts``: the models."""
    path, _ = _place(facts, device, widths)
    try:
        kept = {int(w): StepTime(*map(float, t)) for w, t in json.loads(path.read_text())["seconds"].items()}
        if kept.keys() == set(widths) and all(_plausible(w, t) for w, t in kept.items()):
            return kept
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not measured yet, or not ours: measure
    times = make()
    try:
        store(facts, device, times)
    except OSError as e:
        log.debug("step costs are not kept: %s", e)
    return times


def store(
    facts: Mapping[str, Any], device: torch.device, times: Mapping[int, StepTime], **beside: Any
) -> Path:
    """Keeps times on ``device`` where ``stored`` looks for their widths, in place of what is there; gives the file. ``beside`` is
    written next to them, for readers of the file. Raises OSError."""
    path, key = _place(facts, device, list(times))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({"key": key, "seconds": times, **beside}, indent=1))
    part.replace(path)
    return path


def _place(
    facts: Mapping[str, Any], device: torch.device, widths: Sequence[int]
) -> tuple[Path, dict[str, Any]]:
    """The file of a table, and the key that it is named by."""
    key = {
        **facts,
        "widths": list(widths),
        "machine": machine_identity(device),
        "version": release(),
        "build": os.stat(_C.__file__).st_mtime_ns,
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return cache_dir() / f"step-costs-{name}.json", key


def _plausible(width: int, time: StepTime) -> bool:
    """A step of one row does not draft; every other time is a positive number."""
    return 0 < time.verify < math.inf and (width == 1 or 0 < time.draft < math.inf)
