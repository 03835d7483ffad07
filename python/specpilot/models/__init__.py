"""Targets: one architecture a file, registered by its Hugging Face name."""

from .config import ModelConfig, rope_tables

__all__ = ["ModelConfig", "rope_tables"]
