"""What a target is to the rest of the house."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from ..formats.run_layout import RunWeight
from ..layers import Cache, LayerShape, LayerWork, RowInputs, Taps
from .config import ModelConfig


class TargetRows(RowInputs, Protocol):
    """The inputs of a target call: those of its layers, and the token ids."""

    ids: Tensor


class Work(LayerWork):
    """Activations of a target: those of its layers for up to ``rows`` rows, logits of up to ``logit_rows``."""

    def __init__(
        self,
        shape: LayerShape,
        vocab: int,
        rows: int,
        logit_rows: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(shape, rows, device)
        self.final = torch.zeros(logit_rows, shape.hidden, dtype=torch.bfloat16, device=device)
        self.logits = torch.zeros(logit_rows, vocab, dtype=torch.bfloat16, device=device)


class Target(ABC):
    """The model whose tokens are emitted."""

    config: ModelConfig
    shape: LayerShape
    embedding: RunWeight
    head: RunWeight

    @property
    def device(self) -> torch.device:
        """Where its weights lie, and so everything that is made for it."""
        return self.embedding.data.device

    @abstractmethod
    def forward(self, rows: TargetRows, n: int, kv: Cache, work: Work, taps: Taps | None = None) -> None:
        """Embeds ``rows.ids[:n]`` and runs all layers: K and V of the rows are written, ``work.hidden[:n]`` is the last
        residual stream, and the first n rows of ``taps`` are filled."""

    @abstractmethod
    def logits(self, work: Work, n: int, index: Tensor | None = None) -> None:
        """Final norm and head of the first n rows of ``work.hidden``, or of those that ``index`` (int32 [n]) names, into
        ``work.logits[:n]``."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory of the weights."""
