"""Oracle of kv_move: the caches as plain [layers, slots, heads, dims], moved by indexing."""

from __future__ import annotations

from torch import Tensor


def unpack_k(k_cache: Tensor) -> Tensor:
    """[layers, blocks, Hkv, 2, Dp / 2, 32] → [layers, slots, Hkv, Dp]."""
    pairs = k_cache.unflatten(-1, (16, 2))  # layer, block, head, half, pair, column, parity
    return pairs.permute(0, 1, 3, 5, 2, 4, 6).flatten(5, 6).flatten(1, 3)


def unpack_v(v_cache: Tensor) -> Tensor:
    """[layers, blocks, Hkv, 16, 2 Dp] → [layers, slots, Hkv, Dp]."""
    pairs = v_cache.unflatten(-1, (-1, 2))  # layer, block, head, pair, dim, parity
    return pairs.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def kv_move(source: Tensor, target: Tensor, k_cache: Tensor, v_cache: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what the caches hold afterwards, unpacked."""
    used = (source >= 0) & (target >= 0)
    moved = []
    for plain in (unpack_k(k_cache), unpack_v(v_cache)):
        after = plain.clone()
        after[:, target[used].long()] = plain[:, source[used].long()]
        moved.append(after)
    return moved[0], moved[1]
