"""Copies chosen rows; contract in csrc/ops/gather_rows/gather_rows.h."""

from .. import _C
from .._op import op

gather_rows = op("gather_rows(Tensor x, Tensor? index, Tensor(a!) out) -> ()", _C.gather_rows)
gather_rows.__doc__ = """``out[i] = x[index[i]]``, zeros where the index is -1; ``out[i] = x[i]`` without an
index.

x: bf16 ``[R, C]``, out: bf16 ``[n, C]``: unit column stride, any row stride (a column slice of a wider
buffer), not overlapping. index: int32 ``[n]`` or None (then n = R).
Raises ``KernelError`` for another dtype, shape or device, and, on the CPU, before anything is written for an index
outside -1 … R - 1.
"""
