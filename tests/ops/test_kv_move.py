"""kv_move: the caches unpacked to plain tensors and moved by indexing; overlap in every direction."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants

from specpilot import _C
from specpilot.ref.kv_move import kv_move as kv_move_ref
from specpilot.ref.kv_move import unpack_k, unpack_v

VARIANTS = variants("kv_move")
BF16 = torch.bfloat16


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


def caches(layers=2, blocks=4, heads=2, dim=64):
    g = torch.Generator().manual_seed(layers)
    shapes = ((layers, blocks, heads, 2, dim // 2, 32), (layers, blocks, heads, 16, 2 * dim))
    return [torch.randint(-32768, 32768, s, generator=g).to(torch.int16).view(BF16) for s in shapes]


def check(source, target, k, v, variant, equal):
    want_k, want_v = kv_move_ref(source, target, k, v)
    ops.kv_move(source, target, k, v, variant=variant)
    equal(unpack_k(k), want_k, "k [layer, slot, head, dim]")
    equal(unpack_v(v), want_v, "v [layer, slot, head, dim]")


def test_the_oracle_reads_the_layout_of_the_contract():
    """Element by element, as rope_kv.h words it."""
    k, v = (t.view(torch.int16) for t in caches(dim=32))
    for layer, slot, head, d in [(0, 0, 0, 0), (1, 37, 1, 5), (0, 127, 1, 31), (1, 50, 0, 16), (0, 15, 0, 1)]:
        block, t = divmod(slot, 32)
        assert unpack_k(k)[layer, slot, head, d] == k[layer, block, head, t // 16, d // 2, t % 16 * 2 + d % 2]
        assert unpack_v(v)[layer, slot, head, d] == v[layer, block, head, t // 2, d * 2 + t % 2]


MOVES = {
    "shift down": (list(range(10, 60)), list(range(7, 57))),
    "shift up": (list(range(10, 60)), list(range(13, 63))),
    "shift down by a block": (list(range(32, 128)), list(range(96))),
    "swap": ([3, 40], [40, 3]),
    "cycle": ([5, 90, 33, 16], [90, 33, 16, 5]),
    "reverse": (list(range(128)), list(range(127, -1, -1))),
    "one source for many": ([9, 9, 9, 9], [8, 9, 10, 100]),
    "in place": ([1, 2, 3], [1, 2, 3]),
    "skipped": ([-1, 4, -1, 6], [5, -1, -1, 7]),
    "the same target, skipped once": ([-1, 4, 6], [7, 7, 8]),
    "nothing": ([], []),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("move", MOVES)
def test_overlapping_moves(variant, move, assert_bits_equal):
    source, target = MOVES[move]
    check(i32(source), i32(target), *caches(), variant, assert_bits_equal)


SHAPES = [(1, 1, 1, 32), (3, 5, 3, 64), (3, 9, 8, 128), (30, 2, 3, 64), (1, 100, 2, 32), (1, 440, 1, 32)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", SHAPES)
def test_random_moves(variant, threads_used, shape, threads, assert_bits_equal):
    threads(threads_used)
    g = torch.Generator().manual_seed(threads_used)
    k, v = caches(*shape)
    slots = 32 * shape[1]
    for count in (1, 16, slots):
        source = torch.randint(-1, slots, (count,), generator=g).int()
        target = torch.randperm(slots, generator=g)[:count].int()
        target[torch.rand(count, generator=g) < 0.1] = -1
        check(source, target, k, v, variant, assert_bits_equal)


@pytest.mark.parametrize("variant", variants("kv_move", "cuda"))
def test_cuda_skips_slots_that_are_not_there(variant, assert_bits_equal):
    source, target = i32([0, 128, -2, 5, 6, 2**31 - 1]), i32([3, 4, 5, 128, -7, 8])
    k, v = caches()
    want_k, want_v = kv_move_ref(i32([0]), i32([3]), k, v)
    ops.kv_move(source, target, k, v, variant=variant)
    assert_bits_equal(unpack_k(k), want_k)
    assert_bits_equal(unpack_v(v), want_v)


def test_a_replayed_program_checks_what_it_reads(assert_bits_equal):
    k, v = caches()
    source, target = i32([0, 1, 2]), i32([3, 4, 5])
    program = _C.Program()
    program.begin()
    ops.kv_move(source, target, k, v)
    program.end()
    source.copy_(i32([127, 64, 3]))
    want = kv_move_ref(source, target, k, v)
    program.run()
    assert_bits_equal(unpack_k(k), want[0])
    assert_bits_equal(unpack_v(v), want[1])
    before = k.clone(), v.clone()
    for bad_source, bad_target, message in [
        ([0, 1, 128], [3, 4, 5], r"from\[2\] is 128; expected -1 to 127"),
        ([0, -2, 1], [3, 4, 5], r"from\[1\] is -2"),
        ([0, 1, 2], [3, 4, 128], r"to\[2\] is 128"),
        ([0, 1, 2], [3, 9, 3], "to holds slot 3 twice"),
    ]:
        source.copy_(i32(bad_source))
        target.copy_(i32(bad_target))
        with pytest.raises(_C.KernelError, match=f"kv_move: {message}"):
            program.run()
        assert_bits_equal(k, before[0], "written in spite of the error")
        assert_bits_equal(v, before[1], "written in spite of the error")


def test_contract_is_checked():
    k, v = caches()
    one = i32([1])
    for args, message in [
        ((one.long(), one, k, v), "from is int64"),
        ((one, i32([1, 2]), k, v), r"to is int32 \[2\].*\[1\]"),
        ((one, one, k.float(), v), "k_cache is float32"),
        ((one, one, k[0], v), "k_cache is bf16"),
        ((one, one, k, v[:1]), r"v_cache is bf16 \[1, 4, 2, 16, 128\].*\[2, 4, 2, 16, 128\]"),
        ((one, one, k[:, ::2], v[:, ::2]), "k_cache is bf16.*contiguous"),
        ((one, one, *caches(dim=40)), r"k_cache is bf16 \[2, 4, 2, 2, 20, 32\].*a multiple of 16 pairs"),
    ]:
        with pytest.raises(_C.KernelError, match=f"kv_move: {message}"):
            ops.kv_move(*args)


def test_operator_registration():
    k, v = (torch.randn(t.shape).to(BF16) for t in caches())
    torch.library.opcheck(torch.ops.specpilot.kv_move.default, (i32([1, 40]), i32([40, 2]), k, v))
