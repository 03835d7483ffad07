"""The models and matrices that the tables are about."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpilot.layers import LayerShape
from specpilot.models import ModelConfig
from specpilot.models.decoder import layer_shape

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for what bench/ shares
from subjects import shapes  # noqa: E402


@dataclass(frozen=True)
class Matrix:
    """A weight [n, k]."""

    name: str
    n: int
    k: int

    @property
    def bf16_bytes(self) -> int:
        return 2 * self.n * self.k

    def __str__(self) -> str:
        return f"{self.n}x{self.k}"


@dataclass(frozen=True)
class Model:
    """A decoder by its Hugging Face config."""

    name: str
    config: ModelConfig

    @property
    def layer(self) -> LayerShape:
        return layer_shape(self.config)

    @property
    def layer_matrices(self) -> list[Matrix]:
        """The linears of a layer, fused as engines fuse them."""
        s = self.layer
        return [
            Matrix("qkv", s.qkv, s.hidden),
            Matrix("o", s.hidden, s.heads * s.head_dim),
            Matrix("gate|up", 2 * s.intermediate, s.hidden),
            Matrix("down", s.hidden, s.intermediate),
        ]

    @property
    def head(self) -> Matrix:
        return Matrix("head", self.config.vocab_size, self.layer.hidden)

    def kv_bytes(self, context: int) -> int:
        """K and V of one layer, bf16."""
        return 4 * context * self.layer.kv_heads * self.layer.head_dim


SMOLLM2_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e5,
    "tie_word_embeddings": True,
}


def _model(name: str, config: Mapping[str, Any]) -> Model:
    return Model(name, ModelConfig.from_dict(dict(config)))


QWEN3_8B, LLAMA_31_8B = (_model(name, shapes.TARGETS[name]) for name in ("qwen3-8b", "llama-3.1-8b"))
SMOLLM2 = _model("smollm2-135m", SMOLLM2_CONFIG)
TINY = _model("tiny", {**shapes.TARGETS["qwen3-8b"], **shapes.TINY, "num_hidden_layers": 2})  # of dry runs
MODELS = {m.name: m for m in (QWEN3_8B, LLAMA_31_8B, SMOLLM2, TINY)}
