"""What a GPU did during a run, kernel by kernel, from the profiler's trace: busy time, and idle time by who is to blame."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from timing import Call

WORK = {"kernel", "gpu_memcpy", "gpu_memset"}


@dataclass(frozen=True)
class Kernel:
    """A kernel or a copy. ``start`` and ``us`` in µs; those of one graph launch share ``launch``."""

    name: str
    start: float
    us: float
    launch: int

    @property
    def end(self) -> float:
        return self.start + self.us


def profiled(run: Call, device: str) -> list[Kernel]:
    """The kernels of ``run()`` in the order of their starts; none on the CPU, where there is nothing to trace."""
    if device != "cuda":
        run()
        return []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profile.export_chrome_trace(str(path))
        found = kernels_of(json.loads(path.read_text()))
    if not found:
        print("the profiler saw no kernels: does CUPTI work on this machine?", file=sys.stderr)
    return found


def kernels_of(trace: dict[str, Any]) -> list[Kernel]:
    """From a trace in Chrome's format."""
    found = [
        Kernel(e["name"], float(e["ts"]), float(e["dur"]), int(e["args"]["correlation"]))
        for e in trace["traceEvents"]
        if e.get("cat") in WORK and e.get("ph") == "X"
    ]
    return sorted(found, key=lambda k: k.start)


def steady(kernels: Sequence[Kernel], steps: int) -> tuple[list[Kernel], int]:
    """A whole number of periods out of a run of ``steps`` steps of one or more graphs each, and how many steps that is.

    It begins and ends with the start of a graph launch; a quarter of the launches come before it: a prompt, and a loop that is
    not in its stride yet. ([], 0) where that leaves no step.
    """
    sizes = Counter(k.launch for k in kernels)
    starts: dict[int, float] = {}
    for k in kernels:
        if sizes[k.launch] > 1:  # one call that is not a graph launch is one kernel
            starts.setdefault(k.launch, k.start)
    launches = sorted(starts.values())
    each = max(round(len(launches) / steps), 1)  # graphs a step
    marks = launches[len(launches) // 4 :][::each]
    if len(marks) < 2:
        return [], 0
    return [k for k in kernels if marks[0] <= k.start < marks[-1]], len(marks) - 1


@dataclass(frozen=True)
class Busy:
    """Of a step, in µs: ``total`` of all kernels, ``span`` from the first start to the last end, idle time within a graph launch
    (``graph_gap``) and between launches (``host_gap``); ``by_name`` the total by kernel, longest first; ``head`` the kernels before
    an argmax (the last that is not shorter than it), which are the products with a head.

    A kernel that starts early, while the one before it still runs, counts from that one's end: until then it mostly waits.
    """

    total: float
    span: float
    graph_gap: float
    host_gap: float
    by_name: dict[str, float]
    head: float = 0.0

    @classmethod
    def of(cls, kernels: Sequence[Kernel], steps: float) -> Busy:
        gaps = {True: 0.0, False: 0.0}
        end, names = kernels[0].start, dict.fromkeys((k.name for k in kernels), 0.0)
        head, each = 0.0, list[float]()
        for before, k in zip([kernels[0], *kernels], kernels, strict=False):
            gaps[before.launch == k.launch] += max(k.start - end, 0.0)
            us = max(k.end - max(k.start, end), 0.0)
            if "argmax" in k.name.lower():
                head += next((earlier for earlier in reversed(each) if earlier >= us), 0.0)
            each.append(us)
            end = max(end, k.end)
            names[k.name] += us
        total = sum(names.values())
        by_name = {name: names[name] / steps for name in sorted(names, key=lambda n: -names[n])}
        span = end - kernels[0].start
        return cls(
            total / steps, span / steps, gaps[True] / steps, gaps[False] / steps, by_name, head / steps
        )

    def part(self, word: str) -> float:
        """µs of the kernels whose name contains ``word``."""
        return sum(us for name, us in self.by_name.items() if word in name)


def graphs(kernels: Sequence[Kernel], steps: int) -> list[Busy]:
    """The graphs that each of ``steps`` whole steps launches, in their order; their gaps mean nothing."""
    launches = list(dict.fromkeys(k.launch for k in kernels))
    each = max(len(launches) // steps, 1)
    place = {launch: i % each for i, launch in enumerate(launches)}
    return [Busy.of([k for k in kernels if place[k.launch] == i], steps) for i in range(each)]
