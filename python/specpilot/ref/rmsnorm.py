"""Oracles of rmsnorm: its value in float64, and an independent model of its order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def rmsnorm(x: Tensor, weight: Tensor, eps: float, denom: float) -> Tensor:
    """x bf16 [R, H], weight bf16 [H] → bf16 [R, H]: float64 inside, rounded where the contract says."""
    wide = x.double()
    normed = wide / (wide.square().sum(-1, keepdim=True) / denom + eps).sqrt()
    return (normed.bfloat16().double() * weight.double()).bfloat16()


def rmsnorm_lanes16(x: Tensor, weight: Tensor, eps: float, denom: float) -> Tensor:
    """The same by the order of the contract, bit for bit, for data whose intermediates are normal numbers.

    The fp32 fma of a square is modelled in float64: a square of a bf16 has 16 bits, so the sum is exact there
    or the square is too small to matter.
    """
    squares = torch.nn.functional.pad(x.double(), (0, -x.shape[1] % 16)).square().unflatten(1, (-1, 16))
    lanes = torch.zeros(x.shape[0], 16)
    for step in range(squares.shape[1]):
        lanes = (squares[:, step] + lanes.double()).float()
    while lanes.shape[1] > 1:
        low, high = lanes.chunk(2, dim=1)
        lanes = low + high
    # numpy's fp32 division and square root are IEEE's; torch's may be those of a math library
    mean = lanes.numpy() / np.float32(denom) + np.float32(eps)
    inverse = torch.from_numpy(np.float32(1) / np.sqrt(mean))
    return (x.float() * inverse).bfloat16() * weight
