"""Oracle of swiglu in float64."""

from __future__ import annotations

from torch import Tensor


def silu(g: Tensor) -> Tensor:
    """float64 value of g · sigmoid(g), without overflow for any g."""
    wide = g.double()
    return wide * wide.sigmoid()


def swiglu(gate_up: Tensor) -> Tensor:
    """bf16 [R, 2 I] → bf16 [R, I], rounded where the contract says."""
    gate, up = gate_up.chunk(2, dim=-1)
    return (silu(gate).bfloat16().double() * up.double()).bfloat16()
