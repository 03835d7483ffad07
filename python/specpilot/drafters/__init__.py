"""Drafters, by the name of their architecture in config.json."""

from __future__ import annotations

from collections.abc import Callable

from ..registry import Registry
from .base import Drafter, Memory, TargetParts

__all__ = ["DRAFTERS", "Drafter", "Memory", "TargetParts"]

DRAFTERS: Registry[Callable[..., Drafter]] = Registry("drafter architecture")
DRAFTERS.add("DFlashDraftModel", "specpilot.drafters.dflash:DFlashDraftModel")
