"""Random calls of rope_kv, for its tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from conftest import anywhere as ops
from paged import SHAPES, padded
from torch import Tensor

from specpilot.ref import rope_kv as ref

BF16 = torch.bfloat16
DIMS = SHAPES | {
    "2x1x2": (2, 1, 2),
    "3x3x6": (3, 3, 6),
    "5x2x34": (5, 2, 34),
    "2x2x256": (2, 2, 256),
    "2x1x512": (2, 1, 512),
    "0x3x64": (0, 3, 64),
}
POSITIONS = 300

SLOTS = {  # rows → slots below rows + 40
    "shuffled": lambda rows: None,
    "in order": lambda rows: torch.arange(rows).int(),
    "in order from an odd one": lambda rows: torch.arange(7, rows + 7).int(),
    "downwards": lambda rows: torch.arange(rows).flip(0).int(),
    "apart": lambda rows: torch.where(torch.arange(rows) % 5 == 4, -1, torch.arange(rows) + 2).int(),
}


@dataclass
class Call:
    heads: tuple[int, int, int]
    qkv: Tensor
    cos: Tensor
    sin: Tensor
    positions: Tensor
    slots: Tensor
    blocks: int
    norms: tuple[Tensor, Tensor] | None = None
    eps: float = 1e-6

    @staticmethod
    def random(shape: str, rows: int, slots: Tensor | None = None, norm: bool = False) -> Call:
        """Slots: below rows + 40; if None, shuffled ones, an eighth of them -1."""
        torch.manual_seed(rows)
        hq, hkv, dim = DIMS[shape]
        if slots is None:
            slots = torch.randperm(rows + 40).int()[:rows]
            slots[torch.rand(rows) < 0.125] = -1
        cos, sin = torch.randn(2, POSITIONS, dim // 2).to(BF16)
        norms = (torch.randn(dim).to(BF16), torch.randn(dim).to(BF16)) if norm else None
        qkv = (torch.randn(rows, (hq + 2 * hkv) * dim) * torch.logspace(-3, 3, rows)[:, None]).to(BF16)
        positions = torch.randint(POSITIONS, (rows,)).int()
        return Call(DIMS[shape], qkv, cos, sin, positions, slots, (rows + 71) // 32, norms)

    def rows(self, pick: slice) -> Call:
        return replace(self, qkv=self.qkv[pick], positions=self.positions[pick], slots=self.slots[pick])

    def outputs(self) -> list[Tensor]:
        """q_out, k_cache, v_cache, all NaN"""
        hq, hkv, dim = self.heads
        wide = dim + -dim % 32
        shapes = (
            (len(self.qkv), hq, wide),
            (self.blocks, hkv, 2, wide // 2, 32),
            (self.blocks, hkv, 16, 2 * wide),
        )
        return [torch.full(s, torch.nan, dtype=BF16) for s in shapes]

    def run(self, variant: str = "", out: list[Tensor] | None = None) -> list[Tensor]:
        out = out or self.outputs()
        dim = self.heads[2]
        angles = self.cos, self.sin, self.positions, self.slots
        norms = self.norms or (None, None)
        ops.rope_kv(self.qkv, *angles, *norms, self.eps, float(dim), dim, *out, variant=variant)
        return out

    def split(self) -> tuple[Tensor, ...]:
        """q, k, v as [R, H, D]"""
        hq, hkv, dim = self.heads
        return self.qkv.view(len(self.qkv), -1, dim).split([hq, hkv, hkv], dim=1)

    def expected(self, q: Tensor, k: Tensor) -> list[Tensor]:
        """The outputs that hold these rotated heads and the call's values."""
        q_out, k_cache, v_cache = self.outputs()
        keys, values = ref.keys(k_cache), ref.values(v_cache)
        keep = self.slots >= 0
        keys[self.slots[keep].long()] = padded(k)[keep]
        values[self.slots[keep].long()] = padded(self.split()[2])[keep]
        return [padded(q), ref.pack_keys(keys), ref.pack_values(values)]
