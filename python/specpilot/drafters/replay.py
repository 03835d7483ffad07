"""A drafter whose acceptance is fixed in advance, for timing models of full size whose published drafters are not at hand.

The law. A log of a trained drafter holds, for drafts of several generations, the margins m_1 … m_n (in logits, over the runner-up)
of the slots of a block and how many drafts the target accepted. With a and b fitted to those pairs, and one factor s,

    P(draft k is accepted | all before it were, m) = sigmoid(a + b · min(s · m_k, 8))

and s is the number at which the mean over generations of the mean over their drafts of

    1 + sum over k of the product over i ≤ k of P_i          (tokens of a pass, the bonus token included)

is the τ that was asked for. A request is given one logged generation, each anchor position one of its drafts: so difficulty varies
from request to request and from step to step as it was logged. As many requests as there are generations, or a multiple, get each
equally often; of fewer, easy and hard ones come in turns, and their τ is only near the one asked for. The step's margins are s · m,
and how many drafts are accepted is drawn from the law: a policy sees margins that are calibrated, and never the outcome. Draws of
different positions are independent.

In an engine, one-token decoding first says which tokens follow the prompt. ``Replay`` then proposes those up to the drawn count
and a wrong one after it, at the price of a drafter that runs in full: of that drafter, only what it proposes is replaced. So the
target verifies real rows, every pass accepts exactly what was drawn, and a chain still has to equal one-token decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import ops
from .base import Drafter, Memory

_LARGEST = 8.0  # a clearer preference says no more
_SCALES = (2.0**-10, 2.0**10)
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class DraftLog:
    """What a trained drafter did: ``margins`` fp32 [generations, drafts, slots], ``accepted`` int [generations, drafts]."""

    margins: NDArray[np.float32]
    accepted: NDArray[np.int64]

    @property
    def tau(self) -> float:
        """Tokens of a pass, the mean of the generations' means."""
        return 1 + float(self.accepted.mean())

    def first(self, slots: int) -> DraftLog:
        """The same drafter with a shorter block."""
        return DraftLog(self.margins[:, :, :slots], np.minimum(self.accepted, slots))

    def fit(self) -> tuple[float, float]:
        """a and b of the law, by logistic regression (Newton's method) over all slots up to the first that was refused."""
        slot = np.arange(self.margins.shape[2])
        seen = slot <= self.accepted[:, :, None]
        x = np.minimum(self.margins[seen], _LARGEST).astype(np.float64)
        y = np.broadcast_to(slot < self.accepted[:, :, None], seen.shape)[seen]
        features, weights = np.stack([np.ones_like(x), x], 1), np.zeros(2)
        for _ in range(20):
            chance = 1 / (1 + np.exp(-features @ weights))
            curvature = features.T @ (features * (chance * (1 - chance))[:, None])
            weights += np.linalg.solve(curvature, features.T @ (y - chance))
        return float(weights[0]), float(weights[1])


@dataclass(frozen=True)
class SurvivalLaw:
    """The law of this file for one τ: ``margins``, scaled, and the ``chances`` that follow, both [generations, drafts, slots]."""

    margins: NDArray[np.float32]
    chances: NDArray[np.float64]

    @property
    def tau(self) -> float:
        return 1 + float(self.chances.cumprod(2).sum(2).mean())

    @classmethod
    def of(cls, log: DraftLog, tau: float) -> SurvivalLaw:
        """``tau``: tokens of a pass of a whole block; raises ValueError where no s gives it."""
        a, b = log.fit()

        def at(scale: float) -> SurvivalLaw:
            margins = scale * log.margins
            return cls(margins, 1 / (1 + np.exp(-a - b * np.minimum(margins, _LARGEST))))

        low, high = _SCALES
        if not at(low).tau < tau < at(high).tau:
            raise ValueError(
                f"replay: τ {tau} is not between {at(low).tau:.2f} and {at(high).tau:.2f}, which this log's law can give"
            )
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if at(middle).tau < tau else (low, middle)
        return at(low)

    def draw(self, request: int, anchors: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """How many drafts are right after each of so many anchors, and the margins [anchors, slots] of all drafts there."""
        generations, drafts, slots = self.margins.shape
        turns = (
            0.5 + _GOLDEN * np.arange(generations)
        ) % 1  # the first few are spread evenly, whatever their number
        by_ease = self.chances.cumprod(2).sum(2).mean(1).argsort()
        generation = by_ease[turns.argsort().argsort()[request % generations]]
        random = np.random.default_rng((seed, request))
        which = random.integers(drafts, size=anchors)
        right = random.random((anchors, slots)) < self.chances[generation, which]
        return right.cumprod(1).sum(1), self.margins[generation, which]


class Replay(Drafter):
    """``inner`` at work, and drafts by ``law`` in the place of its own; the block has one row more than the law has slots.

    ``follow`` comes before each request.
    """

    def __init__(self, inner: Drafter, law: SurvivalLaw, seed: int = 0) -> None:
        slots = law.margins.shape[2]
        if slots != inner.block_size - 1:
            raise ValueError(
                f"replay: a law of {slots} slots for a drafter that proposes {inner.block_size - 1}: use DraftLog.first"
            )
        self.inner, self.law, self._seed = inner, law, seed
        self.block_size, self.tap_layers = inner.block_size, inner.tap_layers
        self.drawn = np.zeros(0, dtype=np.int64)  # by anchor position: how many drafts are right there

    def follow(self, prompt: Sequence[int], continuation: Sequence[int], request: int) -> None:
        """The next request continues ``prompt`` with these tokens, which are the target's own; ``request`` numbers the draw."""
        text = np.array([*prompt, *continuation])
        slots, room = self.block_size - 1, self._room
        if len(text) > room:
            raise ValueError(
                f"replay: {len(text)} tokens of prompt and continuation, expected {room} at most"
            )
        anchors = len(text) - len(prompt)
        drawn, margins = self.law.draw(request, anchors, self._seed)
        self.drawn = np.zeros(room, dtype=np.int64)
        ids = np.zeros((len(self._ids), slots), dtype=np.int32)
        for i, right in enumerate(drawn.tolist()):
            start = len(prompt) + i
            row = text[start + 1 : start + 1 + slots]
            ids[start, : len(row)] = np.where(
                np.arange(len(row)) < right, row, row == 0
            )  # wrong: 0, or 1 for 0
            self.drawn[start] = min(right, len(row))
        self._ids.copy_(torch.from_numpy(ids))
        self._margins[len(prompt) : len(text)].copy_(torch.from_numpy(margins))

    def allocate(self, memory: Memory) -> None:
        self.inner.allocate(memory)
        self.rows = self.inner.rows
        on, slots = self.rows.block.positions.device, self.block_size - 1
        self._room = memory.max_context
        positions = self._room + self.block_size  # a step after the last token finds a row too
        self._ids = torch.zeros(positions, slots, dtype=torch.int32, device=on)
        self._margins = torch.zeros(positions, slots, device=on)
        self._own_ids, self._own_margins = torch.zeros_like(self._ids[0]), torch.zeros_like(self._margins[0])

    def place_context(self, start: int, n: int) -> None:
        self.inner.place_context(start, n)

    def extend(self, taps: Tensor, n: int) -> None:
        self.inner.extend(taps, n)

    def place_block(self, start: int, anchor: int) -> None:
        self.inner.place_block(start, anchor)

    def draft(self, ids: Tensor, margins: Tensor) -> None:
        n, anchor = ids.shape[0], self.rows.block.positions[:1]
        self.inner.draft(self._own_ids[:n], self._own_margins[:n])
        for table, out in ((self._ids, ids), (self._margins, margins)):
            _copy_row(table[:, :n], anchor, out)

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes


def _copy_row(table: Tensor, index: Tensor, out: Tensor) -> None:
    """out = table[index[0]], four bytes an element: as pairs of the elements that ``gather_rows`` moves."""
    ops.gather_rows(table.view(torch.bfloat16), index, out.view(torch.bfloat16)[None])
