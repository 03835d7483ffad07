"""The paged KV cache: memory by slots, handed out in pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch

PAGE = 32  # slots of a page: a block of the cache layout, csrc/ops/rope_kv/rope_kv.h


def padded(head_dim: int) -> int:
    """Head width in memory."""
    return -(-head_dim // 32) * 32


class KvCache:
    """K and V of all layers. Slots are claimed nowhere here: whoever owns a ``PagePool`` says which slot is whose."""

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, slots: int, device: torch.device | str = "cpu"
    ) -> None:
        blocks, width = -(-slots // PAGE), padded(head_dim)
        self.k = torch.zeros(layers, blocks, kv_heads, 2, width // 2, 32, dtype=torch.bfloat16, device=device)
        self.v = torch.zeros(layers, blocks, kv_heads, 16, 2 * width, dtype=torch.bfloat16, device=device)

    @property
    def pages(self) -> int:
        return self.k.shape[1]

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    @staticmethod
    def bytes_for(layers: int, kv_heads: int, head_dim: int, slots: int) -> int:
        """What a cache of this shape takes, before it is made."""
        return 4 * layers * -(-slots // PAGE) * PAGE * kv_heads * padded(head_dim)


class PagePool:
    """Free pages, given out from the end of ``order``."""

    def __init__(self, order: Sequence[int]) -> None:
        self._free = list(order)

    @classmethod
    def of(cls, pages: int) -> PagePool:
        """Pages in ascending order, so that a request alone lies in one piece."""
        return cls(range(pages - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int:
        if not self._free:
            raise RuntimeError("KV cache: no free page is left")
        return self._free.pop()

    def give(self, pages: Sequence[int]) -> None:
        """Takes pages back; the last in goes out first, in the order they were taken."""
        self._free.extend(reversed(pages))
