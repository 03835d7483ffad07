"""Qwen3 (dense): Llama's layer with an RMSNorm over each q and k head before RoPE."""

from __future__ import annotations

from .decoder import DecoderTarget


class Qwen3(DecoderTarget):
    """``DecoderTarget`` with ``config.qk_norm``."""
