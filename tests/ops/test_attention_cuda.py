"""attention on CUDA: its values against float64, and its own order: a row's bits are those of the row alone, as plain prefix."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants
from paged import Batch, Cache, int32, padded, path, random_tree, shuffled_table, straight_table
from torch import Tensor

from specpilot.ref import attention as ref

VARIANTS = variants("attention", "cuda")
SPLIT = ref.SPLIT
EDGES = [
    0,
    1,
    2,
    15,
    16,
    17,
    100,
    SPLIT - 17,
    *range(SPLIT - 3, SPLIT + 3),
    *range(2 * SPLIT - 1, 2 * SPLIT + 2),
]
SHAPES = {  # query heads, kv heads
    "9x3": (9, 3),
    "32x8": (32, 8),
    "4x4": (4, 4),
}
SCALE = 0.1

pytestmark = pytest.mark.parametrize("variant", VARIANTS)


def queries(rows: int, heads: int, dim: int) -> Tensor:
    return 2 * torch.randn(rows, heads, dim).bfloat16()


def chain(prefixes: list[int], length: int) -> Batch:
    batch = Batch(straight_table(1, length))
    for prefix in prefixes:
        batch.add(0, prefix)
    return batch


def alone(batch: Batch, q: Tensor, cache: tuple[Tensor, Tensor], variant: str) -> Tensor:
    """Every row by itself, all that it sees as plain prefix of a request of its own."""
    out = []
    for r in range(len(batch)):
        seen = batch.seen(r).int()[None]
        out.append(Batch(seen).add(0, seen.shape[1]).attention(q[r : r + 1], cache, SCALE, variant))
    return torch.cat(out)


def assert_near(out: Tensor, q: Tensor, cache: Cache, batch: Batch) -> None:
    """e and out are rounded to bf16, to within 2^-8 of themselves; 2^-12 is for the fp32 sums, the scores' in exp too."""
    for r in range(len(batch)):
        seen = batch.seen(r)
        k, v = cache.k[seen], cache.v[seen]
        want, weight = ref.attention(q[r], k, v, SCALE), ref.attention(q[r], k, v.abs(), SCALE)
        bound = (2**-8 + 2**-12) * weight + 1.01 * 2**-8 * want.abs() + 1e-30
        off = (out[r].double() - want).abs()
        assert (off <= bound).all(), f"row {r}, {len(seen)} keys: {(off / bound).max():.2f} of the bound"


@pytest.mark.parametrize("dim", [1, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("shape", SHAPES)
def test_close_to_float64(variant, shape, dim):
    torch.manual_seed(1)
    hq, hkv = SHAPES[shape]
    cache = Cache.random(1024, hkv, dim)
    batch = Batch(shuffled_table(2, 384, 16, 1024))
    for i, prefix in enumerate([1, 5, 127, 128, 129, 255, 256, 257, 383, 384]):
        batch.add(i % 2, prefix, torch.randperm(1024)[: i % 3 * 9].tolist())
    q = queries(len(batch), hq, dim)
    assert_near(batch.attention(q, cache.packed(), SCALE, variant), q, cache, batch)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["random", "delicate"])
def test_a_chain_is_its_rows_one_at_a_time(variant, shape, dim, kind, assert_bits_equal):
    torch.manual_seed(2)
    hq, hkv = SHAPES[shape]
    cache = Cache.random(300, hkv, dim) if kind == "random" else Cache.delicate(300, hkv, dim, 9)
    packed = cache.at(torch.arange(300), 320).packed()
    for rows, first in ((2, 127), (5, 126), (16, 120), (16, 250), (33, 100), (64, 200), (200, 57), (257, 1)):
        batch = chain(list(range(first, first + rows)), 300)
        q = queries(rows, hq, dim)
        want = alone(batch, q, packed, variant)
        assert_bits_equal(batch.attention(q, packed, SCALE, variant), want, f"{rows} rows from {first}")


@pytest.mark.parametrize("kind", ["random", "delicate"])
def test_tree_rows_are_the_rows_of_their_paths(variant, kind, assert_bits_equal):
    """Every kind of border between prefix and tail; the tails of some nodes span two splits."""
    torch.manual_seed(3)
    nodes, size = 20, 416
    for prefix in EDGES:
        positions = prefix + nodes
        cache = Cache.random(positions, 3, 64) if kind == "random" else Cache.delicate(positions, 3, 64, 30)
        slots = torch.randperm(size)[:positions].int()
        packed = cache.at(slots, size).packed()
        for parents in (random_tree(nodes), list(range(-1, nodes - 1)), [-1] * nodes):
            batch = Batch(slots[None, :prefix].contiguous())
            for node in range(nodes):
                batch.add(0, prefix, [int(slots[prefix + i]) for i in path(parents, node)])
            q = queries(nodes, 9, 64)
            want = alone(batch, q, packed, variant)
            got = batch.attention(q, packed, SCALE, variant)
            assert_bits_equal(got, want, f"prefix {prefix}, tree {parents}")


@pytest.mark.parametrize("shape", SHAPES)
def test_ragged_batches_are_single_requests(variant, shape, assert_bits_equal):
    """Rows of many requests, some in runs, some with tails, some empty, in any order, up to 200."""
    torch.manual_seed(4)
    hq, hkv = SHAPES[shape]
    cache = Cache.random(2048 + 64, hkv, 64)
    batch = Batch(shuffled_table(6, 320, 4, 2048))
    while len(batch) < 200:
        request, prefix = int(torch.randint(6, ())), int(torch.randint(300, ()))
        for i in range(int(torch.randint(1, 20, ()))):
            tail = (2048 + torch.randperm(64)[: int(torch.randint(20, ()))]).tolist()
            batch.add(request, prefix + i if i % 7 else 0, tail if prefix % 2 else [])
    batch = batch.rows(list(range(200)))
    q = queries(200, hq, 64)
    packed = cache.poisoned_outside(batch.used()).packed()
    want = alone(batch, q, packed, variant)
    for order in (torch.arange(200), torch.randperm(200), torch.arange(17), torch.randint(200, (64,))):
        got = batch.rows(order.tolist()).attention(q[order], packed, SCALE, variant)
        assert_bits_equal(got, want[order], f"rows {order.tolist()}")


def test_long_contexts(variant, assert_bits_equal):
    """More splits than the fold takes at once; one row, few and enough for one block to walk all splits."""
    torch.manual_seed(5)
    length = 140 * SPLIT + 7
    cache = Cache.random(length + 25, 2, 32)
    packed, q = cache.packed(), queries(16, 4, 32)
    prefixes = [length - i for i in range(8)] + [i * 1999 for i in range(8)]
    batch = chain(prefixes, length)
    got = batch.attention(q, packed, SCALE, variant)
    assert_near(got[:9], q, cache, batch.rows(list(range(9))))
    assert_bits_equal(alone(batch, q, packed, variant), got, "alone")
    pick = torch.arange(1024) % 16
    many = batch.rows(pick.tolist()).attention(q[pick], packed, SCALE, variant)
    assert_bits_equal(many, got[pick], "1024 rows")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [64, 128])
def test_rows_that_fill_the_machine(variant, shape, dim, assert_bits_equal):
    """1024 rows of one request: blocks that walk splits give the bits of split-K."""
    torch.manual_seed(6)
    hq, hkv = SHAPES[shape]
    packed = Cache.random(1024, hkv, dim).packed()
    batch = chain(list(range(1, 1025)), 1024)
    q = queries(1024, hq, dim)
    together = batch.attention(q, packed, SCALE, variant)
    for first in range(0, 1024, 60):
        rows = list(range(first, min(first + 7, 1024)))
        got = batch.rows(rows).attention(q[rows], packed, SCALE, variant)
        assert_bits_equal(together[rows], got, f"rows {rows}")


@pytest.mark.parametrize("dim", [64, 96])
def test_pages_lie_anywhere(variant, dim, assert_bits_equal):
    torch.manual_seed(7)
    length, size = 320, 768
    by_position, q = Cache.delicate(length, 2, dim, 40), queries(12, 8, dim)
    want = None
    for page in (64, 32, 16, 8, 4, 2, 1):
        table = shuffled_table(1, length, page, size)
        packed = by_position.at(table[0], size).packed()
        batch = Batch(table)
        for i in range(12):
            batch.add(0, length - 70 + 6 * i)
        got = batch.attention(q, packed, SCALE, variant)
        want = got if want is None else want
        assert_bits_equal(got, want, f"pages of {page}")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_later_keys_do_not_reach_a_row(variant, value, assert_bits_equal):
    """Rows that share a split, some of which do not see keys or values that are no ordinary numbers."""
    torch.manual_seed(8)
    cache, q = Cache.random(320, 2, 64), queries(20, 8, 64)
    batch = chain([120 + i for i in range(12)] + [3, 0, 320, 200, 255, 256, 257, 40], 320)
    want = batch.attention(q, cache.packed(), SCALE, variant)
    for position in (319, 256, 255, 130, 128, 127, 125, 41):
        for k, v in ((cache.k.clone(), cache.v), (cache.k, cache.v.clone())):
            changed = k if v is cache.v else v
            changed[position, 1] = value
            packed = Cache(k, v).packed()
            got = batch.attention(q, packed, SCALE, variant)
            blind = [r for r in range(20) if batch.prefix[r] <= position]
            assert_bits_equal(got[blind], want[blind], f"{value} at {position}")
            apart = torch.cat(
                [batch.rows([r]).attention(q[r : r + 1], packed, SCALE, variant) for r in range(20)]
            )
            assert_bits_equal(got.nan_to_num(7), apart.nan_to_num(7), f"{value} at {position}, row by row")


def test_caches_at_any_address(variant, assert_bits_equal):
    torch.manual_seed(9)
    cache, q = Cache.random(320, 3, 64).packed(), queries(9, 9, 64)
    batch = chain(list(range(125, 134)), 320)
    want = batch.attention(q, cache, SCALE, variant)
    for offset in (1, 2, 4):
        moved = [
            torch.empty(t.numel() + offset, dtype=t.dtype)[offset:].view(t.shape).copy_(t) for t in cache
        ]
        assert_bits_equal(batch.attention(q, (moved[0], moved[1]), SCALE, variant), want, f"offset {offset}")


def test_what_is_out_of_range_is_not_seen(variant, assert_bits_equal):
    torch.manual_seed(10)
    cache, q = Cache.random(96, 3, 64).poisoned_outside(torch.arange(80)), queries(7, 9, 64)
    table = straight_table(2, 40)
    table[1, 39], table[1, 38] = 96, -1
    request, prefix = [0, 2, -1, 0, 0, 1, 0], [20, 20, 20, -5, 99, 40, 10]
    begin, tails = [0, 0, 0, 0, 0, 0, 2, 9], [50, -1, 51]
    out = torch.full((7, 576), torch.nan).bfloat16()
    indices = (table, int32(request), int32(prefix), int32(begin), int32(tails))
    ops.attention(padded(q), *cache.packed(), *indices, SCALE, 64, out, variant=variant)
    good = Batch(straight_table(1, 64)).add(0, 20).add(0, 0).add(0, 0).add(0, 0).add(0, 40)
    assert_bits_equal(
        out[:5].view(5, 9, 64), good.attention(q[:5], cache.packed(), SCALE, variant), "rows 0 to 4"
    )
    assert not out[5].isnan().any()  # holes at 38, 39 and in its tail; the order knows no such row
    want = Batch(table).add(0, 10).attention(q[6:], cache.packed(), SCALE, variant)
    assert_bits_equal(out[6:].view(1, 9, 64), want, "a tail out of range")


def test_calls_leave_nothing_behind(variant, assert_bits_equal):
    """Records of a call, of many splits and of few, do not reach the next."""
    torch.manual_seed(11)
    length = 40 * SPLIT
    packed, q = Cache.random(length, 2, 64).packed(), queries(64, 8, 64)
    shapes = [
        chain([length - 63 + i for i in range(64)], length),
        chain([length], length),
        chain([1], length),
    ]
    want = [b.attention(q[: len(b)], packed, SCALE, variant) for b in shapes]
    for _ in range(3):
        for i, batch in enumerate(shapes):
            got = batch.attention(q[: len(batch)], packed, SCALE, variant)
            assert_bits_equal(got, want[i], f"shape {i}")
