"""advance: requests moved on by what they emitted, against an oracle over lists, and along a request's life."""

from __future__ import annotations

import random

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants

from specpilot import _C
from specpilot.ref.advance import IDS, POSITIONS, PREFIX, REQUEST, SLOTS
from specpilot.ref.advance import advance as advance_ref

VARIANTS = variants("advance")
NAMES = (
    "state emitted length margins stop_ids slot_table chain block causal context ring".split()
)  # arguments in order
LONG = 96  # positions of a slot table


def i32(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def rows(requests: int, width: int, spare: int = 3) -> torch.Tensor:
    """A row set that is a part of a wider buffer full of 77."""
    buffer = torch.full((5, requests * width + spare), 77, dtype=torch.int32)
    return buffer[:, : requests * width].unflatten(1, (requests, width)) if requests else buffer[:, :0, None]


def case(rng: random.Random, requests: int, path: int, full: bool = True) -> dict[str, torch.Tensor | None]:
    """Requests at any point of their lives: fresh, about to stop or to reach their limit, done, without rows."""
    vocab = 12
    table = torch.stack(
        [torch.randperm(LONG, generator=torch.Generator().manual_seed(b)).int() for b in range(requests)]
        or [torch.empty(LONG).int()]
    )[:requests]
    state = [
        [
            rng.choice([0, 5, LONG - path, LONG - 1]),
            rng.choice([0, 1, path - 1, path, 50]),
            rng.random() < 0.2,
            rng.randrange(9),
        ]
        for _ in range(requests)
    ]
    made = {
        "state": i32(state).reshape(requests, 4),
        "emitted": i32([[rng.randrange(vocab) for _ in range(path)] for _ in range(requests)]).reshape(requests, path),
        "length": i32([rng.choice([0, 1, path, rng.randint(0, path)]) for _ in range(requests)]),
        "margins": torch.rand(requests, path - 1),
        "stop_ids": i32(rng.choice([[], [3], [3, -1, 8]])),
        "slot_table": table,
        "chain": rows(requests, rng.choice([1, path])),
        "block": rows(requests, path, 0),
        "causal": rows(requests, path),
        "context": rows(requests, rng.choice([1, path])),
        "ring": torch.full((4, requests, 2 * path + 1), 55, dtype=torch.int32),
    }  # fmt: skip
    if not full:
        made |= dict.fromkeys(("margins", "block", "causal", "context"))
    return made


def check(made: dict, variant: str) -> dict:
    """Both on copies of the arguments' whole buffers, so that a write beside a part shows as well; gives the op's."""

    def copies() -> dict:
        found = {}
        for name, t in made.items():
            whole = None if t is None else torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()).clone()
            found[name] = None if t is None else whole.as_strided(t.shape, t.stride(), t.storage_offset())
        return found

    got, want = copies(), copies()
    ops.advance(*got.values(), variant=variant)
    advance_ref(*want.values())
    for name, value in want.items():
        if value is not None:
            a, b = (torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()) for t in (got[name], value))
            assert torch.equal(a, b), f"{name}: {got[name].tolist()} instead of {value.tolist()}"
    return got


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", [1, 2, 16, 200])
def test_batches_at_any_point_of_their_lives(variant, path):
    path = min(path, LONG)
    rng = random.Random(path)
    ended = set()
    for round_ in range(40):
        found = check(case(rng, rng.choice([1, 1, 2, 9]), path, round_ % 3 > 0), variant)
        ended |= set(found["state"][:, 2].tolist())
    assert ended == {0, 1}


@pytest.mark.parametrize("variant", VARIANTS)
def test_large_and_empty_batches(variant):
    for requests in (0, 64, 300):
        check(case(random.Random(requests), requests, 16), variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_life_of_a_request(variant):
    """Three tokens, one, then five of which the second is a stop token; and nothing happens after it."""
    made = case(random.Random(0), 1, 8) | {
        "state": i32([[10, 40, 0, 0]]), "stop_ids": i32([11]), "chain": rows(1, 8), "context": rows(1, 8),
        "slot_table": torch.arange(100, 100 + LONG).int()[None],
    }  # fmt: skip
    start = 10
    for tokens, kept, done in ([[1, 2, 3], 3, 0], [[4], 1, 0], [[5, 11, 6, 7, 8], 2, 1], [[9, 9], 0, 1]):
        made["emitted"][:] = -1
        made["emitted"][0, : len(tokens)] = i32(tokens)
        made["length"][0] = len(tokens)
        step = int(made["state"][0, 3])
        made = check(made, variant)
        entry = made["ring"][step, 0].tolist()
        assert entry[: 2 + kept] == [kept, done, *tokens[:kept]] and set(entry[2 + kept : 10]) == {-1}
        assert torch.equal(made["ring"][step, 0, 10:].view(torch.float32), made["margins"][0])
        context, chain, block = (made[name][:, 0] for name in ("context", "chain", "block"))
        taken = 0 if done else kept
        assert context[SLOTS].tolist() == [*range(100 + start, 100 + start + taken)] + [-1] * (8 - taken)
        assert context[POSITIONS].tolist() == [*range(start, start + 8)] and set(context[IDS].tolist()) == {
            77
        }
        start += kept
        for own in (chain, block):
            if kept:
                assert own[IDS, 0] == tokens[kept - 1] and set(own[IDS, 1:].tolist()) == {77}
            assert own[POSITIONS].tolist() == [*range(start, start + 8)] and not own[REQUEST].any()
            assert own[SLOTS].tolist() == ([-1] * 8 if done else [*range(100 + start, 108 + start)])
        assert chain[PREFIX].tolist() == [*range(start + 1, start + 9)]
        assert set(block[PREFIX].tolist()) == {start + 8}
    assert made["state"].tolist() == [[16, 34, 1, 4]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_limit_cuts_and_ends(variant):
    made = case(random.Random(1), 2, 4) | {
        "state": i32([[0, 3, 0, 0], [0, 4, 0, 7]]),
        "emitted": i32([[1, 2, 4, 5], [1, 2, 4, 5]]),
        "length": i32([4, 3]),
        "stop_ids": i32([]),
    }
    found = check(made, variant)
    assert found["state"].tolist() == [[3, 0, 1, 1], [3, 1, 0, 8]]
    assert found["ring"][0, 0, :6].tolist() == [3, 1, 1, 2, 4, -1]
    assert found["ring"][3, 1, :6].tolist() == [3, 0, 1, 2, 4, -1]


def test_a_replayed_program_checks_what_it_reads():
    made = case(random.Random(2), 2, 4) | {"state": i32([[0, 9, 0, 0], [5, 9, 0, 0]]), "length": i32([2, 3])}
    program = _C.Program()
    program.begin()
    ops.advance(*made.values())
    program.end()
    for name, at, bad, message in [
        ("state", (1, 0), LONG, rf"start of request 1 is {LONG}; expected 0 to {LONG - 1}"),
        ("state", (0, 0), -1, "start of request 0 is -1"),
        ("state", (1, 1), -2, "left of request 1 is -2"),
        ("state", (0, 3), -1, "step of request 0 is -1"),
        ("length", 1, 5, r"length\[1\] is 5; expected 0 to 4"),
        ("length", 0, -1, r"length\[0\] is -1"),
    ]:
        good = int(made[name][at])
        made[name][at] = bad
        before = {k: v.clone() for k, v in made.items()}
        with pytest.raises(_C.KernelError, match=f"advance: {message}"):
            program.run()
        assert all(torch.equal(v, made[k]) for k, v in before.items())
        made[name][at] = good
    want = {k: v.clone() for k, v in made.items()}
    advance_ref(*want.values())
    program.run()
    assert all(torch.equal(v, made[k]) for k, v in want.items())


@pytest.mark.parametrize("variant", variants("advance", "cuda"))
def test_values_that_the_cpu_refuses_do_no_harm(variant):
    """Guards around every buffer stay as they are, and outputs say what the nearest good values would."""
    for name, at, bad in [
        ("state", (0, 0), -5),
        ("state", (0, 0), 2**31 - 100),
        ("state", (0, 3), -3),
        ("length", 0, 99),
    ]:
        made = case(random.Random(3), 1, 8) | {"state": i32([[4, 50, 0, 0]]), "length": i32([3])}
        made[name][at] = bad
        ops.advance(*made.values(), variant=variant)
        for kind in ("chain", "causal", "context"):
            whole = torch.empty(0, dtype=torch.int32).set_(made[kind].untyped_storage()).view(5, -1)
            assert (whole[:, made[kind].shape[2] :] == 77).all()
        assert 0 <= int(made["ring"][0, 0, 0]) <= 8


BAD = {  # message → (argument, what is done to it)
    "state is int32 .*expected int32 \\[any, 4\\]": ("state", lambda t: t[:, :3].contiguous()),
    "emitted is int64": ("emitted", lambda t: t.long()),
    "length is int32 \\[1\\].*\\[2\\]": ("length", lambda t: t[:1]),
    "margins is float32 \\[2, 2\\]|margins is float.* \\[2, 2\\]": ("margins", lambda t: t[:, :2].contiguous()),
    "slot_table is int32 \\[1, 96\\]": ("slot_table", lambda t: t[:1]),
    "chain is int32 \\[4, 2, .*expected int32 \\[5, 2, any\\], planes apart and rows together": ("chain", lambda t: t[:4]),
    "block is int32 \\[5, 1, 4\\]": ("block", lambda t: t[:, :1]),
    "causal is int32 \\[5, 2, 2\\], strides .*rows together": ("causal", lambda t: t[:, :, ::2]),
    "context is int64": ("context", lambda t: t.long()),
    "ring is int32 \\[4, 2, 8\\]": ("ring", lambda t: t[:, :, :8].contiguous()),
    "ring is int32 \\[0, 2, 9\\].*an entry or more": ("ring", lambda t: t[:0]),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_contract_is_checked(message):
    name, change = BAD[message]
    made = case(random.Random(4), 2, 4)
    made[name] = change(made[name])
    with pytest.raises(_C.KernelError, match=f"advance: ({message})"):
        ops.advance(*made.values())


def test_operator_registration():
    made = case(random.Random(5), 2, 4) | {"state": i32([[0, 9, 0, 0], [5, 9, 0, 0]])}
    torch.library.opcheck(torch.ops.specpilot.advance.default, tuple(made.values()))
