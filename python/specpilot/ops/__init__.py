"""One thin call an op; contracts are in csrc/ops/<op>/<op>.h."""

from .accept import accept
from .advance import advance
from .argmax import argmax
from .attention import attention
from .capture import Graph, capture
from .embed import embed
from .gather_rows import gather_rows
from .kv_move import kv_move
from .linear import linear
from .linear_q8 import linear_q8
from .rmsnorm import rmsnorm
from .rope_kv import rope_kv
from .swiglu import swiglu

__all__ = [
    "Graph",
    "accept",
    "advance",
    "argmax",
    "attention",
    "capture",
    "embed",
    "gather_rows",
    "kv_move",
    "linear",
    "linear_q8",
    "rmsnorm",
    "rope_kv",
    "swiglu",
]
