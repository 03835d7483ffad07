"""The inputs of the next pass from what the last one accepted; contract in csrc/ops/advance/advance.h."""

from .. import _C
from .._op import op

advance = op(
    "advance(Tensor(a!) state, Tensor emitted, Tensor length, Tensor? margins, Tensor stop_ids, Tensor slot_table, "
    "Tensor(b!) chain, Tensor(c!)? block, Tensor(d!)? causal, Tensor(e!)? context, Tensor(f!) ring) -> ()",
    _C.advance,
)
advance.__doc__ = """Moves each request on by the tokens it emitted, up to a stop token or its limit, and reports them.

All int32 unless said otherwise. state ``[B, 4]`` {start, left, done, step}, updated; emitted ``[B, P]``, length ``[B]`` from
``accept``; margins fp32 ``[B, P - 1]`` or None; stop_ids ``[S]``; slot_table ``[B, L]``. Row sets ``[5, B, any]``, planes {ids,
positions, slots, request, prefix}: chain (the next pass), and each or None: block, causal (the drafter's), context (what the
drafter takes in of this pass, tap row by tap row). ring ``[N, B, 2 P + 1]``: entry ``step % N`` becomes {tokens, done, the tokens,
the margins' bits}. Rows that are to write no K and V have slot -1, which is all rows of a request that is done.
Raises ``KernelError`` for another dtype, shape or device, and, on the CPU, before anything is written for a start outside of
the slot table, a negative left or step, a length outside of 0 … P.
"""
