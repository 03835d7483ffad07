"""Attention of ragged rows over the paged cache; contract in csrc/ops/attention/attention.h."""

from .. import _C
from .._op import op

attention = op(
    "attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor slot_table, Tensor request, Tensor prefix, "
    "Tensor? tail_begin, Tensor? tail_slots, float scale, int dim, Tensor(a!) out) -> ()",
    _C.attention,
)
attention.__doc__ = """``out = softmax(scale * q Kᵀ) V`` over what each row sees.

q: bf16 ``[R, Hq, Dp]`` and the caches as ``rope_kv`` writes them, Hq a multiple of Hkv. Row r belongs to
``request[r]`` and sees positions 0 to ``prefix[r]`` of that row of slot_table, then the slots
``tail_slots[tail_begin[r] : tail_begin[r + 1]]`` at the positions after them. slot_table: int32 ``[B, L]``;
request, prefix: int32 ``[R]``; tail_begin: int32 ``[R + 1]`` and tail_slots: int32 ``[T]``, both or neither.
Written: out bf16 ``[R, Hq * dim]``, any row stride; zero for a row that sees nothing.
Raises ``KernelError`` for another dtype, shape or device, and before anything is written for a request,
prefix, tail offset or visible slot out of range. Table entries past every prefix are not looked at.
"""
