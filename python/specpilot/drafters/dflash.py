"""DFlash: a block of masks, filled in by one pass over the target's hidden states and the anchor.

The context of a layer is its K and V of ``hidden_norm(fc(taps))``, one row a committed position; the block's own rows see that
context and, where a layer is not causal, each other in both directions. Rows of the block write K and V to the positions they
stand for, and the context of those positions overwrites them once they are committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..formats.q8_weight import DrafterFormat
from ..layers import LayerWork, run_layer
from ..loading import Loader, TensorSource
from ..progress import ProgressCallback
from ..rope import rope_tables
from .base import Drafter, DraftRows, Memory, TargetParts
from .dflash_config import DFlashConfig


class DFlashDraftModel(Drafter):
    """The published checkpoint: ``fc``, ``hidden_norm``, ``layers.*``, ``norm``; embedding and head are the target's.

    With ``weights="q8"`` the linear layers and a copy of the head are rounded to 8 bits: it drafts a little differently.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | DFlashConfig,
        checkpoint: TensorSource,
        target: TargetParts,
        weights: DrafterFormat = "q8",
        progress: ProgressCallback | None = None,
    ) -> None:
        c = config if isinstance(config, DFlashConfig) else DFlashConfig.from_dict(config, checkpoint.source)
        self.config = c
        c.check_target(target, checkpoint.source)
        self.source, self.target, self.shape = checkpoint.source, target, c.shape
        self.block_size, self.tap_layers = c.block_size, c.tap_layers

        take = Loader(checkpoint, weights, progress)
        hidden, kv = c.shape.hidden, c.shape.kv_heads * c.shape.head_dim
        # A few channels of the target's hidden states are so large that 8 bits would leave the others too few levels.
        self.fc = take.linear([("fc", hidden)], len(c.tap_layers) * hidden, exact=True)
        self.hidden_norm = take.tensor("hidden_norm.weight", hidden)
        bias = c.attention_bias
        self.layers = [
            take.layer(f"layers.{i}", c.shape, qkv_bias=bias, out_bias=bias, mlp_bias=False, head_norms=True)
            for i in range(c.layers)
        ]
        # All layers read the same context rows, so their K and V are one product; a second copy of those rows of qkv.
        parts = [(f"layers.{i}.self_attn.{name}_proj", kv) for i in range(c.layers) for name in "kv"]
        self.context_kv = take.linear(parts, hidden, bias)
        self.norm = take.tensor("norm.weight", hidden)
        self.head = take.copy(target.head, "the target's head")
        take.finish()

    def allocate(self, memory: Memory) -> None:
        c, positions = self.config, memory.max_context + self.block_size
        if c.window and positions > c.window:
            raise ValueError(
                f"drafter {self.source} has layers with a sliding window of {c.window}, which is supported only while it does not "
                f"slide: use max_context <= {c.window - self.block_size}, not {memory.max_context}, or drafter=None"
            )

        def buffer(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=torch.bfloat16)

        self._cos, self._sin = rope_tables(c.rope, c.shape.head_dim, c.max_position, positions)
        self._kv = memory.kv(c.layers, c.shape.kv_heads, c.shape.head_dim)
        self._context, self._block = memory.rows(memory.context_rows), memory.rows(self.block_size)
        self._causal = memory.rows(self.block_size) if any(c.causal) else self._block
        apart = self._causal if self._causal is not self._block else None
        self.rows = DraftRows(self._context, self._block, apart)
        self._block.ids[1:] = c.mask_token
        self._work = LayerWork(c.shape, self.block_size)
        self._context_hidden = buffer(memory.context_rows, c.shape.hidden)
        self._context_out = buffer(memory.context_rows, self.context_kv.weight.n)
        self._no_q = buffer(memory.context_rows, 0, c.shape.padded_dim)
        self._logits = buffer(self.block_size - 1, self.target.vocab)

    def place_context(self, start: int, n: int) -> None:
        self._context.place(start, n)

    def extend(self, taps: Tensor, n: int) -> None:
        shape, rows, hidden = self.shape, self._context, self._context_hidden[:n]
        self.fc(taps[:n], hidden)
        ops.rmsnorm(hidden, self.hidden_norm, shape.eps, shape.norm_denom, hidden)
        self.context_kv(hidden, self._context_out[:n])
        width = 2 * shape.kv_heads * shape.head_dim
        for i, layer in enumerate(self.layers):
            kv = self._context_out[:n, i * width : (i + 1) * width]
            ops.rope_kv(
                kv, self._cos, self._sin, rows.positions[:n], rows.slots[:n], layer.q_norm, layer.k_norm, shape.eps,
                shape.head_norm_denom, shape.head_dim, self._no_q[:n], self._kv.k[i], self._kv.v[i],
            )  # fmt: skip

    def place_block(self, start: int, anchor: int) -> None:
        self._block.block(start, self.block_size)
        self._block.put([anchor])
        if self._causal is not self._block:
            self._causal.chain(start, self.block_size)

    def draft(self, ids: Tensor, margins: Tensor) -> None:
        n, wanted, shape, work = self.block_size, ids.shape[0], self.shape, self._work
        ops.embed(self._block.ids, *self.target.embedding.args, work.hidden)
        for i, layer in enumerate(self.layers):
            rows = self._causal if self.config.causal[i] else self._block
            keep = wanted + 1 if i == len(self.layers) - 1 else None
            run_layer(layer, shape, rows, n, self._cos, self._sin, self._kv.k[i], self._kv.v[i], work, keep)
        final, logits = work.normed[:wanted], self._logits[:wanted]
        ops.rmsnorm(work.hidden[1 : wanted + 1], self.norm, shape.eps, shape.norm_denom, final)
        self.head(final, logits)
        ops.argmax(logits, self.config.valid_vocab, ids, margins)

    @property
    def nbytes(self) -> int:
        head = 0 if self.head.weight is self.target.head else self.head.nbytes
        return self.fc.nbytes + self.context_kv.nbytes + head + sum(layer.nbytes for layer in self.layers)
