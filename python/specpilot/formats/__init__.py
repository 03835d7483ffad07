"""Checkpoints on disk (safetensors, w12, GGUF) and weights in memory (run layout)."""

from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError
from .q8_weight import Q8Weight, q8_weight
from .run_layout import RunWeight, run_weight

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Q8Weight",
    "RunWeight",
    "open_checkpoint",
    "q8_weight",
    "run_weight",
]
