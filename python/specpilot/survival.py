"""How likely a draft is to be accepted, by how clearly the drafter preferred it: learnt online from what verification says."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Survival:
    """Chance that a draft is right when all before it were: sigmoid(a + b · its margin over the runner-up).

    a and b follow every judged draft by Bayesian logistic regression (an extended Kalman filter whose covariance grows back, so
    that old evidence fades). Slots that no recent draft reached take the mean chance of the slot before them.
    """

    LARGEST = 8.0  # a clearer preference says no more
    MEAN, VARIANCE = (-0.75, 0.87), (1.0, 0.1)  # before any evidence
    FADING = 0.98  # a pass
    RECENT = 128  # drafts that the next one is expected to resemble
    UNSEEN = 0.7

    def __init__(self, drafts: int) -> None:
        self._a, self._b = self.MEAN
        self._aa, self._ab, self._bb = self.VARIANCE[0], 0.0, self.VARIANCE[1]
        self._recent: deque[NDArray[np.float64]] = deque([np.full(drafts, np.nan)], self.RECENT)

    def chances(self, margins: Sequence[float]) -> list[float]:
        """Of each draft, all before it being right."""
        return [1 / (1 + math.exp(-self._a - self._b * min(m, self.LARGEST))) for m in margins]

    def remember(self, margins: Sequence[float]) -> None:
        """The margins of a draft, whether it is verified or not."""
        row = np.full_like(self._recent[-1], np.nan)
        row[: len(margins)] = margins
        self._recent.append(row)

    def tokens(self) -> NDArray[np.float64]:
        """Expected tokens of a pass of 1, 2, … rows after each of the recent drafts: [drafts, rows]."""
        margins = np.stack(self._recent)
        chances = 1 / (1 + np.exp(-self._a - self._b * np.minimum(margins, self.LARGEST)))
        known = ~np.isnan(chances)
        chances[~known] = 0
        means, before = [], self.UNSEEN
        for total, count in zip(chances.sum(0).tolist(), known.sum(0).tolist(), strict=True):
            before = total / count if count else before
            means.append(before)
        alive = np.where(known, chances, means).cumprod(1)
        return 1 + np.concatenate([np.zeros((len(alive), 1)), alive.cumsum(1)], 1)

    def learn(self, margins: Sequence[float], width: int, emitted: int) -> None:
        """A pass of ``width`` rows emitted so many tokens: the drafts before the last of them were right, the next was wrong."""
        if self._aa < self.VARIANCE[0] and self._bb < self.VARIANCE[1]:
            self._aa, self._ab, self._bb = (v / self.FADING for v in (self._aa, self._ab, self._bb))
        for i, margin in enumerate(margins[: min(emitted, width - 1)]):
            x = min(margin, self.LARGEST)
            chance = 1 / (1 + math.exp(-self._a - self._b * x))
            pa, pb = self._aa + self._ab * x, self._ab + self._bb * x  # covariance times (1, x)
            information = chance * (1 - chance)
            scale = 1 / (1 + information * (pa + pb * x))
            error = (i < emitted - 1) - chance
            self._a += pa * error * scale
            self._b = max(0.0, self._b + pb * error * scale)
            scale *= information
            self._aa, self._ab, self._bb = (
                self._aa - pa * pa * scale,
                self._ab - pa * pb * scale,
                self._bb - pb * pb * scale,
            )
