"""Configurations of full-size targets and of their DFlash drafters, and the tensors that these have.

The Llama drafter's config was not public in full: block size and taps are its own, its layers are taken to be five of the
target's shape, and its mask token is one of the target's reserved ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specpilot.drafters.dflash_config import DFlashConfig, default_tap_layers
from specpilot.models import ModelConfig

TARGETS: dict[str, dict[str, Any]] = {
    "qwen3-8b": {
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
    },
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": False,
    },
}
DRAFTERS: dict[str, dict[str, Any]] = {  # what a drafter does not share with its target
    "qwen3-8b": {"block_size": 16, "mask_token_id": 151669, "rope_theta": 1e6},
    "llama-3.1-8b": {"block_size": 10, "mask_token_id": 128002, "rope_theta": 500000.0},
}
DRAFT_LAYERS = DRAFT_TAPS = 5

TINY: dict[str, Any] = {  # every width made small, for tests on a CPU
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}


def drafter_config(name: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the drafter of ``TARGETS[name]``, whose sizes and layer count may have been changed."""
    shared = (
        "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "rms_norm_eps",
    )  # fmt: skip
    own, layers = DRAFTERS[name], target["num_hidden_layers"]
    return {
        "architectures": ["DFlashDraftModel"],
        **{key: target[key] for key in shared},
        "num_hidden_layers": DRAFT_LAYERS,
        "num_target_layers": layers,
        "block_size": own["block_size"],
        "rope_theta": own["rope_theta"],
        "dflash_config": {
            "mask_token_id": min(own["mask_token_id"], target["vocab_size"] - 1),
            "target_layer_ids": sorted(set(default_tap_layers(layers, DRAFT_TAPS))),
        },
    }


def target_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape by Hugging Face name."""
    h, v = config.hidden_size, config.vocab_size
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, h)}
    for i in range(config.num_layers):
        tensors |= _layer(
            f"model.layers.{i}.", h, config.intermediate_size, config.num_heads, config.num_kv_heads,
            config.head_dim, config.qk_norm,
        )  # fmt: skip
    tensors["model.norm.weight"] = (h,)
    if not config.tie_word_embeddings:
        tensors["lm_head.weight"] = (v, h)
    return tensors


def drafter_tensors(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Shape by the names of published drafters."""
    s = config.shape
    tensors: dict[str, tuple[int, ...]] = {
        "fc.weight": (s.hidden, len(config.tap_layers) * s.hidden),
        "hidden_norm.weight": (s.hidden,),
        "norm.weight": (s.hidden,),
    }
    for i in range(config.layers):
        tensors |= _layer(
            f"layers.{i}.", s.hidden, s.intermediate, s.heads, s.kv_heads, s.head_dim, head_norms=True
        )
    return tensors


def _layer(
    prefix: str, hidden: int, inner: int, heads: int, kv_heads: int, head_dim: int, head_norms: bool
) -> dict[str, tuple[int, ...]]:
    q, kv = heads * head_dim, kv_heads * head_dim
    tensors: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    if head_norms:
        tensors |= {"self_attn.q_norm": (head_dim,), "self_attn.k_norm": (head_dim,)}
    return {f"{prefix}{name}.weight": shape for name, shape in tensors.items()}
