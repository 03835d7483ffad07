"""Oracle of rope_kv: torch bf16 arithmetic, and the cache layout read back by reshapes."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> Tensor:
    """x [R, H, D] by the angles of each row's position; every bf16 operation rounds once."""
    c, s = (t[positions.long()].repeat(1, 2)[:, None] for t in (cos, sin))
    a, b = x.chunk(2, dim=-1)
    return x * c + torch.cat([-b, a], dim=-1) * s


def keys(k_cache: Tensor) -> Tensor:
    """k_cache [blocks, Hkv, 2, Dp / 2, 32] → [slots, Hkv, Dp]."""
    blocks, heads, _, pairs, _ = k_cache.shape
    return (
        k_cache.view(blocks, heads, 2, pairs, 16, 2)
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(blocks * 32, heads, 2 * pairs)
    )


def values(v_cache: Tensor) -> Tensor:
    """v_cache [blocks, Hkv, 16, 2 Dp] → [slots, Hkv, Dp]."""
    blocks, heads, _, wide = v_cache.shape
    return (
        v_cache.view(blocks, heads, 16, wide // 2, 2)
        .permute(0, 2, 4, 1, 3)
        .reshape(blocks * 32, heads, wide // 2)
    )


def pack_keys(k: Tensor) -> Tensor:
    """The inverse of ``keys``; slots a multiple of 32."""
    slots, heads, dim = k.shape
    tiles = k.view(slots // 32, 2, 16, heads, dim // 2, 2).permute(0, 3, 1, 4, 2, 5)
    return tiles.reshape(slots // 32, heads, 2, dim // 2, 32).contiguous()


def pack_values(v: Tensor) -> Tensor:
    """The inverse of ``values``; slots a multiple of 32."""
    slots, heads, dim = v.shape
    tiles = v.view(slots // 32, 16, 2, heads, dim).permute(0, 3, 1, 4, 2)
    return tiles.reshape(slots // 32, heads, 16, 2 * dim).contiguous()
