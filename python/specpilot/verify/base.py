"""How drafts become emitted tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..cost import StepTime
from ..drafters import Drafter
from ..layers import Taps


class StepRows(Protocol):
    """Inputs of a verify pass (engine/rows.py)."""

    ids: Tensor

    def put(self, ids: Sequence[int]) -> None: ...

    def chain(self, start: int, n: int) -> None: ...


class StepWork(Protocol):
    """Where a target leaves its logits."""

    logits: Tensor


class StepTarget(Protocol):
    """The two halves of a target pass (models/base.py)."""

    def forward(self, rows: Any, n: int, kv: Any, work: Any, taps: Taps | None = None) -> None: ...

    def logits(self, work: Any, n: int, index: Tensor | None = None) -> None: ...


@dataclass(frozen=True)
class Parts:
    """What a step works on; all of it belongs to the engine. ``taps`` has room for two blocks."""

    target: StepTarget
    vocab: int
    rows: StepRows
    kv: Any
    work: StepWork
    drafter: Drafter | None = None
    taps: Taps | None = None


Narrow = Callable[[NDArray[np.float32]], int]  # WidthPolicy.narrow


class Verifier(ABC):
    """Emits the tokens that one-token decoding would emit, one step at a time.

    ``time`` and ``verified`` (rows) are those of the last step.
    """

    max_width: int  # rows of a verify pass at most
    drafter: Drafter | None = None  # whose context must follow the request
    time = StepTime(0.0, 0.0)
    verified = 1

    def begin(self) -> None:  # noqa: B027 (optional)
        """A request starts: everything before its anchor has been through the target, and its taps through the drafter."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def seconds(self, width: int) -> StepTime:
        """Times of one step of this width in an empty context, for the width policy; not within a request."""
        self.step(0, 0, width)
        self.begin()
        return self.time

    @abstractmethod
    def step(self, anchor: int, start: int, width: int, narrow: Narrow | None = None) -> list[int]:
        """Drafts for ``width`` rows, the anchor at position ``start`` first, verifies as many of them as ``narrow`` says (None:
        all), and gives the tokens that follow the anchor, at least one and at most one a row."""
