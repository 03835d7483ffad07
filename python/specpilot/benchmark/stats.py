"""Medians, their spread, and ratios of paired measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Spread:
    """A median and the median absolute deviation from it."""

    median: float
    mad: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        median = float(np.median(values))
        return cls(median, float(np.median(np.abs(np.asarray(values) - median))))


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios and its 95 % bootstrap interval over the pairs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        values = np.asarray(ratios)
        picks = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
        low, high = np.quantile(np.median(values[picks], axis=1), [0.025, 0.975])
        return cls(float(np.median(values)), float(low), float(high))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"
