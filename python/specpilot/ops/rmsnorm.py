"""Root mean square norm of rows; contract in csrc/ops/rmsnorm/rmsnorm.h."""

from .. import _C
from .._op import op

rmsnorm = op("rmsnorm(Tensor x, Tensor weight, float eps, float denom, Tensor(a!) y) -> ()", _C.rmsnorm)
rmsnorm.__doc__ = """``y[r] = x[r] / sqrt(sum(x[r]²) / denom + eps) * weight``, rounded to bf16 after each
of the two products.

x, y: bf16 ``[R, H]``, unit column stride, any row stride; y may be x. weight: bf16 ``[H]``. ``denom`` is
usually H.
Raises ``KernelError`` for another dtype, shape or device, ``denom <= 0`` or ``eps < 0``.
"""
