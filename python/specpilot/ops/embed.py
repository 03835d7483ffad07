"""Token embedding out of a weight in the run layout; contract in csrc/ops/embed/embed.h."""

from .. import _C
from .._op import op

embed = op(
    "embed(Tensor ids, Tensor data, Tensor? base, Tensor? exc_begin, Tensor? exc_pos, Tensor? exc_val, "
    "int n, Tensor(a!) out) -> ()",
    _C.embed,
)
embed.__doc__ = """``out[r] = table[ids[r]]``, the table a bf16 or w12 weight ``[n, K]`` as ``linear`` takes
it.

ids: int32 ``[R]``, each 0 … n - 1. out: bf16 ``[R, K]``, unit column stride, any row stride. data …
exc_val: ``RunWeight.args``.
Raises ``KernelError`` for another dtype, shape or device, and, on the CPU, before anything is written for an id out of
range; on CUDA such an id gives a row of NaN.
"""
