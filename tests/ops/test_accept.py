"""accept: chains, random trees and ragged batches against a walk over dictionaries."""

import random

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants

from specpilot import _C
from specpilot.ref.accept import accept as accept_ref

VARIANTS = variants("accept")
NAMES = ["path", "emitted", "length"]


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


def call(cu_rows, tokens, parents, choice, max_path, variant=""):
    shape = (len(cu_rows) - 1, max_path)
    outputs = [
        torch.full(shape, 77, dtype=torch.int32),
        torch.full(shape, 77, dtype=torch.int32),
        torch.full(shape[:1], 77).int(),
    ]
    ops.accept(cu_rows, tokens, parents, choice, *outputs, variant=variant)
    return outputs


def check(inputs, max_path, variant):
    for name, got, want in zip(
        NAMES, call(*inputs, max_path, variant), accept_ref(*inputs, max_path), strict=True
    ):
        wrong = (got != want).nonzero().tolist()
        assert not wrong, f"{name}{wrong[0]}: {got[tuple(wrong[0])]} instead of {want[tuple(wrong[0])]}"


def trees(rng, sizes, vocab):
    """Random trees; most choices are a child's token, and with few tokens siblings share them."""
    cu, tokens, parents, choice = [0], [], [], []
    for size in sizes:
        deep = rng.random()
        up = [-1 if i == 0 else i - 1 if rng.random() < deep else rng.randrange(i) for i in range(size)]
        own = [rng.randrange(vocab) for _ in up]
        for i in range(size):
            follow = [own[j] for j in range(size) if up[j] == i and rng.random() < 0.8]
            choice.append(rng.choice(follow) if follow else rng.randrange(vocab))
        tokens, parents = tokens + own, parents + up
        cu.append(cu[-1] + size)
    return i32(cu), i32(tokens), i32(parents), i32(choice)


def chain(accepted, drafts):
    tokens = list(range(100, 101 + drafts))
    choice = [t + 1 if i < accepted else 7 for i, t in enumerate(tokens)]
    return i32([0, drafts + 1]), i32(tokens), i32(range(-1, drafts)), i32(choice)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("drafts", [0, 1, 15])
def test_a_chain_is_cut_at_the_first_disagreement(variant, drafts):
    for accepted in range(drafts + 1):
        inputs = chain(accepted, drafts)
        check(inputs, drafts + 1, variant)
        path, emitted, length = call(*inputs, drafts + 1, variant)
        rest = [-1] * (drafts - accepted)
        assert length.tolist() == [accepted + 1] and path[0].tolist() == [*range(accepted + 1), *rest]
        assert emitted[0].tolist() == [*range(101, 101 + accepted), 7, *rest]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("vocab", [1, 2, 3, 10])
def test_random_trees_of_ragged_batches(variant, vocab):
    rng = random.Random(vocab)
    longest = 0
    for round_ in range(60):
        sizes = [rng.choice([0, 0, 1, 2, 5, 16, 61]) for _ in range(rng.randrange(1, 12))]
        inputs = trees(rng, sizes, vocab)
        for max_path in (1, 4, 70) if round_ % 2 else (70,):
            check(inputs, max_path, variant)
        longest = max(longest, int(call(*inputs, 70, variant)[2].max()))
    assert longest > 8  # the walks were worth comparing


@pytest.mark.parametrize("variant", VARIANTS)
def test_large_and_empty_batches(variant):
    rng = random.Random(0)
    for sizes in ([1024], [16] * 64, [0] * 5, [], [0, 1, 0, 3, 0]):
        check(trees(rng, sizes, 2), 16, variant)
    check(chain(20, 11999), 16, variant)  # as many rows as there is shared memory for
    path, emitted, length = call(i32([0, 0, 2]), i32([4, 5]), i32([-1, 0]), i32([5, 9]), 3, variant)
    assert length.tolist() == [0, 2] and path.tolist() == [[-1, -1, -1], [0, 1, -1]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_lowest_of_equal_siblings_and_none_of_a_cousin(variant):
    #      0 (token 1) → 1 (2), 2 (3), 3 (2);  1 → 4 (5);  2 → 5 (6);  3 → 6 (6)
    tree = i32([0, 7]), i32([1, 2, 3, 2, 5, 6, 6]), i32([-1, 0, 0, 0, 1, 2, 3])
    path, emitted, length = call(*tree, i32([2, 6, 0, 6, 0, 0, 0]), 4, variant)
    assert path[0].tolist() == [0, 1, -1, -1]  # 6 follows rows 2 and 3 only
    assert emitted[0].tolist() == [2, 6, -1, -1] and length[0] == 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_behind_the_last_request_are_ignored(variant):
    cu_rows, tokens, parents, choice = chain(2, 3)
    padded = [torch.cat([t, i32([-9, 1000])]) for t in (tokens, parents, choice)]
    assert call(cu_rows, *padded, 4, variant)[2].tolist() == [3]


def test_a_replayed_program_checks_what_it_reads():
    cu_rows, tokens, parents, choice = trees(random.Random(3), [4, 3], 2)
    outputs = [
        torch.empty(2, 5, dtype=torch.int32),
        torch.empty(2, 5, dtype=torch.int32),
        torch.empty(2).int(),
    ]
    program = _C.Program()
    program.begin()
    ops.accept(cu_rows, tokens, parents, choice, *outputs)
    program.end()
    choice.copy_(1 - choice)
    program.run()
    for got, want in zip(outputs, accept_ref(cu_rows, tokens, parents, choice, 5), strict=True):
        assert torch.equal(got, want)
    before = [t.clone() for t in outputs]
    for tensor, at, bad, message in [
        (cu_rows, 0, -1, r"cu_rows\[0\] is -1"),
        (cu_rows, 1, 8, r"cu_rows\[1\] is 8; expected 0 to 7"),
        (cu_rows, 2, 3, r"cu_rows\[2\] is 3; expected 4 to 7"),
        (parents, 0, 0, r"parents\[0\] is 0; expected -1 to -1 \(row 0 of request 0\)"),
        (parents, 2, 2, r"parents\[2\] is 2; expected 0 to 1 \(row 2 of request 0\)"),
        (parents, 5, -1, r"parents\[5\] is -1; expected 0 to 0 \(row 1 of request 1\)"),
        (parents, 6, 4, r"parents\[6\] is 4; expected 0 to 1 \(row 2 of request 1\)"),
    ]:
        good = int(tensor[at])
        tensor[at] = bad
        with pytest.raises(_C.KernelError, match=f"accept: {message}"):
            program.run()
        tensor[at] = good
        assert all(torch.equal(a, b) for a, b in zip(outputs, before, strict=True))


@pytest.mark.parametrize("variant", variants("accept", "cuda"))
def test_values_that_the_cpu_refuses_do_no_harm(variant):
    cu_rows, tokens, parents, choice = chain(9, 9)
    for row, bad in [(0, 5), (4, 4), (4, 9), (4, -1), (4, -(2**31)), (4, 2**31 - 1)]:
        wrong = parents.clone()
        wrong[row] = bad
        follows = i32([*range(4), *[-1] * 8]) if row else i32([*range(10), -1, -1])
        assert torch.equal(call(cu_rows, tokens, wrong, choice, 12, variant)[0][0], follows)
    for bounds, rows in [([-3, 10], 10), ([0, 99], 10), ([4, 2], 0), ([12, 40], 0)]:
        path, _, length = call(i32(bounds), tokens, parents, choice, 12, variant)
        assert length.tolist() == [rows] and path[0].tolist() == [*range(rows), *[-1] * (12 - rows)]


def test_contract_is_checked():
    cu_rows, tokens, parents, choice = chain(1, 3)
    path, length = torch.empty(1, 4, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    for args, message in [
        ((cu_rows.long(), tokens, parents, choice, path, path.clone(), length), "cu_rows is int64"),
        (
            (cu_rows, tokens, parents[:3], choice, path, path.clone(), length),
            r"parents is int32 \[3\].*\[4\]",
        ),
        (
            (cu_rows, tokens, parents, choice, path, path[:, :3], length),
            r"emitted is int32 \[1, 3\].*\[1, 4\]",
        ),
        (
            (cu_rows, tokens, parents, choice, path, path.clone(), torch.empty(2).int()),
            r"cu_rows is int32 \[2\].*\[3\]",
        ),
    ]:
        with pytest.raises(_C.KernelError, match=f"accept: {message}"):
            ops.accept(*args)


def test_operator_registration():
    args = (
        *chain(1, 3),
        *(torch.zeros(1, 4, dtype=torch.int32) for _ in range(2)),
        torch.zeros(1, dtype=torch.int32),
    )
    torch.library.opcheck(torch.ops.specpilot.accept.default, args)
