"""q/k norm, rotary embedding and the write of K and V; contract in csrc/ops/rope_kv/rope_kv.h."""

from .. import _C
from .._op import op

rope_kv = op(
    "rope_kv(Tensor qkv, Tensor cos, Tensor sin, Tensor positions, Tensor slots, "
    "Tensor? q_norm, Tensor? k_norm, float eps, float norm_denom, int dim, "
    "Tensor(a!) q_out, Tensor(b!) k_cache, Tensor(c!) v_cache) -> ()",
    _C.rope_kv,
)
rope_kv.__doc__ = """Norms and rotates q and k, writes K and V to their cache slots.

qkv: bf16 ``[R, (Hq + 2 Hkv) * dim]``, q heads, then k heads, then v heads (Hq may be 0), any row stride.
cos, sin: bf16 ``[P, dim / 2]``, one row a position. positions, slots: int32 ``[R]``; slot -1 writes no K
and V. q_norm, k_norm: bf16 ``[dim]``, both or neither, used with ``eps`` and ``norm_denom`` (usually dim).
Written: q_out bf16 ``[R, Hq, Dp]`` with Dp = dim rounded up to 32, k_cache bf16 ``[blocks, Hkv, 2, Dp / 2,
32]``, v_cache bf16 ``[blocks, Hkv, 16, 2 Dp]``; their padding dims as zero.
Raises ``KernelError`` for another dtype, shape or device, and, on the CPU, before anything is written for a position
without a row of cos or a slot that is out of range or given twice.
"""
