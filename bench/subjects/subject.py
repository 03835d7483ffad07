"""A target and its drafter as sources of tensors, and the engine that they make."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specpilot import Engine
from specpilot.drafters import Drafter, TargetParts
from specpilot.drafters.dflash import DFlashDraftModel
from specpilot.drafters.dflash_config import DFlashConfig
from specpilot.formats.q8_weight import DrafterFormat
from specpilot.formats.run_layout import Format
from specpilot.loading import TensorSource
from specpilot.models import MODELS, ModelConfig


@dataclass(frozen=True)
class Subject:
    """``drafter`` and ``draft_config`` are both there or both None; so is a tokenizer only where text means something."""

    config: ModelConfig
    target: TensorSource
    draft_config: DFlashConfig | None = None
    drafter: TensorSource | None = None
    tokenizer: Any = None
    stop_ids: Sequence[int] = ()


def engine(
    subject: Subject,
    *,
    max_context: int,
    weights: Format = "w12",
    drafter_weights: DrafterFormat = "q8",
    wrap: Callable[[DFlashDraftModel], Drafter] | None = None,
) -> Engine:
    """Loads a subject. ``wrap`` puts another drafter around its own, such as one with fixed acceptance."""
    config, draft_config, drafter = subject.config, subject.draft_config, None
    margin = draft_config.block_size if draft_config else 1
    target = MODELS[config.architecture](config, subject.target, weights, max_context + margin)
    if draft_config is not None and subject.drafter is not None:
        parts = TargetParts(
            source=subject.target.source,
            architecture=config.architecture,
            hidden=config.hidden_size,
            layers=config.num_layers,
            vocab=config.vocab_size,
            embedding=target.embedding,
            head=target.head,
        )
        drafter = DFlashDraftModel(draft_config, subject.drafter, parts, drafter_weights)
    return Engine(
        target,
        wrap(drafter) if wrap and drafter else drafter,
        subject.tokenizer,
        max_context=max_context,
        stop_ids=subject.stop_ids,
    )


def generator_of(name: str, seed: int, device: torch.device) -> torch.Generator:
    """Random numbers of one tensor: the same in whatever order tensors are asked for."""
    return torch.Generator(device).manual_seed(seed << 32 | zlib.crc32(name.encode()))
