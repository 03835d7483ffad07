"""Oracle of linear_q8: integers in float64, where their sums are exact."""

from __future__ import annotations

import torch
from torch import Tensor


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """bf16 [R, K] → integers as fp32 [R, K], their scales fp32 [R]; a row that is not finite gives zeros and an infinity or NaN."""
    largest = x.float().abs().amax(1)
    usable = largest.isfinite() & (largest >= 2.0**-100)
    factor = torch.tensor(127.0) / largest  # a division: 127 / tensor would multiply by the reciprocal
    q = torch.where(usable[:, None], x.float() * factor[:, None], 0.0).round()
    return q, largest / 127


def linear_q8(
    x: Tensor, w: Tensor, scale: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """x bf16 [R, K], w int8 [N, K], scale fp32 [N] → bf16 [R, N]."""
    q, sx = quantize(x)
    y = (q.double() @ w.double().T).float() * (sx[:, None] * scale)
    y = (y if bias is None else y + bias.float()).bfloat16()
    return y if residual is None else residual + y
