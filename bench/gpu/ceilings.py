"""How fast bytes can be moved on this GPU, by how many: measured curves that ops are held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from read_ceiling import copier, reader
from timing import DISTINCT, Measured, Recorded, copies_of, load_of, measure

MAKERS = {"read": reader, "copy": copier}
PLACES = ("memory", "cache")  # rotated past the L2, or the same buffer every time
SIZES = [1 << n for n in range(12, 31, 2)]  # bytes moved by a call
CACHED = 24 << 20  # more than this does not stay in every L2 that we know


@dataclass(frozen=True)
class Curve:
    """µs of moving so many bytes in one call of a graph."""

    nbytes: Sequence[float]
    us: Sequence[float]

    def at(self, nbytes: float) -> float:
        """Between measured sizes along the powers; beyond them at the speed of the largest, never less than the smallest."""
        if nbytes >= self.nbytes[-1]:
            return self.us[-1] * nbytes / self.nbytes[-1]
        return float(np.exp(np.interp(np.log(nbytes), np.log(self.nbytes), np.log(self.us))))


Ceilings = Mapping[tuple[str, str], Curve]  # by kind and place


def measure_ceilings(
    epochs: int, device: str, sizes: Sequence[int] = SIZES
) -> tuple[Ceilings, Mapping[str, str]]:
    """All curves, and the state of the GPU under the last of them. Small sizes are measured in the cache alone: a graph of them
    would not outgrow it."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    found = Measured({}, {})
    for size in sizes:
        buffers = [torch.randint(256, (size,), dtype=torch.uint8, device=device)]
        buffers += [buffers[0].clone() for _ in range(copies_of(size, device) - 1)]
        arms: dict[tuple[str, str], Recorded] = {}
        if device != "cuda" or size * len(buffers) >= DISTINCT:
            arms |= {(kind, "memory"): make(buffers, device) for kind, make in MAKERS.items()}
        if size <= CACHED:
            arms |= {(kind, "cache"): make(buffers[:1], device) for kind, make in MAKERS.items()}
        samples = {" ".join(key): recorded.us for key, recorded in arms.items()}
        found = measure(samples, epochs, load_of(next(iter(arms.values())), device))
        for key in arms:
            points.setdefault(key, []).append((size, found[" ".join(key)].median))
    curves = {key: Curve(*zip(*values, strict=True)) for key, values in points.items()}
    return curves, found.state


def records(ceilings: Ceilings) -> Iterator[dict[str, Any]]:
    for (kind, place), curve in ceilings.items():
        yield {"ceiling": kind, "place": place, "nbytes": list(curve.nbytes), "us": list(curve.us)}


def from_records(lines: Sequence[Mapping[str, Any]]) -> Ceilings:
    """What ``records`` gave, out of all lines of a file."""
    return {(r["ceiling"], r["place"]): Curve(r["nbytes"], r["us"]) for r in lines if "ceiling" in r}
