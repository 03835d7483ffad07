"""The models and matrices that the tables are about."""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.layers import LayerShape


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
    """A decoder of equal layers. ``head_norms``: an RMSNorm over each q and k head, as Qwen3 has."""

    name: str
    layer: LayerShape
    layers: int
    vocab: int
    theta: float
    head_norms: bool = False

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
        return Matrix("head", self.vocab, self.layer.hidden)

    def kv_bytes(self, context: int) -> int:
        """K and V of one layer, bf16."""
        return 4 * context * self.layer.kv_heads * self.layer.head_dim


def _layer(
    hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, eps: float
) -> LayerShape:
    return LayerShape(hidden, intermediate, heads, kv_heads, head_dim, eps, head_dim**-0.5)


QWEN3_8B = Model("qwen3-8b", _layer(4096, 12288, 32, 8, 128, 1e-6), 36, 151936, 1e6, head_norms=True)
LLAMA_31_8B = Model("llama-3.1-8b", _layer(4096, 14336, 32, 8, 128, 1e-5), 32, 128256, 5e5)
SMOLLM2 = Model("smollm2-135m", _layer(576, 1536, 9, 3, 64, 1e-5), 30, 49152, 1e5)
TINY = Model("tiny", _layer(64, 96, 4, 2, 32, 1e-6), 2, 128, 1e4, head_norms=True)  # of dry runs
MODELS = {m.name: m for m in (QWEN3_8B, LLAMA_31_8B, SMOLLM2, TINY)}
