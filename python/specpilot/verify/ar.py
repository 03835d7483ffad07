"""One token a step: what every other mode must equal."""

from __future__ import annotations

from time import perf_counter

import torch

from .. import ops
from ..cost import StepTime
from .base import Narrow, Parts, Verifier


class AR(Verifier):
    max_width = 1

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        p = parts
        choice = torch.zeros(1, dtype=torch.int32)
        self._choice = choice.numpy()
        with ops.capture() as self._graph:
            p.target.forward(p.rows, 1, p.kv, p.work)
            p.target.logits(p.work, 1)
            ops.argmax(p.work.logits[:1], p.vocab, choice)

    def step(self, anchor: int, start: int, width: int, narrow: Narrow | None = None) -> list[int]:
        begin = perf_counter()
        self._parts.rows.put([anchor])
        self._parts.rows.chain(start, 1)
        self._graph.run()
        self.time = StepTime(0.0, perf_counter() - begin)
        return [int(self._choice[0])]
