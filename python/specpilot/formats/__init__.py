"""Checkpoints on disk (safetensors, w12, GGUF) and weights in memory (run layout)."""

from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError
from .run_layout import RunWeight, run_weight

__all__ = ["Checkpoint", "CheckpointError", "RunWeight", "open_checkpoint", "run_weight"]
