"""Decoder-only targets out of pre-norm layers with full attention: what Llama and Qwen3 have in common."""

from __future__ import annotations

from torch import Tensor

from .. import ops
from ..formats.run_layout import Format
from ..layers import Cache, LayerShape, Linear, Taps, run_layer
from ..loading import Loader, TensorSource, check_shape
from ..progress import ProgressCallback
from .base import Target, TargetRows, Work
from .config import ModelConfig, rope_tables


def layer_shape(config: ModelConfig) -> LayerShape:
    return LayerShape(
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        eps=config.rms_norm_eps,
        scale=config.softmax_scale,
        norm_denom=config.norm_denom,
        head_norm_denom=config.head_dim,
    )


def check_sizes(config: ModelConfig, checkpoint: TensorSource) -> None:
    """Refuses sizes that are not those of the checkpoint's tensors, before memory is planned by them."""
    shape, last = layer_shape(config), f"model.layers.{config.num_layers - 1}"
    check_shape(checkpoint, "model.embed_tokens.weight", config.vocab_size, shape.hidden)
    for name, heads in (("q_proj", shape.heads), ("k_proj", shape.kv_heads)):
        check_shape(checkpoint, f"{last}.self_attn.{name}.weight", heads * shape.head_dim, shape.hidden)
    check_shape(checkpoint, f"{last}.mlp.down_proj.weight", shape.hidden, shape.intermediate)


class DecoderTarget(Target):
    """Weights are taken from the checkpoint one tensor at a time, under the names of Hugging Face."""

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: TensorSource,
        weights: Format = "w12",
        max_position: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> None:
        self.config, self.shape = config, layer_shape(config)
        take = Loader(checkpoint, weights, progress)
        vocab, hidden = config.vocab_size, config.hidden_size
        self.embedding = take.table("model.embed_tokens", vocab, hidden)
        tables = rope_tables(config, max_position or config.max_position_embeddings)
        self.cos, self.sin = (t.to(self.device) for t in tables)
        self.layers = [
            take.layer(
                f"model.layers.{i}",
                self.shape,
                qkv_bias=config.attention_bias,
                out_bias=config.attention_bias,
                mlp_bias=config.mlp_bias,
                head_norms=config.qk_norm,
            )
            for i in range(config.num_layers)
        ]
        self.norm = take.tensor("model.norm.weight", hidden)
        if config.tie_word_embeddings:
            self.head = self.embedding
            take.skip("lm_head.weight")  # some files keep a second copy
        else:
            self.head = take.table("lm_head", vocab, hidden)
        self.head_linear = Linear(self.head)
        take.finish()

    def forward(self, rows: TargetRows, n: int, kv: Cache, work: Work, taps: Taps | None = None) -> None:
        hidden = work.hidden[:n]
        ops.embed(rows.ids[:n], *self.embedding.args, hidden)
        for i, layer in enumerate(self.layers):
            run_layer(layer, self.shape, rows, n, self.cos, self.sin, kv.k[i], kv.v[i], work)
            if taps is not None and i in taps.layers:
                column = taps.layers.index(i) * self.shape.hidden
                ops.gather_rows(hidden, None, taps.buffer[:n, column : column + self.shape.hidden])

    def logits(self, work: Work, n: int, index: Tensor | None = None) -> None:
        final = work.final[:n]
        if index is None:
            ops.rmsnorm(work.hidden[:n], self.norm, self.shape.eps, self.shape.norm_denom, final)
        else:
            ops.gather_rows(work.hidden, index, final)
            ops.rmsnorm(final, self.norm, self.shape.eps, self.shape.norm_denom, final)
        self.head_linear(final, work.logits[:n])

    @property
    def nbytes(self) -> int:
        head = 0 if self.head is self.embedding else self.head.nbytes
        return self.embedding.nbytes + head + sum(layer.nbytes for layer in self.layers)
