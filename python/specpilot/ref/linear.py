"""Oracles of linear: its value in float64, and an independent model of the x86 order."""

from __future__ import annotations

import torch
from torch import Tensor


def _finish(acc: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    y = (acc if bias is None else acc + bias.to(acc.dtype)).to(torch.bfloat16)
    return y if residual is None else residual + y


def linear(x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
    """x [R, K], w [N, K] bf16 → bf16 [R, N], accumulated in float64, rounded where the contract says."""
    return _finish(x.double() @ w.double().T, bias, residual)


def pairs32(x: Tensor, w: Tensor) -> Tensor:
    """x [R, K], w [N, K] bf16 → fp32 [R, N] in the order "x86-pairs32", bit for bit.

    fp32 fma is modelled in float64: the product of two bf16 is exact there, and so is its sum with an fp32 chain value unless their
    exponents are more than 29 apart; tests draw their data accordingly.
    """
    pad = -x.shape[1] % 32
    xd, wd = (torch.nn.functional.pad(t.double(), (0, pad)) for t in (x, w))
    acc = torch.zeros(x.shape[0], w.shape[0])
    for block in range(0, xd.shape[1], 32):
        even, odd = torch.zeros_like(acc), torch.zeros_like(acc)
        for k in range(block, block + 32, 2):
            even = (xd[:, k, None] * wd[None, :, k] + even.double()).float()
            odd = (xd[:, k + 1, None] * wd[None, :, k + 1] + odd.double()).float()
        acc = acc + (even + odd)
    return acc


def linear_pairs32(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """The same as ``linear`` by that order."""
    return _finish(pairs32(x, w), bias, residual)
