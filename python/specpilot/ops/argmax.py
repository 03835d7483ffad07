"""The most likely token of each row, and by how much; contract in csrc/ops/argmax/argmax.h."""

from .. import _C
from .._op import op

argmax = op(
    "argmax(Tensor logits, int valid_vocab, Tensor(a!) ids, Tensor(b!)? margin=None) -> ()", _C.argmax
)
argmax.__doc__ = """``ids[r]`` = the lowest id of the largest of ``logits[r, :valid_vocab]``; NaN is below
every number. ``margin[r]``, where wanted, = that logit minus the largest other one: 0 in a tie, infinite where there is no
other number.

logits: bf16 ``[R, V]``, unit column stride, any row stride. ids: int32 ``[R]``. margin: fp32 ``[R]``. ``1 <= valid_vocab <= V``.
Raises ``KernelError`` for another dtype, shape, device or range.
"""
