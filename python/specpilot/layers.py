"""The pre-norm decoder layer that targets and drafters share: its weights, its buffers, its ops in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from . import ops
from .formats.q8_weight import Q8Weight
from .formats.run_layout import RunWeight


@dataclass(frozen=True)
class LayerShape:
    """Sizes and constants of a layer. ``…_denom``: what a norm divides a sum of squares by, usually the number of its terms."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    scale: float
    norm_denom: float
    head_norm_denom: float

    @property
    def padded_dim(self) -> int:
        return -(-self.head_dim // 32) * 32

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


@dataclass(frozen=True)
class Linear:
    """``weight``: exact, or of 8 bits in a drafter."""

    weight: RunWeight | Q8Weight
    bias: Tensor | None = None

    def __call__(self, x: Tensor, y: Tensor, residual: Tensor | None = None) -> None:
        if isinstance(self.weight, Q8Weight):
            ops.linear_q8(x, *self.weight.args, self.bias, residual, y)
            return
        ops.linear(x, *self.weight.args, self.bias, residual, y)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (self.bias.nbytes if self.bias is not None else 0)


@dataclass(frozen=True)
class Layer:
    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear

    @property
    def nbytes(self) -> int:
        return sum(linear.nbytes for linear in (self.qkv, self.out, self.gate_up, self.down))


class RowInputs(Protocol):
    """What a layer reads of the rows of a call (engine/rows.py)."""

    positions: Tensor
    slots: Tensor
    request: Tensor
    prefix: Tensor
    slot_table: Tensor
    tail_begin: Tensor | None
    tail_slots: Tensor | None


class Cache(Protocol):
    """K and V of all layers, csrc/ops/rope_kv/rope_kv.h."""

    k: Tensor
    v: Tensor


@dataclass(frozen=True)
class Taps:
    """Outputs of chosen layers, kept for a drafter: ``buffer`` is bf16 [rows, len(layers) * hidden], a column slice a layer.

    Layer j means the residual stream after decoder layer j, counted from 0.
    """

    layers: Sequence[int]
    buffer: Tensor

    def rows_from(self, row: int) -> Taps:
        """The same, beginning at a later row of the buffer."""
        return Taps(self.layers, self.buffer[row:])


class LayerWork:
    """Activations of up to ``rows`` rows; made once, used by all layers."""

    def __init__(self, shape: LayerShape, rows: int, device: torch.device | str = "cpu") -> None:
        def buffer(*size: int) -> Tensor:
            return torch.zeros(rows, *size, dtype=torch.bfloat16, device=device)

        self.hidden, self.normed = buffer(shape.hidden), buffer(shape.hidden)
        self.qkv = buffer(shape.qkv)
        self.q = buffer(shape.heads, shape.padded_dim)
        self.attended = buffer(shape.heads * shape.head_dim)
        self.gate_up, self.act = buffer(2 * shape.intermediate), buffer(shape.intermediate)

    @staticmethod
    def bytes_for(shape: LayerShape, rows: int) -> int:
        q = shape.heads * (shape.padded_dim + shape.head_dim)
        return 2 * rows * (2 * shape.hidden + shape.qkv + q + 3 * shape.intermediate)


def run_layer(
    layer: Layer,
    shape: LayerShape,
    rows: RowInputs,
    n: int,
    cos: Tensor,
    sin: Tensor,
    k: Tensor,
    v: Tensor,
    work: LayerWork,
    keep: int | None = None,
) -> None:
    """One layer over the first n rows: ``work.hidden`` is read and updated, K and V of the rows are written.

    ``keep``: only so many rows of ``work.hidden`` are wanted (the rest serve as keys and values alone).
    """
    hidden, normed, qkv, q = work.hidden[:n], work.normed[:n], work.qkv[:n], work.q[:n]
    ops.rmsnorm(hidden, layer.input_norm, shape.eps, shape.norm_denom, normed)
    layer.qkv(normed, qkv)
    ops.rope_kv(
        qkv, cos, sin, rows.positions[:n], rows.slots[:n], layer.q_norm, layer.k_norm, shape.eps,
        shape.head_norm_denom, shape.head_dim, q, k, v,
    )  # fmt: skip
    n = n if keep is None else keep
    hidden, normed = hidden[:n], normed[:n]
    tail_begin = rows.tail_begin[: n + 1] if rows.tail_begin is not None else None
    ops.attention(
        q[:n], k, v, rows.slot_table, rows.request[:n], rows.prefix[:n], tail_begin, rows.tail_slots, shape.scale,
        shape.head_dim, work.attended[:n],
    )  # fmt: skip
    layer.out(work.attended[:n], hidden, residual=hidden)
    ops.rmsnorm(hidden, layer.post_norm, shape.eps, shape.norm_denom, normed)
    layer.gate_up(normed, work.gate_up[:n])
    ops.swiglu(work.gate_up[:n], work.act[:n])
    layer.down(work.act[:n], hidden, residual=hidden)
