"""fp32 oracle of a DFlash draft: plain torch over the weights as they were loaded, the whole context at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .model import dense, norm, qkv, rest, rotate

if TYPE_CHECKING:
    from ..drafters.dflash import DFlashDraftModel


def draft_logits(drafter: DFlashDraftModel, taps: Tensor, anchor: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Logits of the slots after the anchor, [block_size - 1, vocab]. taps: fp32 [context, taps * hidden]; cos, sin: fp32."""
    config, shape, start, n = drafter.config, drafter.shape, taps.shape[0], drafter.block_size
    context = norm(dense(drafter.fc, taps), drafter.hidden_norm, shape.eps, shape.norm_denom)
    context_kv = dense(drafter.context_kv, context).unflatten(
        -1, (config.layers, 2, shape.kv_heads, shape.head_dim)
    )
    x = drafter.target.embedding.to_bf16().float()[[anchor] + [config.mask_token] * (n - 1)]
    block = slice(start, start + n)
    for i, layer in enumerate(drafter.layers):
        q, k, v = qkv(
            layer, shape, norm(x, layer.input_norm, shape.eps, shape.norm_denom), cos[block], sin[block]
        )
        old_k, old_v = context_kv[:, i].unbind(1)
        assert layer.k_norm is not None
        old_k = rotate(norm(old_k, layer.k_norm, shape.eps, shape.head_norm_denom), cos[:start], sin[:start])
        mask = torch.ones(n, start + n, dtype=torch.bool)
        if config.causal[i]:
            mask = mask.tril(start)
        x = rest(layer, shape, x, q, torch.cat([old_k, k]), torch.cat([old_v, v]), mask)
    return dense(drafter.head, norm(x[1:], drafter.norm, shape.eps, shape.norm_denom))
