"""y = x · Wᵀ (+ bias) (+ residual) with 8-bit weights and activations, for drafters; contract in csrc/ops/linear_q8/linear_q8.h."""

from .. import _C
from .._op import op

linear_q8 = op(
    "linear_q8(Tensor x, Tensor data, Tensor scale, Tensor? bias, Tensor? residual, Tensor(a!) y) -> ()",
    _C.linear_q8,
)
linear_q8.__doc__ = """Each row of ``x`` is rounded to 255 levels; integers are multiplied and summed exactly.

x: bf16 ``[R, K]``, R <= 1024, K <= 65536. data, scale: ``Q8Weight.args``. bias: bf16 ``[N]``. residual: bf16 ``[R, N]``, may
be y itself. y: bf16 ``[R, N]``. Any row stride. A row of x with an infinity or NaN gives a row of NaN.
Raises ``KernelError`` for another dtype, shape or device.
"""
