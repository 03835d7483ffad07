"""attention: every variant against its order's model (CUDA's: test_attention_cuda.py) and float64; rows see only their own."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import cpu_variants, variants
from paged import SHAPES, Batch, Cache, int32, shuffled_table, straight_table

from specpilot import _C
from specpilot.ops import capture
from specpilot.ref import attention as ref

VARIANTS = cpu_variants("attention")  # of one order
EVERY_VARIANT = variants("attention")
DIMS = SHAPES | {
    "2x1x1": (2, 1, 1),
    "3x1x7": (3, 1, 7),
    "4x2x256": (4, 2, 256),
    "2x2x512": (2, 2, 512),
    "70x1x16": (70, 1, 16),
}


def ragged(shape, rows=40, seed=1):
    """Rows of two requests over scattered pages, two in three with a tail."""
    torch.manual_seed(seed)
    hq, hkv, dim = DIMS[shape]
    cache = Cache.random(1024, hkv, dim)
    batch = Batch(shuffled_table(2, 384, 16, 1024))
    for r in range(rows):
        tail = torch.randperm(1024)[: int(torch.randint(0, 20, ()))].tolist() if r % 3 else []
        batch.add(r % 2 if r < 30 else 1, int(torch.randint(0, 300, ())), tail)
    return 2 * torch.randn(rows, hq, dim).bfloat16(), cache, batch


def prompt(rows, context):
    """The last rows of a sequence, as a prompt chunk or a chain sees them."""
    batch = Batch(straight_table(1, context + rows))
    for i in range(rows):
        batch.add(0, context + i + 1)
    return batch


@pytest.fixture
def same(assert_bits_equal):
    """Bits; which NaN a NaN is, is nobody's business."""

    def check(got, want, what=""):
        got, want = (torch.where(t.isnan(), torch.nan, t) for t in (got, want))
        assert_bits_equal(got, want, f"{what} [row, head, dim]")

    return check


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", DIMS)
def test_bits_of_the_reference(variant, shape, assert_bits_equal):
    q, cache, batch = ragged(shape)
    packed = cache.packed()
    for scale in (0.125, -0.03, 0.0):
        want = batch.attention(q, packed, scale, "cpu_ref")
        assert_bits_equal(batch.attention(q, packed, scale, variant), want, f"scale {scale}")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", DIMS)
def test_bits_are_the_orders(variant, shape, assert_bits_equal):
    q, cache, batch = ragged(shape, rows=8)
    out = batch.attention(q, cache.packed(), 0.1, variant)
    for r in range(len(batch)):
        seen = batch.seen(r)
        want = ref.attention_splits(q[r], cache.k[seen], cache.v[seen], 0.1)
        assert_bits_equal(out[r], want, f"row {r}, {len(seen)} keys")


@pytest.mark.parametrize("variant", EVERY_VARIANT)
@pytest.mark.parametrize("shape", DIMS)
def test_close_to_float64(variant, shape):
    if variant == "cuda" and DIMS[shape][2] > 256:
        pytest.skip("attention: cuda takes dims up to 256")
    q, cache, batch = ragged(shape, rows=12, seed=2)
    out = batch.attention(q, cache.packed(), 0.125, variant)
    for r in range(len(batch)):
        seen = batch.seen(r)
        want = ref.attention(q[r], cache.k[seen], cache.v[seen], 0.125)
        torch.testing.assert_close(out[r].double(), want, rtol=2**-6, atol=2**-8)


@pytest.mark.parametrize("variant", EVERY_VARIANT)
@pytest.mark.parametrize("shape", ["9x3x64", "8x1x96"])
def test_a_row_does_not_see_its_neighbours(variant, shape, assert_bits_equal):
    hq, hkv, dim = DIMS[shape]
    torch.manual_seed(3)
    cache = Cache.random(1024 + 64, hkv, dim).packed()
    chain = prompt(1024, 0)
    tree = Batch(straight_table(3, 300))
    for r in range(1024):
        length = int(torch.randint(1, 9, ()))
        tree.add(int(torch.randint(3, ())), 120 + r % 12, torch.randint(900, 1088, (length,)).tolist())
    for batch, rows in ((chain, 1024), (tree, 1024)):
        q = torch.randn(rows, hq, dim).bfloat16()
        some = sorted({*range(64), 64, 127, 128, 199, 255, 511, 1022, 1023})
        alone = {r: batch.rows([r]).attention(q[r : r + 1], cache, 0.1, variant)[0] for r in some}
        counts = [*range(1, 65), 65, 200, 1024] if variant != "cpu_ref" else [2, 17, 200]
        for count in counts:
            together = batch.rows(list(range(count))).attention(q[:count], cache, 0.1, variant)
            mine = [r for r in some if r < count]
            assert_bits_equal(together[mine], torch.stack([alone[r] for r in mine]), f"{count} rows")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
def test_threads_do_not_matter(variant, threads_used, threads, assert_bits_equal):
    threads(threads_used)
    torch.manual_seed(4)
    for shape, rows, context in (
        ("9x3x64", 1, 1500),
        ("9x3x64", 16, 1500),
        ("32x8x128", 3, 700),
        ("4x4x16", 200, 90),
    ):
        hq, hkv, dim = DIMS[shape]
        cache = Cache.random(2048, hkv, dim).packed()
        batch = prompt(rows, context)
        q = torch.randn(rows, hq, dim).bfloat16()
        want = batch.attention(q, cache, 0.1, "cpu_ref")
        for _ in range(3):
            assert_bits_equal(batch.attention(q, cache, 0.1, variant), want, f"{shape}, {rows} rows")


@pytest.mark.parametrize("variant", EVERY_VARIANT)
def test_what_is_not_seen_may_hold_anything(variant, assert_bits_equal):
    for shape in ("9x3x64", "6x2x80"):
        q, cache, batch = ragged(shape)
        want = batch.attention(q, cache.packed(), 0.1, variant)
        poisoned = cache.poisoned_outside(batch.used()).packed()
        assert_bits_equal(batch.attention(q, poisoned, 0.1, variant), want, f"{shape}, stale NaN")
        chain = Batch(straight_table(1, 300))
        for n in (1, 5, 31, 33, 40, 130, 131):  # the later rows' keys are poison for the earlier ones, too
            chain.add(0, n)
        want = chain.attention(q[:7], cache.packed(), 0.1, variant)
        for row in range(7):
            seen = chain.rows([row]).used()
            out = chain.attention(q[:7], cache.poisoned_outside(seen).packed(), 0.1, variant)
            assert_bits_equal(out[: row + 1], want[: row + 1], f"{shape}, NaN after row {row}")
            assert row == 6 or out[row + 1 :].isnan().all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_special_values_as_in_the_reference(variant, same):
    """NaN, infinities, subnormals and huge scores among what is seen."""
    for shape in ("9x3x64", "3x1x7"):
        q, cache, batch = ragged(shape)
        for value in (torch.nan, torch.inf, -torch.inf, 1e-39, 3e38):
            for name in "qkv":
                tensors = {"q": q.clone(), "k": cache.k.clone(), "v": cache.v.clone()}
                flat = tensors[name].view(-1)
                flat[torch.randint(len(flat), (len(flat) // 3000 + 2,))] = value
                packed = Cache(tensors["k"], tensors["v"]).packed()
                want = batch.attention(tensors["q"], packed, 0.1, "cpu_ref")
                same(batch.attention(tensors["q"], packed, 0.1, variant), want, f"{shape}, {value} in {name}")
        want = batch.attention(q, cache.packed(), 1e4, "cpu_ref")
        same(batch.attention(q, cache.packed(), 1e4, variant), want, f"{shape}, scores far apart")


@pytest.mark.parametrize("variant", EVERY_VARIANT)
def test_a_row_that_sees_nothing_is_zero(variant, assert_bits_equal):
    q, cache, batch = ragged("9x3x64", rows=5)
    cache = cache.packed()
    mixed = Batch(batch.table).add(0, 0).add(0, 300).add(1, 0).add(0, 0, [7, 9]).add(0, 0)
    out = mixed.attention(q, cache, 0.1, variant)
    assert_bits_equal(out[[0, 2, 4]], torch.zeros(3, 9, 64).bfloat16(), "zero")
    assert_bits_equal(out[[1, 3]], mixed.rows([1, 3]).attention(q[[1, 3]], cache, 0.1, variant), "the others")
    nothing = Batch(batch.table).add(0, 0).add(1, 0)
    assert_bits_equal(nothing.attention(q[:2], cache, 0.1, variant), torch.zeros(2, 9, 64).bfloat16(), "all")
    assert Batch(batch.table).attention(q[:0], cache, 0.1, variant).numel() == 0


def arguments():
    q, cache, _ = ragged("9x3x64", rows=3)
    return {
        "q": q,
        "k_cache": cache.packed()[0],
        "v_cache": cache.packed()[1],
        "slot_table": straight_table(2, 50),
        "request": int32([0, 1, 1]),
        "prefix": int32([50, 7, 3]),
        "tail_begin": int32([0, 0, 2, 3]),
        "tail_slots": int32([100, 101, 102]),
        "scale": 0.1,
        "dim": 64,
        "out": torch.full((3, 576), torch.nan).bfloat16(),
    }


@pytest.mark.parametrize("variant", EVERY_VARIANT)
def test_rows_of_a_wider_output(variant, assert_bits_equal):
    args = arguments()
    ops.attention(*args.values(), variant=variant)
    wide = torch.full((3, 700), 3.0).bfloat16()
    ops.attention(*(args | {"out": wide[:, 40:616]}).values(), variant=variant)
    assert_bits_equal(wide[:, 40:616], args["out"], "strided")
    assert (wide[:, :40] == 3).all() and (wide[:, 616:] == 3).all()


INDEX_ERRORS = [
    ("request", [0, 2, 1], r"request\[1\] is 2; expected 0 to 1"),
    ("request", [-1, 1, 1], r"request\[0\] is -1"),
    ("prefix", [50, 51, 3], r"prefix\[1\] is 51; expected 0 to 50"),
    ("prefix", [50, 7, -3], r"prefix\[2\] is -3"),
    (
        "slot_table",
        [list(range(50)), [0, 1, 2, 1024, *range(46)]],
        "slot_table row 1, entry 3, is 1024; expected 0 to 1023",
    ),
    ("slot_table", [[*range(49), -1], list(range(50))], "slot_table row 0, entry 49, is -1"),
    ("tail_begin", [0, 2, 1, 3], "tail_begin of row 1 and the next is 2, 1; expected ascending, 0 to 3"),
    ("tail_begin", [0, 0, 2, 4], "tail_begin of row 2 and the next is 2, 4"),
    ("tail_begin", [-1, 0, 2, 3], "tail_begin of row 0 and the next is -1, 0"),
    ("tail_slots", [100, 1024, 102], "tail_slots of row 1, entry 1, is 1024"),
    ("tail_slots", [100, 101, -1], "tail_slots of row 2, entry 2, is -1"),
]


def test_a_replayed_program_checks_what_it_reads(assert_bits_equal):
    args = arguments()
    with capture() as graph:
        ops.attention(*args.values())
    args["prefix"].copy_(int32([0, 31, 50]))
    args["request"].copy_(int32([1, 0, 0]))
    args["tail_slots"].copy_(int32([0, 1000, 33]))
    want = torch.empty_like(args["out"])
    ops.attention(*(args | {"out": want}).values(), variant="cpu_ref")
    graph.run()
    assert_bits_equal(args["out"], want, "replayed")
    args = arguments()
    with capture() as graph:
        ops.attention(*args.values())
    for name, bad, message in INDEX_ERRORS:
        good = args[name].clone()
        args[name].copy_(int32(bad))
        with pytest.raises(_C.KernelError, match=f"attention: {message}"):
            graph.run()
        args[name].copy_(good)
        assert args["out"].isnan().all(), "written in spite of the error"
    graph.run()


def test_contract_is_checked():
    args = arguments()
    k, v = args["k_cache"], args["v_cache"]
    for name, bad, message in [
        ("q", args["q"].float(), "q is float32"),
        ("q", args["q"][:, :, :32].contiguous(), r"q is bf16 \[3, 9, 32\].*64\]"),
        ("q", args["q"][:, :8].contiguous(), "q has 8 heads, k_cache 3; expected a multiple"),
        ("k_cache", k[:, :, :1].contiguous(), "k_cache is bf16"),
        ("v_cache", v[:9], r"v_cache is bf16 \[9, 3, 16, 128\].*\[32, 3, 16, 128\]"),
        ("slot_table", args["slot_table"].long(), "slot_table is int64"),
        ("request", int32([0, 1]), r"request is int32 \[2\].*\[3\]"),
        ("prefix", int32([0, 1]), r"prefix is int32 \[2\].*\[3\]"),
        ("tail_begin", None, "only one of tail_begin and tail_slots is given"),
        ("tail_begin", int32([0, 1, 2]), r"tail_begin is int32 \[3\].*\[4\]"),
        ("tail_slots", args["tail_slots"].float(), "tail_slots is float32"),
        ("scale", float("nan"), "scale is nan; expected a finite number"),
        ("dim", 0, "dim is 0; expected 1 to 512"),
        ("dim", 513, "dim is 513"),
        ("out", args["out"][:, :575], r"out is bf16 \[3, 575\]"),
        ("out", args["out"][:2], r"out is bf16 \[2, 576\]"),
    ]:
        with pytest.raises(_C.KernelError, match=f"attention: {message}"):
            ops.attention(*(args | {name: bad}).values())


def test_operator_registration():
    args = arguments()
    args["out"].zero_()
    torch.library.opcheck(torch.ops.specpilot.attention.default, tuple(args.values()))
