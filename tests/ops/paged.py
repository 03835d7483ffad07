"""Random paged caches, ragged batches and draft trees for the tests of rope_kv and attention."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from conftest import anywhere as ops
from torch import Tensor

from specpilot.ref import rope_kv as layout

SHAPES = {  # query heads, kv heads, head dim
    "9x3x64": (9, 3, 64),
    "32x8x128": (32, 8, 128),
    "4x4x16": (4, 4, 16),
    "6x2x80": (6, 2, 80),
    "8x1x96": (8, 1, 96),
}


def int32(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def padded(x: Tensor) -> Tensor:
    """Head dim (the last) rounded up to 32 with zeros."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % 32))


@dataclass
class Cache:
    """Keys and values by slot, kept beside their packed form so that oracles need not trust the layout."""

    k: Tensor  # [slots, Hkv, D]
    v: Tensor

    def packed(self) -> tuple[Tensor, Tensor]:
        return layout.pack_keys(padded(self.k)), layout.pack_values(padded(self.v))

    @staticmethod
    def random(slots: int, heads: int, dim: int) -> Cache:
        return Cache(torch.randn(slots, heads, dim).bfloat16(), torch.randn(slots, heads, dim).bfloat16())

    @staticmethod
    def delicate(positions: int, heads: int, dim: int, tail: int) -> Cache:
        """By position: equal scores, and values that cancel before the last `tail`. An fp32 sum in another order has
        other bits: the small values that a large partial sum swallows are others."""
        count = max(0, positions - tail) // 3
        pattern = torch.tensor([2.0**25, -(2.0**25), 1.0]).repeat(count)
        order = torch.rand(3 * count, heads, dim).argsort(0)
        small = torch.tensor([1.0, 3.0, -1.0])[torch.randint(3, (positions - 3 * count, heads, dim))]
        v = torch.cat([pattern[order], small])
        return Cache(torch.zeros(v.shape).bfloat16(), v.bfloat16())

    def at(self, slots: Tensor, size: int) -> Cache:
        """Position i moved to slots[i] of a cache of that size; the rest is NaN."""
        k, v = (torch.full((size, *t.shape[1:]), torch.nan, dtype=t.dtype) for t in (self.k, self.v))
        k[slots.long()], v[slots.long()] = self.k, self.v
        return Cache(k, v)

    def poisoned_outside(self, used: Tensor) -> Cache:
        """NaN and infinities in every slot that is not used."""
        stale = torch.ones(len(self.k), dtype=torch.bool)
        stale[used.long()] = False
        k, v = self.k.clone(), self.v.clone()
        for x, value in ((k, torch.nan), (v, torch.inf)):
            x[stale] = value
            x[stale, :, ::2] = -torch.inf if value is torch.inf else value
        return Cache(k, v)


@dataclass
class Batch:
    """Rows of an attention call. ``tails`` holds each row's own slots in path order."""

    table: Tensor
    request: list[int] = field(default_factory=list)
    prefix: list[int] = field(default_factory=list)
    tails: list[list[int]] = field(default_factory=list)

    def add(self, request: int, prefix: int, tail: list[int] | None = None) -> Batch:
        self.request.append(request)
        self.prefix.append(prefix)
        self.tails.append(tail or [])
        return self

    def __len__(self) -> int:
        return len(self.request)

    def seen(self, row: int) -> Tensor:
        """Slots that a row sees, in position order."""
        return torch.cat([self.table[self.request[row], : self.prefix[row]], int32(self.tails[row])]).long()

    def used(self) -> Tensor:
        return torch.cat([self.seen(r) for r in range(len(self))]).unique()

    def rows(self, rows: list[int]) -> Batch:
        pick = [[x[r] for r in rows] for x in (self.request, self.prefix, self.tails)]
        return Batch(self.table, *pick)

    def attention(self, q: Tensor, cache: tuple[Tensor, Tensor], scale: float, variant: str = "") -> Tensor:
        """q [R, Hq, D] → out [R, Hq, D]."""
        rows, heads, dim = q.shape
        begin = slots = None
        if any(self.tails):
            begin = torch.tensor([0, *map(len, self.tails)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
            slots = int32([s for tail in self.tails for s in tail])
        out = torch.full((rows, heads * dim), torch.nan, dtype=torch.bfloat16)
        args = (self.table, int32(self.request), int32(self.prefix), begin, slots, scale, dim, out)
        ops.attention(padded(q), *cache, *args, variant=variant)
        return out.view(rows, heads, dim)


def straight_table(requests: int, length: int) -> Tensor:
    return torch.arange(requests * length, dtype=torch.int32).view(requests, length)


def shuffled_table(requests: int, length: int, page: int, slots: int) -> Tensor:
    """Pages of `page` slots in random places of a cache of `slots`."""
    pages = torch.randperm(slots // page)[: requests * (length // page)]
    table = pages[:, None] * page + torch.arange(page)
    return table.to(torch.int32).view(requests, length)


def random_tree(nodes: int) -> list[int]:
    """Parents; node 0 is the root, parents come before children."""
    return [-1] + [int(torch.randint(max(0, i - 4), i, ())) for i in range(1, nodes)]


def path(parents: list[int], node: int) -> list[int]:
    """Root … node."""
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]
