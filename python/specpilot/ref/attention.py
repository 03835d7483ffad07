"""Oracles of attention: its value in float64, and an independent model of the order."""

from __future__ import annotations

import torch
from torch import Tensor

SPLIT = 128  # keys of a split: part of the order


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One row: q [Hq, D], k and v [n, Hkv, D] of what it sees, in position order → float64 [Hq, D]."""
    group = q.shape[0] // k.shape[1]
    k, v = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    p = torch.softmax(scale * torch.einsum("hd,nhd->hn", q.double(), k), dim=-1)
    return torch.einsum("hn,nhd->hd", p, v)
