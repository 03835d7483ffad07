"""A small model inside the shape of a large one: the same function, the large one's bytes.

Dims that the small model has stand at even distances among the large one's; all others are exact zeros in the residual stream,
norms divide by the small model's width, attention scales by its head width, and only its ids can be emitted. Layers beyond its own
add zero. Every weight that no live value meets is filler (axes.py), so about 8 % of the layers' weights are zero and the rest is
what a kernel of the large model would read.

The small model's head dim must divide the large one's: then rotary frequencies are among the large head's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specpilot.drafters.dflash_config import DFlashConfig
from specpilot.formats import Checkpoint
from specpilot.layers import LayerShape
from specpilot.loading import TensorSource
from specpilot.models import ModelConfig
from specpilot.models.decoder import layer_shape

from .axes import Axis, dims, enlarge, free, heads, prefix, spread
from .subject import Subject, generator_of


@dataclass(frozen=True)
class Size:
    """What to inflate to. ``draft_…``: of the drafter, whose other sizes are the target's."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    draft_layers: int
    draft_taps: int


QWEN3_8B = Size(4096, 12288, 36, 32, 8, 128, 151936, 5, 5)


@dataclass(frozen=True)
class _Part:
    """How one large tensor is made: from which small one; norms have no columns."""

    name: str
    rows: Axis
    columns: Axis | None = None


class InflatedSource:
    """Tensors made one by one when they are asked for, on ``device``."""

    def __init__(self, small: TensorSource, parts: dict[str, _Part], device: torch.device, seed: int) -> None:
        self.source = f"inflated {small.source}"
        self._small, self._parts, self._device, self._seed = small, parts, device, seed

    def names(self) -> list[str]:
        return list(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        part = self._parts[name]
        return (part.rows.size,) if part.columns is None else (part.rows.size, part.columns.size)

    def tensor(self, name: str) -> Tensor:
        part = self._parts[name]
        small = self._small.tensor(part.name)
        if part.columns is not None:
            return enlarge(small, part.rows, part.columns, generator_of(name, self._seed, self._device))
        source = part.rows.source
        return torch.where(source >= 0, small[source.clamp(min=0)], 1).to(self._device)


class _Layers:
    """The tensors of decoder layers. A model with head norms needs q and k of dead dims to be zero; one without, k alone."""

    def __init__(self, small: LayerShape, size: Size, head_norms: bool) -> None:
        _check(small, size)
        self._head_norms, self.hidden = head_norms, spread(small.hidden, size.hidden)
        self.residual = spread(small.hidden, size.hidden, silent=True)
        dim = dims(small.head_dim, size.head_dim)
        groups = small.kv_heads, size.kv_heads
        q, q_known = heads(small.heads // small.kv_heads, size.heads // size.kv_heads, *groups, dim)
        kv, _ = heads(1, 1, *groups, dim)
        self._q = Axis(q, _of_live_heads(q, size.head_dim)) if head_norms else free(q)
        self._k = Axis(kv, _of_live_heads(kv, size.head_dim))
        self._v = Axis(kv, torch.ones_like(kv, dtype=torch.bool))
        self._attended, self._dim = Axis(q, q_known), free(dim)
        self._units = spread(small.intermediate, size.intermediate)
        self._gate = free(self._units.source)
        self._up = spread(small.intermediate, size.intermediate, silent=True)

    def parts(self, prefix: str, of: int, to: int, own: bool) -> dict[str, _Part]:
        """Of layer ``to``, out of the small model's layer ``of``; unless it is its ``own``, v and up are silent."""

        def rows(axis: Axis) -> Axis:
            return axis if own else Axis(torch.full_like(axis.source, -1), axis.strict)

        hidden, residual = self.hidden, self.residual
        found = {
            "input_layernorm": (hidden, None),
            "self_attn.q_proj": (self._q, hidden),
            "self_attn.k_proj": (self._k, hidden),
            "self_attn.v_proj": (rows(self._v), hidden),
            "self_attn.o_proj": (residual, self._attended),
            "post_attention_layernorm": (hidden, None),
            "mlp.gate_proj": (self._gate, hidden),
            "mlp.up_proj": (rows(self._up), hidden),
            "mlp.down_proj": (residual, self._units),
        }
        if self._head_norms:
            found |= {"self_attn.q_norm": (self._dim, None), "self_attn.k_norm": (self._dim, None)}
        return {
            f"{prefix}{to}.{name}.weight": _Part(f"{prefix}{of}.{name}.weight", *axes)
            for name, axes in found.items()
        }


def _of_live_heads(source: Tensor, head_dim: int) -> Tensor:
    """bool: rows of heads that have a live dim."""
    per_head = source.view(-1, head_dim) >= 0
    return per_head.any(1, keepdim=True).expand_as(per_head).flatten()


def inflate_target(
    checkpoint: Checkpoint, size: Size = QWEN3_8B, device: str | torch.device = "cpu", seed: int = 0
) -> tuple[ModelConfig, InflatedSource]:
    """``checkpoint``: Llama without biases; it must stay open while tensors are taken."""
    small = ModelConfig.from_dict(checkpoint.config)
    if small.architecture != "LlamaForCausalLM" or small.attention_bias or small.mlp_bias:
        raise ValueError(
            f"inflate: {checkpoint.source} is {small.architecture}, expected LlamaForCausalLM without biases"
        )
    if size.layers < small.num_layers or size.vocab < small.vocab_size:
        raise ValueError(
            f"inflate: {size.layers} layers and {size.vocab} ids cannot hold {small.num_layers} and {small.vocab_size}"
        )
    layers = _Layers(layer_shape(small), size, head_norms=False)
    hidden, ids = layers.hidden, prefix(small.vocab_size, size.vocab)
    embedding = "model.embed_tokens.weight"
    head = embedding if small.tie_word_embeddings else "lm_head.weight"
    # A live row of the embedding is a residual: all of its columns count.
    parts = {embedding: _Part(embedding, ids, layers.residual)}
    for i in range(size.layers):
        parts |= layers.parts("model.layers.", i % small.num_layers, i, i < small.num_layers)
    parts["model.norm.weight"] = _Part("model.norm.weight", hidden)
    parts["lm_head.weight"] = _Part(head, ids, hidden)
    config = replace(
        ModelConfig.from_dict(
            {
                **checkpoint.config,
                **_sizes(size),
                "num_hidden_layers": size.layers,
                "tie_word_embeddings": False,
            }
        ),
        norm_denom=small.norm_denom,
        softmax_scale=small.softmax_scale,
        valid_vocab=small.valid_vocab,
    )
    return config, InflatedSource(checkpoint, parts, torch.device(device), seed)


def inflate_drafter(
    checkpoint: Checkpoint, size: Size = QWEN3_8B, device: str | torch.device = "cpu", seed: int = 0
) -> tuple[DFlashConfig, InflatedSource]:
    """``checkpoint``: a DFlash drafter of the target that goes with it. Its taps are the same layers; further ones do not count."""
    small = DFlashConfig.from_dict(checkpoint.config, checkpoint.source)
    own, taps = small.shape, len(small.tap_layers)
    unused = [j for j in reversed(range(size.layers - 1)) if j not in small.tap_layers]
    more = size.draft_taps - taps
    if size.draft_layers < small.layers or not 0 <= more <= len(unused) or small.attention_bias:
        raise ValueError(
            f"inflate: {size.draft_layers} draft layers with {size.draft_taps} taps and no biases cannot hold "
            f"{checkpoint.source}: {small.layers} layers, {taps} taps, attention_bias {small.attention_bias}"
        )
    layers = _Layers(own, size, head_norms=True)
    hidden = layers.hidden
    tapped = torch.cat(
        [torch.where(hidden.source >= 0, hidden.source + t * own.hidden, -1) for t in range(taps)]
        + [torch.full_like(hidden.source, -1)] * more
    )
    columns = Axis(tapped, hidden.strict.repeat(size.draft_taps))
    parts = {"fc.weight": _Part("fc.weight", layers.residual, columns)}
    for name in ("hidden_norm.weight", "norm.weight"):
        parts[name] = _Part(name, hidden)
    for i in range(size.draft_layers):
        parts |= layers.parts("layers.", i % small.layers, i, i < small.layers)
    types = checkpoint.config.get("layer_types") or ["full_attention"] * small.layers
    large = DFlashConfig.from_dict(
        {
            **checkpoint.config,
            **_sizes(size),
            "num_hidden_layers": size.draft_layers,
            "num_target_layers": size.layers,
            "layer_types": [types[i % small.layers] for i in range(size.draft_layers)],
            "dflash_config": {
                **checkpoint.config.get("dflash_config", {}),
                "target_layer_ids": [*small.tap_layers, *unused[:more]],
            },
        },
        checkpoint.source,
    )
    shape = replace(
        large.shape, scale=own.scale, norm_denom=own.norm_denom, head_norm_denom=own.head_norm_denom
    )
    return replace(large, shape=shape, valid_vocab=small.valid_vocab), InflatedSource(
        checkpoint, parts, torch.device(device), seed
    )


def inflated_subject(
    target: Checkpoint,
    drafter: Checkpoint | None,
    size: Size = QWEN3_8B,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Subject:
    """Both together, with the target's tokenizer and stop ids. Tensors are made on ``device``."""
    drafts = inflate_drafter(drafter, size, device, seed + 1) if drafter else (None, None)
    return Subject(
        *inflate_target(target, size, device, seed), *drafts, target.tokenizer(), target.eos_token_ids()
    )


def _sizes(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
    }


def _check(small: LayerShape, size: Size) -> None:
    fits = {
        "hidden size": small.hidden <= size.hidden,
        "intermediate size": small.intermediate <= size.intermediate,
        "key/value heads": small.kv_heads <= size.kv_heads,
        "heads a group": small.heads // small.kv_heads <= size.heads // size.kv_heads,
        "head dim (a divisor)": size.head_dim % small.head_dim == 0,
    }
    bad = [what for what, ok in fits.items() if not ok]
    if bad or size.heads % size.kv_heads:
        what = ", ".join(bad) or "heads (a multiple of the key/value heads)"
        raise ValueError(f"inflate: {small} does not fit into {size}: {what}")
