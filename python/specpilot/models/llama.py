"""Llama: RoPE, grouped-query attention, SwiGLU; biases where the config has them."""

from __future__ import annotations

from .decoder import DecoderTarget


class Llama(DecoderTarget):
    """``DecoderTarget`` as it is."""
