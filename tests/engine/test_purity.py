"""Position purity: logits, layer outputs and KV of a position depend on the tokens up to it, never on how they came in."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_engines
import tiny_targets
import torch
import traces
from gpu import DEVICES
from traces import N, pieces, sequence, trace

from specpilot import _C, load
from specpilot.engine import engine as engine_module

KINDS = {
    "llama": ("llama", {}),
    "llama-heads-80": ("llama", {"head_dim": 80, "num_hidden_layers": 2, "attention_bias": True}),
    "qwen3": ("qwen3", {}),
}
EDGES = [31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """kind → directory."""
    root = tmp_path_factory.mktemp("purity")
    return {
        name: tiny_targets.save(tiny_targets.stock(kind, **changes), root / name)
        for name, (kind, changes) in KINDS.items()
    }


@pytest.fixture(scope="module")
def whole(saved):
    """kind → (w12 target, its trace of the sequence token by token)."""
    found = {}
    for name, directory in saved.items():
        target = tiny_targets.target_of(directory, "w12")
        found[name] = target, trace(target, sequence(), pieces(1))
    return found


def compare(got: dict, want: dict, assert_bits_equal, what: str) -> None:
    for name in want:
        assert_bits_equal(got[name], want[name], f"{what}: {name}")


def first(n: int, found: dict) -> dict:
    """A trace of the first n positions."""
    return {name: value[:, :, :n] if name == "KV" else value[:n] for name, value in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_trace_tells_positions_apart(whole, kind):
    """What the other tests compare is not all zeros or one value."""
    for name, value in whole[kind][1].items():
        rows = value.movedim(2, 0).flatten(1) if name == "KV" else value
        assert len(rows) == N and rows.unique(dim=0).shape[0] == N, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [7, 31, 32, 33, 64, 100, 128, N])
def test_chunks_of_any_size(whole, kind, size, assert_bits_equal):
    target, want = whole[kind]
    compare(trace(target, sequence(), pieces(size)), want, assert_bits_equal, f"calls of {size}")


@pytest.mark.parametrize("kind", KINDS)
def test_random_chunks_in_scattered_pages(whole, kind, assert_bits_equal):
    target, want = whole[kind]
    pick = random.Random(7)
    for _ in range(3):
        ends = sorted({*pick.sample(range(1, N), 12), N})
        pages = pick.sample(range(-(-N // 32)), -(-N // 32))
        compare(trace(target, sequence(), ends, pages), want, assert_bits_equal, f"calls to {ends}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_may_end_at_any_edge(whole, kind, assert_bits_equal):
    """A prompt up to the edge, one token, then a block of 16."""
    target, want = whole[kind]
    for edge in EDGES:
        n = edge + 17
        got = trace(target, sequence()[:n], [edge, edge + 1, n])
        compare(got, first(n, want), assert_bits_equal, f"a prompt of {edge}")


def test_what_comes_later_changes_nothing_before(whole, assert_bits_equal):
    target, want = whole["llama"]
    for edge in EDGES:
        ids = [*sequence()[:edge], *reversed(sequence()[edge:])]
        got = trace(target, ids[: edge + 20], [edge + 20])
        compare(first(edge, got), first(edge, want), assert_bits_equal, f"before {edge}")


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_thread_counts(whole, threads, kind, count, assert_bits_equal):
    target, want = whole[kind]
    threads(count)
    for size in (1, 33, N):
        got = trace(target, sequence(), pieces(size))
        compare(got, want, assert_bits_equal, f"{count} threads, calls of {size}")


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_weights_have_the_bits_of_w12(saved, whole, kind, assert_bits_equal):
    target = tiny_targets.target_of(saved[kind], "bf16")
    for size in (1, 33, N):
        compare(trace(target, sequence(), pieces(size)), whole[kind][1], assert_bits_equal, "bf16")


TIERS = [name for name, _, runs in _C.variants("linear") if runs and name.startswith("cpu")]


@pytest.mark.parametrize("forced", [t for t in TIERS if t != _C.active_tier()])
def test_every_tier_has_the_same_bits(saved, forced):
    directories = [saved[kind] for kind in KINDS]
    program = [sys.executable, traces.__file__, *map(str, directories)]
    package = str(Path(_C.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "SPECPILOT_FORCE": forced, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    want = traces.digests(directories)
    assert done.stdout.split() == want and len(set(want)) == len(KINDS)


@pytest.mark.parametrize("device", DEVICES)
def test_an_engines_prefill_may_be_cut_anywhere(tmp_path, monkeypatch, assert_bits_equal, device):
    """Through ``load``: prompts around the size of a prefill call, and the decoding after them."""
    directory = tiny_engines.save_target(tmp_path / "t", text=False)
    ids = torch.randint(tiny_engines.VOCAB, (150,), generator=torch.Generator().manual_seed(5)).tolist()
    want = {}
    for chunk in (512, 1, 50, 149):
        monkeypatch.setattr(engine_module, "CHUNK", chunk)
        engine = load(directory, None, max_context=200, device=device)
        for n in (1, 32, 33, 128, 129, 150):
            tokens = engine.decode(ids[:n], max_new_tokens=20).tokens
            kv = tiny_engines.kv_at(engine._kv, torch.arange(n + 19))
            if chunk == 512:
                want[n] = tokens, kv
            assert tokens == want[n][0], (chunk, n)
            assert_bits_equal(kv, want[n][1], f"prompt of {n} in calls of {chunk}")
