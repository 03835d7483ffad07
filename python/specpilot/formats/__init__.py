"""Checkpoints on disk (safetensors, w12, GGUF) and weights in memory (run layout)."""

from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError

__all__ = ["Checkpoint", "CheckpointError", "open_checkpoint"]
