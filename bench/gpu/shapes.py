"""The models and matrices that the tables are about."""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.layers import LayerShape
from specpilot.models import ModelConfig
from specpilot.models.decoder import layer_shape


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


_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "head_dim", "rms_norm_eps", "rope_theta")  # fmt: skip
_LLAMA, _QWEN3 = "LlamaForCausalLM", "Qwen3ForCausalLM"


def _model(name: str, architecture: str, *values: float) -> Model:
    config = dict(zip(_KEYS, values, strict=True))
    fixed = {"architectures": [architecture], "max_position_embeddings": 40960, "tie_word_embeddings": False}
    return Model(name, ModelConfig.from_dict({**config, **fixed}))


QWEN3_8B = _model("qwen3-8b", _QWEN3, 151936, 4096, 12288, 36, 32, 8, 128, 1e-6, 1e6)
LLAMA_31_8B = _model("llama-3.1-8b", _LLAMA, 128256, 4096, 14336, 32, 32, 8, 128, 1e-5, 5e5)
SMOLLM2 = _model("smollm2-135m", _LLAMA, 49152, 576, 1536, 30, 9, 3, 64, 1e-5, 1e5)
TINY = _model("tiny", _QWEN3, 512, 128, 192, 2, 4, 2, 32, 1e-6, 1e6)  # of dry runs
MODELS = {m.name: m for m in (QWEN3_8B, LLAMA_31_8B, SMOLLM2, TINY)}
