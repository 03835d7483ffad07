"""What the engine knows about a target: a config.json read strictly.

A key that changes arithmetic and is not implemented must never be ignored, so every key has to be known:
as one that is read, as one that changes nothing, or as one that changes nothing at the value it has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import rope
from ..formats.errors import CheckpointError
from .config_keys import HARMLESS, NEUTRAL, READ

ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True)
class ModelConfig:
    """``norm_denom``, ``softmax_scale`` and ``valid_vocab`` (ids that may be emitted) follow from the sizes in a config.json."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope_parameters: Mapping[str, Any] = field(hash=False)
    eos_token_ids: tuple[int, ...]
    dtype: str | None  # what the config says; the weights are bf16 in any case
    norm_denom: float
    softmax_scale: float
    valid_vocab: int

    @staticmethod
    def from_dict(config: Mapping[str, Any], allow: Collection[str] = ()) -> ModelConfig:
        """Reads a Hugging Face config or raises :class:`CheckpointError`.

        ``allow`` names further keys that the caller knows to leave the forward pass as it is.
        """
        architecture = _architecture(config)
        qwen3 = architecture == "Qwen3ForCausalLM"
        _refuse_unknown(config, qwen3, allow)
        get = _Getter(config)
        hidden, heads = get.size("hidden_size"), get.size("num_attention_heads")
        kv_heads, vocab = get.size("num_key_value_heads", heads), get.size("vocab_size")
        head_dim = get.size("head_dim", 128 if qwen3 else max(hidden // heads, 1))
        if heads % kv_heads:
            raise CheckpointError(
                f"config: {heads} attention heads are not a multiple of {kv_heads} key/value heads"
            )
        if head_dim % 2:
            raise CheckpointError(f"config: head_dim is {head_dim}, expected an even number (rotary halves)")
        dtype = config.get("dtype") or config.get("torch_dtype")
        return ModelConfig(
            architecture=architecture,
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=get.size("intermediate_size"),
            num_layers=get.size("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=get.size("max_position_embeddings"),
            rms_norm_eps=get.real("rms_norm_eps"),
            tie_word_embeddings=get.flag("tie_word_embeddings"),
            attention_bias=get.flag("attention_bias"),
            mlp_bias=get.flag("mlp_bias"),
            qk_norm=qwen3,
            rope_parameters=rope.rope_parameters(config),
            eos_token_ids=get.ids("eos_token_id"),
            dtype=str(dtype).removeprefix("torch.") if dtype else None,
            norm_denom=hidden,
            softmax_scale=head_dim**-0.5,
            valid_vocab=vocab,
        )


def rope_tables(config: ModelConfig, max_position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, bf16 [max_position, head_dim / 2], with the bits of transformers' rotary module."""
    return rope.rope_tables(
        config.rope_parameters, config.head_dim, config.max_position_embeddings, max_position
    )


def _architecture(config: Mapping[str, Any]) -> str:
    found = config.get("architectures")
    architecture = found[0] if isinstance(found, list) and len(found) == 1 else found
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"config: architecture {architecture!r} is not supported; known: {', '.join(ARCHITECTURES)}"
        )
    return architecture


def _refuse_unknown(config: Mapping[str, Any], qwen3: bool, allow: Collection[str]) -> None:
    # Qwen3 names a window that only `use_sliding_window` switches on
    idle = (
        {"sliding_window", "max_window_layers"} if qwen3 and not config.get("use_sliding_window") else set()
    )
    for key, value in config.items():
        if key in READ or key in HARMLESS or key in idle or key in allow:
            continue
        if key in NEUTRAL:
            if value is not None and not any(type(value) is type(n) and value == n for n in NEUTRAL[key]):
                raise CheckpointError(
                    f"config: {key} = {value!r} changes the model's arithmetic and is not supported"
                )
        elif key == "layer_types":
            kinds = value if isinstance(value, list) else [] if value is None else [value]
            other = [kind for kind in kinds if kind != "full_attention"]
            if other:
                raise CheckpointError(
                    f"config: layer_types holds {other[0]!r}; only full_attention is supported"
                )
        else:
            raise CheckpointError(
                f"config: unknown key {key} = {value!r}; it may change the model's arithmetic "
                f"(if it does not: ModelConfig.from_dict(config, allow=[{key!r}]))"
            )
    if qwen3 and config.get("mlp_bias"):
        raise CheckpointError("config: mlp_bias = True is not supported for Qwen3ForCausalLM")


class _Getter:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def _value(self, key: str, default: Any, expected: str, ok: Any) -> Any:
        value = self.config.get(key)
        value = default if value is None else value
        if not ok(value):
            raise CheckpointError(f"config: {key} is {value!r}, expected {expected}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        return self._value(key, default, "a positive integer", lambda v: type(v) is int and 0 < v < 2**31)

    def real(self, key: str) -> float:
        return float(
            self._value(key, None, "a positive number", lambda v: type(v) in (int, float) and 0 < v < 1e38)
        )

    def flag(self, key: str) -> bool:
        return self._value(key, False, "true or false", lambda v: type(v) is bool)

    def ids(self, key: str) -> tuple[int, ...]:
        value = self.config.get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(v) is int and v >= 0 for v in ids):
            raise CheckpointError(f"config: {key} is {value!r}, expected token ids")
        return tuple(ids)
