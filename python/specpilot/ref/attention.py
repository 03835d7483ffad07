"""Oracles of attention: its value in float64, and an independent model of the order."""

from __future__ import annotations

import torch
from torch import Tensor

from .linear import pairs32

SPLIT = 128  # keys of a split: part of the order


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One row: q [Hq, D], k and v [n, Hkv, D] of what it sees, in position order → float64 [Hq, D]."""
    group = q.shape[0] // k.shape[1]
    k, v = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    p = torch.softmax(scale * torch.einsum("hd,nhd->hn", q.double(), k), dim=-1)
    return torch.einsum("hn,nhd->hd", p, v)


def _fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """fp32: the product is exact in float64, the sum nearly always."""
    return (x.double() * y.double() + z.double()).float()


def _exp(x: Tensor) -> Tensor:
    """exp_f32 of core/bf16.h, for -87 <= x <= 0."""
    constants = [1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0]
    log2e, high, low, *taylor = torch.tensor([1.44269504, -0.693145752, -1.42860677e-6, *constants])
    n = torch.round(x * log2e)
    r = _fma(n, low, _fma(n, high, x))
    p = taylor[0].expand_as(x)
    for c in taylor[1:]:
        p = _fma(p, r, c)
    return torch.ldexp(p, n)


def attention_splits(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """The same as ``attention`` by the order of the contract, bit for bit → bf16 [Hq, D].

    For data whose scores of a split, and whose maxima of all splits, lie within 87 of each other.
    """
    group = q.shape[0] // k.shape[1]
    return torch.cat(
        [_kv_head(q[h * group : (h + 1) * group], k[:, h], v[:, h], scale) for h in range(k.shape[1])]
    )


def _kv_head(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    scores = torch.tensor(scale, dtype=torch.float32) * pairs32(q, k)
    state: tuple[Tensor, Tensor, Tensor] | None = None  # maximum, sum of e, sum of e v
    for first in range(0, len(k), SPLIT):
        s = scores[:, first : first + SPLIT]
        top = s.amax(1, keepdim=True)
        e = _exp(s - top)
        split = top, _lanes16(e), pairs32(e.bfloat16(), v[first : first + SPLIT].T)
        state = split if state is None else _fold(state, split)
    assert state is not None, "a row that sees nothing has no order"
    return (state[2] / state[1] + 0.0).bfloat16()


def _fold(
    old: tuple[Tensor, Tensor, Tensor], new: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    top = torch.maximum(old[0], new[0])
    a, b = _exp(old[0] - top), _exp(new[0] - top)
    return top, _fma(old[1], a, new[1] * b), _fma(old[2], a, new[2] * b)


def _lanes16(e: Tensor) -> Tensor:
    """Row sums as 16 strided partials, folded by halves."""
    lanes = torch.zeros(len(e), 16)
    for step in torch.nn.functional.pad(e, (0, -e.shape[1] % 16)).split(16, dim=1):
        lanes = lanes + step
    while lanes.shape[1] > 1:
        low, high = lanes.chunk(2, dim=1)
        lanes = low + high
    return lanes
