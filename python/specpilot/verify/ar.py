"""One token a step: what every other mode must equal."""

from __future__ import annotations

from time import perf_counter

import torch

from .. import ops
from ..cost import StepTime
from ..mirror import Mirror
from .base import Narrow, Parts, Step
from .host_driven import HostDriven


class AR(HostDriven):
    max_width = 1

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._choice = Mirror(torch.zeros(1, dtype=torch.int32, device=parts.target.device))

    def _run(self, anchor: int, start: int, width: int, narrow: Narrow | None) -> Step:
        begin = perf_counter()
        self._parts.rows.put([anchor])
        self._parts.rows.chain(start, 1)
        self._graphs.run("verify", self._calls)
        tokens = self._choice.read().tolist()
        return Step(tokens, 1, 1, StepTime(0.0, perf_counter() - begin))

    def _calls(self) -> None:
        p = self._parts
        p.target.forward(p.rows, 1, p.kv, p.work)
        p.target.logits(p.work, 1)
        ops.argmax(p.work.logits[:1], p.vocab, self._choice.tensor)
