"""argmax and its margin: every variant against the oracle, on ties, both zeros, NaN, infinities and all 16-bit patterns."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants

from specpilot import _C
from specpilot.ref.argmax import argmax as argmax_ref
from specpilot.ref.argmax import margin as margin_ref

VARIANTS = variants("argmax")
BF16 = torch.bfloat16
EVERY = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(BF16)
NAN, INF = float("nan"), float("inf")


def call(logits, valid, variant):
    ids = torch.full((len(logits),), -7, dtype=torch.int32)
    ops.argmax(logits, valid, ids, variant=variant)
    return ids


def check(logits, valid, variant):
    ids, margin = torch.full((len(logits),), -7, dtype=torch.int32), torch.full((len(logits),), -7.0)
    ops.argmax(logits, valid, ids, margin, variant=variant)
    for got, want in ((ids, argmax_ref(logits, valid)), (margin, margin_ref(logits, valid))):
        wrong = (got != want).nonzero().flatten().tolist()
        assert not wrong, f"row {wrong[0]}: {got[wrong[0]]} instead of {want[wrong[0]]}, valid_vocab {valid}"
    assert (call(logits, valid, variant) == ids).all(), "the ids depend on whether margins are wanted"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("vocab", [1, 2, 15, 16, 17, 31, 33, 63, 511, 512, 513, 1100, 16384, 16385, 49152])
def test_random_rows(variant, vocab):
    g = torch.Generator().manual_seed(vocab)
    for rows in (0, 1, 2, 65) if vocab < 20000 else (3,):
        # Few distinct values make ties of the maximum common, the normal ones of bf16 logits make them rare.
        for logits in (
            torch.randint(-3, 3, (rows, vocab), generator=g).to(BF16),
            torch.randn(rows, vocab, generator=g).to(BF16),
        ):
            check(logits, vocab, variant)
            check(logits, max(1, vocab * 2 // 3), variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_vocabulary_of_qwen3_and_its_padding(variant):
    logits = torch.randn(3, 151936).to(BF16)
    logits[:, 151669:] = 100
    logits[1, 151668] = 50
    check(logits, 151669, variant)
    assert call(logits, 151669, variant)[1] == 151668 and (call(logits, 151936, variant) == 151669).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("vocab", [1, 5, 16, 40, 600, 20000])
def test_the_maximum_anywhere(variant, vocab):
    """One maximum at each of many places, then the same value again behind it."""
    places = sorted(
        {*range(min(vocab, 70)), *(p for p in (511, 512, 16383, 16384, 16385) if p < vocab), vocab - 1}
    )
    logits = torch.full((len(places), vocab), -1.0).to(BF16)
    for row, place in enumerate(places):
        logits[row, place :: max(1, vocab // 3)] = -0.5
    assert call(logits, vocab, variant).tolist() == places


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_pattern_beside_every_kind(variant):
    """Each of the 65536 patterns, in either place, against one value of each kind."""
    for other in (0.0, -0.0, 1e-40, -1e-40, 1.5, -1.5, INF, -INF, NAN):
        pair = torch.stack([EVERY, torch.full_like(EVERY, other)], 1)
        check(pair, 2, variant)
        check(pair.flip(1), 2, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_patterns_in_one_row(variant):
    g = torch.Generator().manual_seed(0)
    shuffled = torch.stack([EVERY[torch.randperm(65536, generator=g)] for _ in range(4)])
    check(shuffled, 65536, variant)
    assert (shuffled[torch.arange(4), call(shuffled, 65536, variant).long()] == INF).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [3, 16, 50, 700])
def test_special_rows(variant, width):
    rows = [
        ([NAN] * width, 0),
        ([NAN] * (width - 1) + [-INF], width - 1),
        ([-INF] * width, 0),
        ([-0.0, 0.0] + [-1.0] * (width - 2), 0),
        ([0.0, -0.0] + [NAN] * (width - 2), 0),
        ([-1.0] + [-0.0] * (width - 1), 1),
        ([NAN, 1.0] + [INF] * (width - 2), 2),
        ([-1e-40] * (width - 1) + [1e-40], width - 1),
    ]
    logits = torch.tensor([r for r, _ in rows]).to(BF16)
    assert call(logits, width, variant).tolist() == [want for _, want in rows]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_two_largest_wherever_the_row_starts_and_ends(variant):
    """Rows of every alignment and length modulo 8, the two largest at all kinds of distance."""
    g = torch.Generator().manual_seed(1)
    wide = torch.full((64, 9011), -5.0).to(BF16)
    for row in range(64):
        at, other = torch.randint(16, 8990, (2,), generator=g)
        if row % 3 == 0:
            other = at - 1 - row % 8
        wide[row, other], wide[row, at] = 2.0, 2.0 + row % 2
    for first in range(8):
        for last in range(9003, 9011):
            check(wide[first::8, first:last], last - first, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
def test_threads_and_strides(variant, threads_used, threads):
    threads(threads_used)
    wide = torch.randint(-9, 9, (70, 5000)).to(BF16)
    check(wide[:, 100:4500], 4400, variant)
    check(wide[:1, 3:], 4000, variant)
    check(torch.randn(2, 70000).to(BF16), 69999, variant)


def test_contract_is_checked():
    logits, ids = torch.zeros(2, 5, dtype=BF16), torch.zeros(2, dtype=torch.int32)
    for args, message in [
        ((logits.float(), 5, ids), "logits is float32"),
        ((logits, 5, ids.long()), "ids is int64"),
        ((logits, 5, ids[:1]), r"ids is int32 \[1\].*\[2\]"),
        ((logits, 5, ids, torch.zeros(3)), r"margin is float32 \[3\].*\[2\]"),
        ((logits, 5, ids, torch.zeros(2, dtype=BF16)), "margin is bf16"),
        ((logits, 0, ids), "valid_vocab is 0; expected 1 to 5"),
        ((logits, 6, ids), "valid_vocab is 6; expected 1 to 5"),
        ((torch.zeros(5, 2, dtype=BF16).T, 5, ids), "logits is bf16.*unit column stride"),
    ]:
        with pytest.raises(_C.KernelError, match=f"argmax: {message}"):
            ops.argmax(*args)


def test_operator_registration():
    args = (torch.randn(2, 9).to(BF16), 8, torch.empty(2, dtype=torch.int32))
    torch.library.opcheck(torch.ops.specpilot.argmax.default, args)
    torch.library.opcheck(torch.ops.specpilot.argmax.default, (*args, torch.empty(2)))
