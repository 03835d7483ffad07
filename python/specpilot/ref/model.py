"""fp32 oracle of a target: plain torch over the weights as they were loaded and fused, so that it tests loading, not kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..formats.run_layout import RunWeight
from ..layers import Layer, LayerShape, Linear

if TYPE_CHECKING:
    from ..models.decoder import DecoderTarget


def dense(linear: Linear, x: Tensor) -> Tensor:
    weight = linear.weight
    w = weight.to_bf16().float() if isinstance(weight, RunWeight) else weight.to_float()
    return F.linear(x, w, None if linear.bias is None else linear.bias.float())


def norm(x: Tensor, weight: Tensor, eps: float, denom: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) / denom + eps) * weight.float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [rows, heads, D]; cos, sin [rows, D / 2]."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def qkv(
    layer: Layer, shape: LayerShape, x: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated q, rotated k, v, each [rows, heads, D]."""
    heads = [shape.heads, shape.kv_heads, shape.kv_heads]
    q, k, v = dense(layer.qkv, x).unflatten(-1, (-1, shape.head_dim)).split(heads, dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = (
            norm(t, w, shape.eps, shape.head_norm_denom) for t, w in ((q, layer.q_norm), (k, layer.k_norm))
        )
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def rest(
    layer: Layer, shape: LayerShape, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> Tensor:
    """Attention, o_proj and MLP with their residuals."""
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=shape.scale, enable_gqa=True)
    x = x + dense(layer.out, attended[0].transpose(0, 1).flatten(1))
    gate, up = dense(layer.gate_up, norm(x, layer.post_norm, shape.eps, shape.norm_denom)).chunk(2, dim=-1)
    return x + dense(layer.down, F.silu(gate) * up)


def forward(target: DecoderTarget, ids: list[int], cos: Tensor, sin: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits of every position, and the output of every layer. cos, sin: fp32 [positions, D / 2]."""
    n, shape = len(ids), target.shape
    x = target.embedding.to_bf16().float()[ids]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    outputs = []
    for layer in target.layers:
        q, k, v = qkv(layer, shape, norm(x, layer.input_norm, shape.eps, shape.norm_denom), cos[:n], sin[:n])
        x = rest(layer, shape, x, q, k, v, mask)
        outputs.append(x)
    return norm(x, target.norm, shape.eps, shape.norm_denom) @ target.head.to_bf16().float().T, outputs
