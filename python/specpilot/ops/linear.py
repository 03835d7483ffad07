"""y = x · Wᵀ (+ bias) (+ residual); contract in csrc/ops/linear/linear.h."""

from .. import _C
from .._op import op

linear = op(
    "linear(Tensor x, Tensor data, Tensor? base, Tensor? exc_begin, Tensor? exc_pos, Tensor? exc_val, int n, "
    "Tensor? bias, Tensor? residual, Tensor(a!) y) -> ()",
    _C.linear,
)
