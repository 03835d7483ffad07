"""The gated activation of the MLP; contract in csrc/ops/swiglu/swiglu.h."""

from .. import _C
from .._op import op

swiglu = op("swiglu(Tensor gate_up, Tensor(a!) y) -> ()", _C.swiglu)
swiglu.__doc__ = """``y[r] = silu(gate_up[r, :I]) * gate_up[r, I:]``, silu rounded to bf16 before the
product.

gate_up: bf16 ``[R, 2 I]``, y: bf16 ``[R, I]``: unit column stride, any row stride, not overlapping.
Raises ``KernelError`` for another dtype, shape or device.
"""
