"""Rotary position embedding: the parameters in a config and the cos/sin tables that follow from them.

The frequencies are transformers' own (``modeling_rope_utils``), and the tables are computed as its rotary
modules do, so that their bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .formats.errors import CheckpointError

_COMMON = {"rope_type", "rope_theta"}
_KEYS = {  # static scalings: what each reads
    "default": _COMMON,
    "linear": _COMMON | {"factor"},
    "llama3": _COMMON | {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": _COMMON
    | {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"}
    | {"mscale", "mscale_all_dim", "truncate"},
}
_REQUIRED = {"linear": {"factor"}, "llama3": _KEYS["llama3"] - _COMMON, "yarn": {"factor"}}
_DEFAULT_THETA = 10000.0  # transformers', for Llama and Qwen3


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rope parameters of a Hugging Face config, in the form of transformers 5, whichever form they have.

    transformers 5 writes ``rope_parameters``; before it, ``rope_theta`` and ``rope_scaling``. Scalings that
    depend on the length of the text (dynamic, longrope) are refused: KV entries would change as it grows.
    """
    found = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(found, Mapping):
        raise CheckpointError(f"config: rope parameters are {found!r}, expected a mapping")
    rope = {key: value for key, value in found.items() if value is not None}
    rope_type = rope.pop("type", None)
    rope.setdefault("rope_type", rope_type or "default")
    theta = config.get("rope_theta")
    rope.setdefault("rope_theta", _DEFAULT_THETA if theta is None else theta)
    if rope.pop("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError("config: rope partial_rotary_factor other than 1 is not supported")

    kind = rope["rope_type"]
    known = _KEYS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise CheckpointError(f"config: rope_type {kind!r} is not supported; supported: {', '.join(_KEYS)}")
    for key, value in rope.items():
        if key not in known:
            raise CheckpointError(
                f"config: rope parameter {key} = {value!r} is unknown for rope_type {kind!r}"
            )
        if key == "truncate" and not isinstance(value, bool):
            raise CheckpointError(f"config: rope parameter truncate is {value!r}, expected true or false")
        if key not in ("rope_type", "truncate") and not _positive(value):
            raise CheckpointError(f"config: rope parameter {key} is {value!r}, expected a positive number")
    for key in sorted(_REQUIRED.get(kind, set()) - set(rope)):
        raise CheckpointError(f"config: rope_type {kind!r} needs {key}")
    if kind == "llama3" and rope["high_freq_factor"] <= rope["low_freq_factor"]:
        raise CheckpointError("config: rope high_freq_factor must be greater than low_freq_factor")
    return rope


def rope_tables(
    rope: Mapping[str, Any], head_dim: int, max_position_embeddings: int, positions: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, bf16 [positions, head_dim / 2], of positions 0 … positions - 1.

    ``rope`` comes from :func:`rope_parameters`; yarn may refer to the config's ``max_position_embeddings``.
    """
    frequencies, scaling = _frequencies(rope, head_dim, max_position_embeddings)
    angles = torch.arange(positions)[:, None].float() * frequencies
    return (angles.cos() * scaling).bfloat16(), (angles.sin() * scaling).bfloat16()


def _frequencies(
    rope: Mapping[str, Any], head_dim: int, max_position_embeddings: int
) -> tuple[torch.Tensor, float]:
    if rope["rope_type"] == "default":
        return 1.0 / (rope["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)), 1.0
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=max_position_embeddings,
        rope_parameters=dict(rope),
    )
    return ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e38  # fp32
