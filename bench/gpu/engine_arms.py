"""The engine as the tables time it: decoding and prompts as a user meets them, and single passes of a target."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import torch
from shapes import Model

from specpilot import Engine, ops
from specpilot.engine.rows import Rows
from specpilot.models import ModelConfig


def check_shape(engine: Engine, model: Model) -> None:
    """Raises ValueError unless a pass of the engine is as much work as one of ``model``."""

    def sizes(c: ModelConfig) -> tuple[int, ...]:
        return (
            c.hidden_size,
            c.intermediate_size,
            c.num_heads,
            c.num_kv_heads,
            c.head_dim,
            c.num_layers,
            c.vocab_size,
        )

    got, want = sizes(engine.target.config), sizes(model.config)
    if got != want:
        raise ValueError(
            f"the target's {{hidden, intermediate, heads, kv heads, head width, layers, vocabulary}} are {got}, expected {want} "
            f"as in {model.name}: name another --model"
        )


def tokens(engine: Engine, n: int) -> list[int]:
    """A prompt of random ids."""
    chosen = random.Random(n)
    return [chosen.randrange(engine.target.config.vocab_size) for _ in range(n)]


def step_us(engine: Engine, context: int, steps: int) -> float:
    """µs of a one-token step behind a prompt of ``context`` tokens, by the engine's own clock: the decode loop is part of it."""
    result = engine.decode(
        tokens(engine, context), verify="ar", max_new_tokens=steps + 1, ignore_stop_ids=True
    )
    return result.stats.decode_seconds * 1e6 / steps


def prefill_us(engine: Engine, n: int) -> float:
    """µs from a prompt of ``n`` tokens to the first token of the answer."""
    result = engine.decode(tokens(engine, n), verify="ar", max_new_tokens=1, ignore_stop_ids=True)
    return result.stats.prefill_seconds * 1e6


def verify_pass(engine: Engine, width: int, context: int) -> Callable[[int], None]:
    """``width`` consecutive rows behind ``context`` positions through the target, up to the choice of a token after each row.

    Not within a request of the engine, nor one within it; K and V before the rows are whatever the cache holds.
    """
    target, vocab = engine.target, engine.target.config.vocab_size
    rows = Rows(width, engine._table)
    rows.put(tokens(engine, width))
    rows.chain(context, width)
    engine._table.release(0)  # alone in the cache, a request gets the same pages every time
    work = copy.copy(engine._work)
    work.final = engine._work.final.new_zeros(width, engine._work.final.shape[1])
    work.logits = engine._work.logits.new_zeros(width, vocab)
    choice = torch.zeros(width, dtype=torch.int32, device=work.logits.device)

    def run(_: int) -> None:
        target.forward(rows, width, engine._kv, work)
        target.logits(work, width)
        ops.argmax(work.logits, vocab, choice)

    return run


def fill_cache(engine: Engine) -> None:
    """Random K and V: zeros would draw less power, and so run at higher clocks."""
    for part in (engine._kv.k, engine._kv.v):
        part.normal_()


def pass_bytes(engine: Engine, context: int) -> int:
    """What a pass must read: layers and head, and K and V of the context. Its rows' own data is next to nothing."""
    target, config = engine.target, engine.target.config
    embedding = 0 if target.head is target.embedding else target.embedding.nbytes
    shape = target.shape
    kv = 4 * config.num_layers * shape.kv_heads * shape.head_dim * context
    return target.nbytes - embedding + kv
