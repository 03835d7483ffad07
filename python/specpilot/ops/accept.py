"""Which drafts the target agrees with; contract in csrc/ops/accept/accept.h."""

from .. import _C
from .._op import op

accept = op(
    "accept(Tensor cu_rows, Tensor tokens, Tensor parents, Tensor choice, Tensor(a!) path, "
    "Tensor(b!) emitted, Tensor(c!) length) -> ()",
    _C.accept,
)
accept.__doc__ = """Walks each request's draft tree along the target's choices; a chain has ``parents = -1,
0, 1, …``.

All int32 and contiguous. cu_rows ``[B + 1]``; tokens, parents, choice ``[R]``; path, emitted ``[B, P]``;
length ``[B]``. ``path[b, :length[b]]`` are the accepted rows, the anchor first; ``emitted`` the tokens
after each, so the accepted drafts and then the bonus token. The rest of a row of path and emitted is -1. A
request without rows gets length 0.
Raises ``KernelError`` for another dtype, shape or device, and, on the CPU, before anything is written for row offsets
that fall or leave R, and for a parent that does not precede its child (-1 is for the first row of a request
only).
"""
