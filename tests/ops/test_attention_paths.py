"""attention: a row's bits depend on the keys and values of its path by position, not on trees, splits, slots or batches."""

from __future__ import annotations

import pytest
import torch
from conftest import variants
from hypothesis import given, settings
from hypothesis import strategies as st
from paged import SHAPES, Batch, Cache, path, random_tree, shuffled_table, straight_table
from torch import Tensor

from specpilot import _C
from specpilot.ref import attention as ref

SPLIT = ref.SPLIT
VARIANTS = variants("attention")
FASTEST = next(name for name, _order, runs in _C.variants("attention") if runs and name.startswith("cpu"))
EDGES = [
    0,
    1,
    15,
    31,
    32,
    33,
    63,
    64,
    65,
    *range(SPLIT - 17, SPLIT + 2),
    2 * SPLIT - 1,
    2 * SPLIT,
    2 * SPLIT + 1,
]
NODES = 16
SHAPE = SHAPES["9x3x64"]


def queries(rows: int, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    return 2 * torch.randn(rows, shape[0], shape[2]).bfloat16()


def data(kind: str, positions: int, shape: tuple[int, int, int] = SHAPE, tail: int = NODES) -> Cache:
    make = {"random": Cache.random, "delicate": lambda *sizes: Cache.delicate(*sizes, tail=tail)}
    return make[kind](positions, *shape[1:])


def tree_rows(table: Tensor, prefix: int, parents: list[int], slots: list[int]) -> Batch:
    """A row a node; node i lies in slots[i]."""
    batch = Batch(table)
    for node in range(len(parents)):
        batch.add(0, prefix, [slots[i] for i in path(parents, node)])
    return batch


def as_plain_prefixes(batch: Batch, slots: int) -> Batch:
    """Every row as a request of its own whose slot table holds all that it sees."""
    table = torch.zeros(len(batch), slots, dtype=torch.int32)
    plain = Batch(table)
    for r in range(len(batch)):
        seen = batch.seen(r)
        table[r, : len(seen)] = seen
        plain.add(r, len(seen))
    return plain


def one_by_one(batch: Batch, q: Tensor, cache: tuple[Tensor, Tensor], variant: str) -> Tensor:
    return torch.cat(
        [batch.rows([r]).attention(q[r : r + 1], cache, 0.1, variant) for r in range(len(batch))]
    )


@pytest.mark.parametrize("length", [1, 5, 8])
def test_the_data_tell_orders_apart(length, monkeypatch):
    """Were the tail a partial of its own, or two keys swapped, the delicate data would show it."""
    torch.manual_seed(1)
    prefix = SPLIT - 8
    cache, q = data("delicate", prefix + length, tail=12), queries(1)[0]
    right = ref.attention_splits(q, cache.k, cache.v, 0.1)
    swapped = cache.v.clone()
    swapped[-2:] = cache.v[-2:].flip(0)
    assert (ref.attention_splits(q, cache.k, swapped, 0.1) != right).double().mean() > 0.05
    monkeypatch.setattr(ref, "SPLIT", prefix)
    assert (ref.attention_splits(q, cache.k, cache.v, 0.1) != right).double().mean() > 0.5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["random", "delicate"])
def test_tree_rows_are_the_rows_of_their_paths(variant, kind, assert_bits_equal):
    """Every node of a tree on every kind of border between prefix and tail, against its path written as plain prefix."""
    torch.manual_seed(2)
    size = 416
    for prefix in EDGES[:: 4 if variant == "cpu_ref" else 1]:
        by_position = data(kind, prefix + NODES)
        slots = torch.randperm(size)[: prefix + NODES].int()
        cache = by_position.at(slots, size).packed()
        for parents in (random_tree(NODES), list(range(-1, NODES - 1)), [-1] * NODES):
            batch = tree_rows(slots[None, :prefix].contiguous(), prefix, parents, slots[prefix:].tolist())
            q = queries(NODES)
            want = one_by_one(as_plain_prefixes(batch, size), q, cache, variant)
            assert_bits_equal(
                batch.attention(q, cache, 0.1, variant), want, f"prefix {prefix}, tree {parents}"
            )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["random", "delicate"])
def test_prompts_in_any_chunks(variant, kind, assert_bits_equal):
    """The rows of a prompt together, in chunks, and one by one as decoding sees them."""
    torch.manual_seed(3)
    length = 2 * SPLIT + 5
    cache = data(kind, length).at(torch.arange(length), 288).packed()
    rows = Batch(straight_table(1, length))
    for i in range(length):
        rows.add(0, i + 1)
    q = queries(length)
    want = one_by_one(rows, q, cache, variant)
    for chunk in (100,) if variant == "cpu_ref" else (7, 32, 64, 100, SPLIT, length):
        for first in range(0, length, chunk):
            some = list(range(first, min(first + chunk, length)))
            got = rows.rows(some).attention(q[some], cache, 0.1, variant)
            assert_bits_equal(got, want[some], f"chunk {chunk} from {first}")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", ["9x3x64", "6x2x80", "8x1x96"])
@pytest.mark.parametrize("kind", ["random", "delicate"])
def test_pages_lie_anywhere(variant, shape, kind, assert_bits_equal):
    torch.manual_seed(4)
    length, tail, size = 320, 12, 768
    by_position = data(kind, length + tail, SHAPES[shape], tail=36)
    q = queries(tail + 1, SHAPES[shape])
    want = None
    for page in (64, 32, 16, 8, 1, 2):
        table = shuffled_table(1, length, page, size - 64)
        tail_slots = (size - 64 + torch.randperm(64)[:tail]).int()
        cache = by_position.at(torch.cat([table[0], tail_slots]), size).packed()
        batch = tree_rows(table, length - 9, list(range(-1, tail - 1)), tail_slots.tolist())
        batch.add(0, length - 1)
        got = batch.attention(q, cache, 0.1, variant)
        want = got if want is None else want
        assert_bits_equal(got, want, f"pages of {page}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_requests_of_a_batch_do_not_meet(variant, assert_bits_equal):
    """Trees of four requests, their rows in turn, in any order and some of them twice."""
    torch.manual_seed(5)
    size, prefixes = 1024, (0, 40, SPLIT - 3, 200)
    cache = Cache.random(size, *SHAPE[1:]).packed()
    table = shuffled_table(4, 208, 8, size - 64)
    batch = Batch(table)
    for request, prefix in enumerate(prefixes):
        parents, slots = random_tree(12), (size - 64 + 16 * request + torch.randperm(16)).tolist()
        for node in range(12):
            batch.add(request, prefix, [slots[i] for i in path(parents, node)])
    q = queries(len(batch))
    want = one_by_one(batch, q, cache, variant)
    for order in (torch.arange(48), torch.arange(48).flip(0), torch.randperm(48), torch.randint(48, (90,))):
        got = batch.rows(order.tolist()).attention(q[order], cache, 0.1, variant)
        assert_bits_equal(got, want[order], f"rows {order.tolist()}")


@st.composite
def ragged_trees(draw):
    """[(prefix, parents)] of some requests, page size, seed of all the rest."""
    near = st.sampled_from(EDGES) | st.integers(0, 300)
    requests = []
    for _ in range(draw(st.integers(1, 4))):
        nodes = draw(st.integers(0, 12))
        parents = [draw(st.integers(-1, i - 1)) for i in range(nodes)]
        requests.append((draw(near), parents))
    return requests, draw(st.sampled_from([1, 2, 16, 32])), draw(st.integers(0, 2**31))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(ragged_trees())
def test_ragged_trees(case):
    """The fastest variant on any batch of trees, against the reference on its rows as plain prefixes."""
    requests, page, seed = case
    torch.manual_seed(seed)
    shape = SHAPES["6x2x80"]
    table = shuffled_table(len(requests), 320, page, 1280)
    batch = Batch(table)
    for request, (prefix, parents) in enumerate(requests):
        own = table[request, prefix:].tolist()  # anywhere, as long as nobody else's
        batch.add(request, prefix)
        for node in range(len(parents)):
            batch.add(request, prefix, [own[i] for i in path(parents, node)])
    batch = batch.rows(torch.randperm(len(batch)).tolist())
    cache = Cache.random(1280, *shape[1:])
    q = queries(len(batch), shape)
    got = batch.attention(q, cache.poisoned_outside(batch.used()).packed(), 0.1, FASTEST)
    want = as_plain_prefixes(batch, 320).attention(q, cache.packed(), 0.1, "cpu_ref")
    assert torch.equal(got.view(torch.int16), want.view(torch.int16))
