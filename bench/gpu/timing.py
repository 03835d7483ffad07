"""How everything on the GPU is timed: CUDA graphs of calls, arms interleaved in rotating order.

A sample of an arm is one launch of a graph of its calls, timed by events behind an untimed launch of the same graph, which hides
the start and leaves the caches as in a long run. Call i works on copy i of what is streamed, and the copies together hold more
than ``DISTINCT`` bytes, so that weights come from memory. On the CPU (dry runs) calls are made one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import device as gpu
import torch

from specpilot.benchmark.stats import Ratio, Spread

DISTINCT = 1 << 30  # bytes of copies; an H200's L2 has 60 MB
SAMPLE_US = 2000  # shortest graph: beside it the gap between two launches is nothing
MAX_CALLS = 4096
WARM_SECONDS = 0.1  # clocks rise
LOAD_SECONDS = 0.5  # nvidia-smi takes about as long

Call = Callable[[], object]


def copies_of(nbytes: int, device: str) -> int:
    """How many copies of an operand outgrow the caches; on the CPU two, which is enough to notice a wrong one."""
    return min(max(2, -(-DISTINCT // nbytes)), MAX_CALLS) if device == "cuda" else 2


def captured(call: Call, device: str) -> Call:
    """``call`` as a CUDA graph, after one run that is not captured (kernels load, libraries take their workspaces); the result
    enqueues it. On the CPU ``call`` itself, also after one run."""
    if device != "cuda":
        call()
        return call
    graph, side = torch.cuda.CUDAGraph(), _side()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        side.synchronize()
        graph.capture_begin()
        call()
        graph.capture_end()
    return graph.replay


@cache
def _side() -> torch.cuda.Stream:
    """Where graphs are made: one stream, since libraries take a workspace for each."""
    return torch.cuda.Stream()


class Recorded:
    """``call(0)`` … ``call(copies - 1)``, as many whole rounds as make a sample; ``us()`` is the time of one call.

    ``launch`` enqueues the whole, which takes about ``calls`` times as long.
    """

    def __init__(self, call: Callable[[int], object], copies: int, device: str) -> None:
        self._device = device
        if device == "cuda":
            self._begin, self._end = (
                torch.cuda.Event(enable_timing=True),
                torch.cuda.Event(enable_timing=True),
            )
        rounds, most = 1, max(MAX_CALLS // copies, 1)
        self._record(call, copies, rounds)
        while device == "cuda" and rounds < most and (us := self.us() * self.calls) < 0.9 * SAMPLE_US:
            rounds = min(math.ceil(rounds * SAMPLE_US / us), most)
            self._record(call, copies, rounds)

    def _record(self, call: Callable[[int], object], copies: int, rounds: int) -> None:
        def run() -> None:
            for i in range(rounds * copies):
                call(i % copies)

        self.calls, self.launch = rounds * copies, captured(run, self._device)

    def us(self) -> float:
        self.launch()
        if self._device != "cuda":
            begin = perf_counter()
            self.launch()
            return (perf_counter() - begin) * 1e6 / self.calls
        self._begin.record()
        self.launch()
        self._end.record()
        self._end.synchronize()
        return self._begin.elapsed_time(self._end) * 1e3 / self.calls


@dataclass(frozen=True)
class Measured:
    """Samples of arms in µs, one an epoch, and the state of the GPU under the load of one of them."""

    samples: Mapping[str, list[float]]
    state: Mapping[str, str]

    def __getitem__(self, arm: str) -> Spread:
        return Spread.of(self.samples[arm])

    def ratio(self, over: str, under: str) -> Ratio:
        """Paired by epoch: how many times as long ``over`` takes."""
        pairs = zip(self.samples[over], self.samples[under], strict=True)
        return Ratio.of([a / b for a, b in pairs])


def measure(arms: Mapping[str, Callable[[], float]], epochs: int, load: Call | None = None) -> Measured:
    """A sample of every arm an epoch, in an order that rotates from epoch to epoch, after a warm-up that does not count.

    ``load`` enqueues at least ``LOAD_SECONDS`` of work, during which the clocks are read.
    """
    names = list(arms)
    begin, first = perf_counter(), True
    while first or (load and perf_counter() - begin < WARM_SECONDS):
        first = False
        for name in names:
            arms[name]()
    samples: dict[str, list[float]] = {name: [] for name in names}
    for epoch in range(epochs):
        for k in range(len(names)):
            name = names[(k + epoch) % len(names)]
            samples[name].append(arms[name]())
    state = gpu.smi_under(load) if load else {}
    if load:
        torch.cuda.synchronize()
    return Measured(samples, state)


def load_of(recorded: Recorded, device: str) -> Call | None:
    """What ``measure`` reads the clocks under; nothing on the CPU."""
    if device != "cuda":
        return None
    launches = int(LOAD_SECONDS * 1e6 / (recorded.us() * recorded.calls)) + 1

    def run() -> None:
        for _ in range(launches):
            recorded.launch()

    return run
