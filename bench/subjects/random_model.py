"""Full-size targets and drafters out of random weights with the exponents of trained ones: for step times, not for text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from specpilot.drafters.dflash_config import DFlashConfig
from specpilot.models import ModelConfig

from .exponents import random_weight
from .shapes import TARGETS, drafter_config, drafter_tensors, target_tensors
from .subject import Subject, generator_of


class RandomSource:
    """Tensors made when they are asked for, the same each time: matrices by ``exponents.LAW``, norms of one."""

    def __init__(
        self, source: str, shapes: Mapping[str, tuple[int, ...]], device: torch.device, seed: int
    ) -> None:
        self.source, self._shapes, self._device, self._seed = source, shapes, device, seed

    def names(self) -> list[str]:
        return list(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def tensor(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if len(shape) == 1:
            return torch.ones(shape, dtype=torch.bfloat16, device=self._device)
        return random_weight(shape, generator_of(name, self._seed, self._device))


def random_subject(
    name: str,
    device: str | torch.device = "cpu",
    seed: int = 0,
    layers: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Subject:
    """The shape ``name`` (``shapes.TARGETS``) with its DFlash drafter's.

    ``layers``: so many target layers instead of all. ``changes``: other values in the target's config, which the drafter follows;
    ``shapes.TINY`` fits a test. Tensors are made on ``device``.
    """
    if name not in TARGETS:
        raise ValueError(f"random_subject: no shape {name!r}; known: {', '.join(TARGETS)}")
    config = {**TARGETS[name], **(changes or {})}
    if layers is not None:
        config["num_hidden_layers"] = layers
    source, device = f"random {name}", torch.device(device)
    target = ModelConfig.from_dict(config)
    drafter = DFlashConfig.from_dict(drafter_config(name, config), f"{source} drafter")
    return Subject(
        target,
        RandomSource(source, target_tensors(target), device, seed),
        drafter,
        RandomSource(f"{source} drafter", drafter_tensors(drafter), device, seed + 1),
    )
