"""From the times of whole steps to tables, and to the bars that they are held against."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_times import Busy
from tables import Check, markdown, state_text
from timing import Measured

TOP = 8  # kernels listed of a profile


@dataclass(frozen=True)
class Passes:
    """Behind one context. ``found``: arms "w12 16" (format and rows), "torch" and "read KV", a read of one layer's K and V;
    ``attention``: µs of the attention kernels of a pass by format and rows; ``nbytes`` that a pass reads, by format."""

    found: Measured
    attention: Mapping[tuple[str, int], float]
    nbytes: Mapping[str, int]
    layers: int

    def attention_of_read(self, weights: str, rows: int) -> float:
        """Speed of attention as a share of that of a pure read of the same K and V; NaN if the profiler saw none."""
        return self.found["read KV"].median * self.layers / (self.attention[weights, rows] or math.nan)


@dataclass
class Results:
    """All that a run of step.py measured."""

    model: str
    context: int  # of decoding
    profiled: bool  # on a GPU: bars that need a profile are missed without one
    decoding: Measured | None = None
    profiles: dict[str, Busy] = field(default_factory=dict)
    passes: dict[int, Passes] = field(default_factory=dict)
    prompts: dict[int, Measured] = field(default_factory=dict)

    def records(self) -> Iterator[dict[str, Any]]:
        """Lines in the form of ``bench/run --json``; shares of a profile stand with its arm."""
        if self.decoding:
            yield from self._lines("decode", f"{self.model} ctx={self.context}", self.decoding)
        for name, busy in self.profiles.items():
            yield {"op": "profile", "shape": self.model, "variant": name, **vars(busy)}
        for context, p in self.passes.items():
            yield from self._lines("pass", f"{self.model} ctx={context}", p.found, p.nbytes)
            for (w, m), us in p.attention.items():
                yield {
                    "op": "attention in a pass",
                    "shape": f"ctx={context}",
                    "variant": f"{w} {m}",
                    "median_us": us,
                }
        for n, found in self.prompts.items():
            yield from self._lines("prefill", f"{self.model} tokens={n}", found)

    @staticmethod
    def _lines(
        op: str, shape: str, found: Measured, nbytes: Mapping[str, int] | None = None
    ) -> Iterator[dict[str, Any]]:
        for arm in found.samples:
            us = found[arm]
            size = (nbytes or {}).get(arm.split()[0])
            rate = {"gbps": size / us.median / 1e3} if size else {}
            line = {"op": op, "shape": shape, "variant": arm, "median_us": us.median, "mad_us": us.mad}
            yield {**line, **rate, **found.state}


def tables(r: Results) -> list[str]:
    """Of all that has been measured so far."""
    parts = []
    if r.decoding:
        parts.append(_decoding(r, r.decoding))
    parts += [_passes(context, p) for context, p in r.passes.items()]
    if r.prompts:
        parts.append(_prompts(r))
    parts += [profile_table(name, busy) for name, busy in r.profiles.items()]
    return parts


def _decoding(r: Results, found: Measured) -> str:
    rows = []
    for arm in found.samples:
        b = r.profiles.get(arm)
        profile = (
            [b.total, found[arm].median / b.total, 100 * b.host_gap / b.span, 100 * b.graph_gap / b.span]
            if b
            else [None] * 4
        )
        rows.append([arm, found[arm].median, found[arm].mad, str(found.ratio("torch", arm)), *profile])
    header = [
        f"{r.model}, one token at {r.context}", "µs", "±", "torch / it", "kernels µs", "step / kernels", "host gap %",
        "gaps in graph %",
    ]  # fmt: skip
    return markdown(header, rows) + "\n\n" + state_text(found.state)


def _passes(context: int, p: Passes) -> str:
    rows = []
    for arm in p.found.samples:
        if arm == "read KV":
            continue
        us, weights = p.found[arm], arm.split()[0]
        size = p.nbytes.get(weights)
        key = (weights, int(arm.split()[1])) if size else None
        attention = p.attention.get(key) if key else None
        of_read = p.attention_of_read(*key) if key and attention else None
        rate = size / us.median / 1e3 if size else None
        rows.append([arm, us.median, us.mad, rate, attention, of_read])
    header = [f"a pass at {context}", "µs", "±", "GB/s", "attention µs", "attention of read"]
    return markdown(header, rows) + "\n\n" + state_text(p.found.state)


def _prompts(r: Results) -> str:
    rows = [
        [f"{n} tokens", arm, found[arm].median / 1e3, found[arm].mad / 1e3, str(found.ratio(arm, "torch"))]
        for n, found in r.prompts.items()
        for arm in found.samples
    ]
    return markdown([f"{r.model}, prompt", "arm", "ms", "±", "it / torch"], rows)


def profile_table(name: str, busy: Busy) -> str:
    rows = [[kernel[:70], us, 100 * us / busy.total] for kernel, us in list(busy.by_name.items())[:TOP]]
    idle = {
        "of them, heads": busy.head,
        "idle within a graph": busy.graph_gap,
        "idle between launches": busy.host_gap,
    }
    rows += [[what, us, 100 * us / busy.total] for what, us in {"all kernels": busy.total, **idle}.items()]
    return markdown([f"longest kernels of {name}", "µs a step", "% of kernels"], rows)


def graph_table(name: str, graphs: Sequence[Busy]) -> str:
    """``graphs`` of a step in their order; that of the target comes last."""
    known = ("context", "draft", "target")[-len(graphs) :]
    names = known if len(known) == len(graphs) else [str(i + 1) for i in range(len(graphs))]
    rows = [[n, g.total, g.total - g.head, g.head] for n, g in zip(names, graphs, strict=True)]
    return markdown([f"graphs of {name}", "kernels µs", "layers and others µs", "head µs"], rows)


def bars(r: Results) -> list[Check]:
    """Those that what was measured has a say in."""
    checks = []
    if r.decoding:
        have = r.decoding.samples
        for what, over, under, bar in (
            ("torch AR / AR bf16", "torch", "ar-bf16", 1.0),
            ("torch AR / AR bf16 with the faster linears", "torch", "ar-best", 1.0),
            ("torch AR / AR w12", "torch", "ar-w12", 1.22),
            ("AR bf16 / AR w12", "ar-bf16", "ar-w12", 1.15),
        ):
            if over in have and under in have:
                checks.append(Check(f"{what} at {r.context}", r.decoding.ratio(over, under).median, low=bar))
        for arm in have:
            if arm == "torch" or not r.profiled:
                continue
            b = r.profiles.get(arm)
            kernels, idle = (
                (r.decoding[arm].median / b.total, 100 * b.host_gap / b.span) if b else [math.nan] * 2
            )
            checks.append(Check(f"{arm}: step / sum of its kernels", kernels, high=1.15))
            checks.append(Check(f"{arm}: host gap, % of a step", idle, high=5))
    for context, p in r.passes.items():
        for w, m in p.attention:
            if context >= 8192 and m in (1, 64):
                what = f"{w}, {m} rows at {context}: attention's share of the read ceiling"
                checks.append(Check(what, p.attention_of_read(w, m), low=0.7))
    for n, found in r.prompts.items():
        for arm in found.samples:
            if arm != "torch":
                what = f"{arm}: prompt of {n} tokens / torch"
                checks.append(Check(what, found.ratio(arm, "torch").median, high=2))
    return checks
