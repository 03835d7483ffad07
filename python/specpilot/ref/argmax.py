"""Oracles of argmax."""

from __future__ import annotations

import torch
from torch import Tensor


def argmax(logits: Tensor, valid_vocab: int) -> Tensor:
    """bf16 [R, V] → int32 [R]: NaN never equals the maximum, and a row without a hit gives 0."""
    valid = logits[:, :valid_vocab].double()
    largest = valid.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax(1, keepdim=True)
    return (valid == largest).int().argmax(1).int()


def margin(logits: Tensor, valid_vocab: int) -> Tensor:
    """bf16 [R, V] → fp32 [R]: the two largest numbers' difference; subnormals are 0, as inputs and as results."""
    valid = logits[:, :valid_vocab].double()
    valid = torch.nn.functional.pad(_flush(valid), (0, 1), value=torch.nan)
    number = ~valid.isnan()
    first, second = valid.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).topk(2).values.T
    difference = torch.where(first == second, 0.0, first - second)
    return _flush(difference.masked_fill(number.sum(1) < 2, torch.inf)).float()


def _flush(x: Tensor) -> Tensor:
    return x.masked_fill(x.abs() < torch.finfo(torch.float32).tiny, 0.0)
