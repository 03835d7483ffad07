"""SpecPilot: lossless speculative decoding. The tokens of every mode are those of one-token decoding, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import _C
from ._C import KernelError
from .devices import DeviceError
from .engine import Engine, Result, TextIterator, load
from .engine.prompt import Prompt

__all__ = ["DeviceError", "Engine", "KernelError", "Result", "TextIterator", "decode", "load", "order_id"]

order_id: str = _C.order_id

_engine = lru_cache(maxsize=1)(load)


def decode(
    prompt: Prompt | Sequence[Prompt],
    target: str | Path = "smollm2-135m",
    drafter: str | Path | None = "auto",
    *,
    weights: str = "w12",
    drafter_weights: str = "q8",
    device: str = "cpu",
    max_context: int | None = None,
    threads: int | None = None,
    to_bf16: bool = False,
    progress: bool = False,
    **options: Any,
) -> Any:
    """Decodes a prompt (a string, messages, or token ids) or a list of prompts: a ``Result``, or a list of them.

    ``target`` … ``progress`` are those of :func:`load`; options are max_new_tokens=256, verify="auto" ("chain", "ar"), stop=(),
    system=None, enable_thinking=None, ignore_stop_ids=False, temperature=0.0, seed=None. The engine of the last call is kept, so
    that repeated calls load once; :func:`load` gives one that you hold yourself.
    """
    engine = _engine(
        target,
        drafter,
        weights=weights,
        drafter_weights=drafter_weights,
        device=device,
        max_context=max_context,
        threads=threads,
        to_bf16=to_bf16,
        progress=progress,
    )
    return engine.decode(prompt, **options)
