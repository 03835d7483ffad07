"""What a drafter is to the rest of the house: it proposes the tokens that may follow an anchor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..formats.run_layout import RunWeight
from ..layers import Cache, RowInputs


@dataclass(frozen=True)
class TargetParts:
    """What a drafter may know and share of its target. ``source`` and ``architecture`` are for messages."""

    source: str
    architecture: str
    hidden: int
    layers: int
    vocab: int
    embedding: RunWeight
    head: RunWeight


class BlockRows(RowInputs, Protocol):
    """Inputs of a call over consecutive positions of one request (engine/rows.py)."""

    ids: Tensor

    def put(self, ids: Sequence[int]) -> None: ...

    def place(self, start: int, n: int) -> None: ...

    def chain(self, start: int, n: int) -> None: ...

    def block(self, start: int, n: int) -> None: ...


class Memory(Protocol):
    """Where a drafter gets what lasts for the engine's life."""

    max_context: int  # positions that may come to be committed
    context_rows: int  # rows of one ``extend`` at most

    def rows(self, capacity: int) -> BlockRows: ...

    def kv(self, layers: int, kv_heads: int, head_dim: int) -> Cache: ...


@dataclass(frozen=True)
class DraftRows:
    """The rows that a drafter's calls read: those of ``extend``, of ``draft``, and of its causal layers where they differ."""

    context: BlockRows
    block: BlockRows
    causal: BlockRows | None


class Drafter(ABC):
    """Proposes up to ``block_size - 1`` tokens after an anchor, from the target's hidden states before it.

    ``place_…`` set the inputs of one step, or somebody else fills ``rows``; ``extend`` and ``draft`` are op calls on fixed buffers
    only, so they are captured once and replayed. A drafter never decides a token: what it holds may be approximate, and is never
    read by the target.
    """

    block_size: int  # rows of a verify pass at most: the anchor and the drafts
    tap_layers: Sequence[int]  # target layers whose outputs it reads
    rows: DraftRows  # made by ``allocate``

    @abstractmethod
    def allocate(self, memory: Memory) -> None:
        """Makes the buffers; called once, before anything below."""

    @abstractmethod
    def place_context(self, start: int, n: int) -> None:
        """The next ``extend`` is for positions [start, start + n), all of them committed."""

    @abstractmethod
    def extend(self, taps: Tensor, n: int) -> None:
        """Takes in the first n rows of ``taps``, bf16 [rows, taps * hidden]."""

    @abstractmethod
    def place_block(self, start: int, anchor: int) -> None:
        """The next ``draft`` continues the token ``anchor`` at position ``start``; all positions before were extended."""

    @abstractmethod
    def draft(self, ids: Tensor, margins: Tensor) -> None:
        """Writes the proposals for the positions after the anchor into ``ids``, int32 [0 … block_size - 1], and by how many logits
        each was preferred to the runner-up into ``margins``, fp32 of the same length."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory of its own weights."""
