"""Moves entries of the KV cache; contract in csrc/ops/kv_move/kv_move.h."""

from .. import _C
from .._op import op

kv_move = op(
    "kv_move(Tensor from_slots, Tensor to_slots, Tensor(a!) k_cache, Tensor(b!) v_cache) -> ()",
    _C.kv_move,
)
kv_move.__doc__ = """Copies slot ``from_slots[i]`` to slot ``to_slots[i]`` in all layers at once, as if all
were read before any is written.

from_slots, to_slots: int32 ``[n]``; -1 in either skips the pair. k_cache: bf16 ``[layers, blocks, Hkv, 2,
Dp / 2, 32]``, v_cache: bf16 ``[layers, blocks, Hkv, 16, 2 Dp]``, contiguous.
Raises ``KernelError`` for another dtype, shape or device, and, on the CPU, before anything is written for a slot out of
range or one that ``to_slots`` holds twice.
"""
