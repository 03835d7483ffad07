"""How drafts become emitted tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cost import StepTime
from ..drafters import Drafter
from ..layers import Taps


class StepRows(Protocol):
    """Inputs of a verify pass (engine/rows.py)."""

    ids: Tensor
    slot_table: Tensor

    def part(self, first: int, n: int) -> Tensor: ...

    def put(self, ids: Sequence[int]) -> None: ...

    def chain(self, start: int, n: int) -> None: ...


class StepWork(Protocol):
    """Where a target leaves its logits."""

    logits: Tensor


class StepTarget(Protocol):
    """The two halves of a target pass (models/base.py)."""

    @property
    def device(self) -> torch.device: ...

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
NO_MARGINS: NDArray[np.float32] = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Step:
    """What came of a step.

    ``tokens``    those that follow the anchor; at most one a row
    ``drafted``   rows it drafted for, ``verified`` rows of its pass
    ``margins``   of the drafts, fp32 [drafted - 1]
    ``steady``    nothing in it was done for the first time, so its time tells what the next one takes
    ``ended``     the tokens end at a stop token or the limit, whatever else was accepted
    """

    tokens: list[int]
    drafted: int
    verified: int
    time: StepTime
    margins: NDArray[np.float32] = field(default_factory=lambda: NO_MARGINS)
    steady: bool = True
    ended: bool = False


class Verifier(ABC):
    """Emits the tokens that one-token decoding would emit, one step at a time.

    Steps are launched, and collected in the same order. Before the next launch, no more than ``lag`` of them may be left.
    """

    max_width: int  # rows of a verify pass at most
    drafter: Drafter | None = None  # whose context must follow the request
    lag = 0  # steps that may be under way while another is launched
    ends_itself = False  # a step emits nothing beyond the limit, however wide it is

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @abstractmethod
    def begin(self, anchor: int, start: int, left: int, stop_ids: Collection[int]) -> None:
        """A request continues the token ``anchor`` at position ``start``: all before has been through the target, and its taps
        through the drafter. It ends after ``left`` more tokens, or one of ``stop_ids``; what is known to come after that may be
        left out of the steps' tokens. Steps of the request before that were not collected are forgotten."""

    @property
    @abstractmethod
    def under_way(self) -> int:
        """Steps launched and not collected."""

    @abstractmethod
    def launch(self, width: int, narrow: Narrow | None = None) -> None:
        """Drafts for ``width`` rows, the anchor first, and verifies as many of them as ``narrow`` says (None: all)."""

    @abstractmethod
    def collect(self) -> Step:
        """The oldest step that was launched and not collected."""

    def seconds(self, width: int) -> StepTime:
        """Times of one step of this width in an empty context, for the width policy; not within a request."""
        self.begin(0, 0, 1, ())
        return self._sample(width)

    def _sample(self, width: int) -> StepTime:
        self.launch(width)
        return self.collect().time
