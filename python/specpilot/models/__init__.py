"""Targets: one architecture a file, registered by its Hugging Face name."""

from __future__ import annotations

from collections.abc import Callable

from ..registry import Registry
from .base import Target, Work
from .config import ModelConfig, rope_tables

__all__ = ["MODELS", "ModelConfig", "Target", "Work", "rope_tables"]

MODELS: Registry[Callable[..., Target]] = Registry("architecture")
MODELS.add("LlamaForCausalLM", "specpilot.models.llama:Llama")
MODELS.add("Qwen3ForCausalLM", "specpilot.models.qwen3:Qwen3")
