"""GGUF metadata as a Hugging Face config, and GGUF tensor names as Hugging Face names.

Whatever a file says beyond what is mapped here is refused by name, so that no model is run with arithmetic
it was not made for.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from .errors import CheckpointError
from .gguf_header import GgufHeader

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z_]+)\.(weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"  # llama.cpp's form of llama3 scaling: one divisor a frequency

_KEYS = {  # under "<architecture>."; True where the file must have it
    "block_count": True, "context_length": True, "embedding_length": True, "feed_forward_length": True,
    "attention.head_count": True, "attention.head_count_kv": False, "attention.layer_norm_rms_epsilon": True,
    "attention.key_length": False, "attention.value_length": False, "vocab_size": False,
    "rope.freq_base": False, "rope.dimension_count": False, "rope.scaling.type": False,
    "rope.scaling.factor": False, "rope.scaling.original_context_length": False,
    "rope.scaling.finetuned": False, "rope.scaling.attn_factor": False,
    "rope.scaling.yarn_beta_fast": False, "rope.scaling.yarn_beta_slow": False,
}  # fmt: skip
_INERT = {"expert_count": 0, "expert_used_count": 0}  # at these values they say nothing


def hf_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None when there is none."""
    if name in _GLOBAL:
        return _GLOBAL[name]
    match = _LAYER_NAME.fullmatch(name)
    part = _LAYER.get(match[2]) if match else None
    return f"model.layers.{match[1]}.{part}.{match[3]}" if match and part else None


def hf_config(source: str, header: GgufHeader, rope_factors: list[float] | None) -> dict[str, Any]:
    """The config.json that this file's model would have."""
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise CheckpointError(f"{source}: general.architecture is {architecture!r}, known: {known}")
    if metadata.get("general.type", "model") != "model" or metadata.get("split.count", 1) not in (0, 1):
        raise CheckpointError(
            f"{source}: an adapter or a part of a split model; merge it into one file first"
        )
    prefix = f"{architecture}."
    own = {key[len(prefix) :]: value for key, value in metadata.items() if key.startswith(prefix)}
    for key, value in own.items():
        if key not in _KEYS and value != _INERT.get(key, ()):
            raise CheckpointError(f"{source}: {prefix}{key} = {value!r} is not supported")
    for key, required in _KEYS.items():
        if required and key not in own:
            raise CheckpointError(f"{source}: metadata {prefix}{key} is missing")
    return _Reader(source, prefix, own).config(header, _ARCHITECTURES[architecture], rope_factors)


class _Reader:
    def __init__(self, source: str, prefix: str, own: dict[str, Any]) -> None:
        self.source, self.prefix, self.own = source, prefix, own

    def size(self, key: str, default: int | None = None) -> int:
        value = self.own.get(key, default)
        if type(value) is not int or not 0 < value < 2**31:
            raise CheckpointError(
                f"{self.source}: {self.prefix}{key} is {value!r}, expected a positive integer"
            )
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self.own.get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e38:
            raise CheckpointError(
                f"{self.source}: {self.prefix}{key} is {value!r}, expected a positive number"
            )
        return _shortest(float(value))

    def config(
        self, header: GgufHeader, architecture: str, rope_factors: list[float] | None
    ) -> dict[str, Any]:
        hidden, heads = self.size("embedding_length"), self.size("attention.head_count")
        head_dim = self.size("attention.key_length", max(hidden // heads, 1))
        for key in ("attention.value_length", "rope.dimension_count"):
            if self.size(key, head_dim) != head_dim:
                raise CheckpointError(
                    f"{self.source}: {self.prefix}{key} is {self.own[key]}, expected {head_dim}"
                )
        embedding = header.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise CheckpointError(
                f"{self.source}: tensor token_embd.weight is missing or not two-dimensional"
            )
        rows = embedding.shape[0]
        if self.size("vocab_size", rows) != rows:
            raise CheckpointError(
                f"{self.source}: {self.prefix}vocab_size is {self.own['vocab_size']}, token_embd.weight has {rows} rows"
            )
        tokens = {
            f"{name}_token_id": header.metadata.get(f"tokenizer.ggml.{key}_token_id")
            for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
        }
        return {
            "architectures": [architecture],
            "model_type": self.prefix[:-1],
            "dtype": "bfloat16",
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": self.size("feed_forward_length"),
            "num_hidden_layers": self.size("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.size("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "vocab_size": rows,
            "max_position_embeddings": self.size("context_length"),
            "rms_norm_eps": self.real("attention.layer_norm_rms_epsilon"),
            "attention_bias": "blk.0.attn_q.bias" in header.tensors,
            "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
            "tie_word_embeddings": "output.weight" not in header.tensors,
            "rope_parameters": self.rope(head_dim, rope_factors),
            **{key: value for key, value in tokens.items() if value is not None},
        }

    def rope(self, head_dim: int, factors: list[float] | None) -> dict[str, Any]:
        rope: dict[str, Any] = {"rope_theta": self.real("rope.freq_base", 10000.0)}
        kind = self.own.get("rope.scaling.type", "none")
        if factors is not None:
            if kind != "none":
                raise CheckpointError(f"{self.source}: both {ROPE_FACTORS} and rope scaling of type {kind!r}")
            return rope | self.llama3(head_dim, rope["rope_theta"], factors)
        if kind == "none":
            return rope | {"rope_type": "default"}
        if kind not in ("linear", "yarn"):
            raise CheckpointError(f"{self.source}: {self.prefix}rope.scaling.type {kind!r} is not supported")
        rope |= {"rope_type": kind, "factor": self.real("rope.scaling.factor")}
        if kind == "yarn":
            rope["original_max_position_embeddings"] = self.size("rope.scaling.original_context_length")
            for name, key in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
                if f"rope.scaling.{key}" in self.own:
                    rope[name] = self.real(f"rope.scaling.{key}")
            if self.real("rope.scaling.attn_factor", 1.0) != 1.0:
                raise CheckpointError(
                    f"{self.source}: {self.prefix}rope.scaling.attn_factor is not supported"
                )
        return rope

    def llama3(self, head_dim: int, theta: float, found: list[float]) -> dict[str, Any]:
        """The file holds the divisors; the config needs the parameters they were computed from."""
        low, high, old = 1.0, 4.0, 8192
        factor = max(found, default=0.0)
        expected = []
        for i in range(head_dim // 2):
            turns = old / (2 * math.pi * theta ** (2 * i / head_dim))
            blend = min(max((turns - low) / (high - low), 0.0), 1.0)
            expected.append(1 / ((1 - blend) / max(factor, 1.0) + blend))
        if len(found) != len(expected) or not np.allclose(found, expected, rtol=1e-4):
            raise CheckpointError(
                f"{self.source}: tensor {ROPE_FACTORS} is not llama3 scaling with "
                f"low_freq_factor {low}, high_freq_factor {high} over {old} positions; no other is supported"
            )
        return {
            "rope_type": "llama3",
            "factor": _shortest(factor),
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": old,
        }


def _shortest(value: float) -> float:
    """GGUF stores float32; the shortest decimal that gives this float32 is what the config said (1e-05)."""
    return float(str(np.float32(value)))
