"""All that a target leaves behind for a sequence, by position, however the sequence was cut into calls.

Run as a program, it prints digests of checkpoints' traces: what a process with another SPECPILOT_FORCE must print, too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny_targets
import torch
from tiny_engines import kv_at

from specpilot.engine.kv_cache import KvCache, PagePool
from specpilot.engine.rows import Rows, SlotTable
from specpilot.layers import Taps
from specpilot.models import Work

N = 290  # two attention splits and a part of the third


def sequence(n: int = N) -> list[int]:
    return torch.randint(tiny_targets.VOCAB, (n,), generator=torch.Generator().manual_seed(4)).tolist()


def pieces(size: int, n: int = N) -> list[int]:
    """Ends of calls of ``size`` rows."""
    return [*range(size, n, size), n]


def trace(target, ids: Sequence[int], ends: Sequence[int], pages: Sequence[int] | None = None) -> dict:
    """Logits and layer outputs of every position, K and V, from calls that end at ``ends``."""
    n, layers, shape = len(ids), range(target.config.num_layers), target.shape
    kv = KvCache(len(layers), shape.kv_heads, shape.head_dim, n, target.device)
    pool = PagePool(pages) if pages else PagePool.of(kv.pages)
    rows = Rows(n, SlotTable(pool, 1, n, target.device))
    work = Work(shape, target.config.vocab_size, n, n, target.device)
    logits, taps = [], []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        count = end - begin
        buffer = torch.zeros(count, len(layers) * shape.hidden, dtype=torch.bfloat16, device=target.device)
        tap = Taps(layers, buffer)
        rows.put(ids[begin:end])
        rows.chain(begin, count)
        target.forward(rows, count, kv, work, tap)
        target.logits(work, count)
        logits.append(work.logits[:count].clone())
        taps.append(tap.buffer)
    slots = rows.slot_table[0, :n]
    return {"logits": torch.cat(logits), "layer outputs": torch.cat(taps), "KV": kv_at(kv, slots)}


def digest(found: dict) -> str:
    """Of all bits of a trace."""
    h = hashlib.sha256()
    for value in found.values():
        h.update(value.contiguous().view(torch.int16).numpy().tobytes())
    return h.hexdigest()


def digests(directories: Sequence[Path]) -> list[str]:
    """The traces of checkpoints over more than one attention split: some rows at once, and one at a time around its border."""
    ends = [33, 100, *range(124, 132), 150]
    return [digest(trace(tiny_targets.target_of(Path(d)), sequence(150), ends)) for d in directories]


if __name__ == "__main__":
    print("\n".join(digests([Path(d) for d in sys.argv[1:]])))
