"""Steps that do not wait for the host emit what host-driven ones emit, and leave the same context behind."""

from __future__ import annotations

import random

import numpy as np
import oracle
import pytest
import scripted
import tiny_engines
import torch
from gpu import DEVICES
from oracle import BLOCK, MAX_CONTEXT, Widths
from scripted import PREFERENCE, Recorder
from test_chain import first_seen, prompt_of

from specpilot import load, mirror
from specpilot.verify.graphs import Graphs
from specpilot.verify.sync_free import STOPS
from specpilot.width_policy import Fixed

VOCAB, NEW = tiny_engines.VOCAB, 60


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(kind → target directory, causal or not → drafter directory)."""
    root = tmp_path_factory.mktemp("sync_free")
    targets = {kind: tiny_engines.save_target(root / kind, kind, text=False) for kind in ("llama", "qwen3")}
    drafters = {
        c: tiny_engines.save_drafter(root / f"drafter-{c}", block_size=BLOCK, is_causal=c)
        for c in (False, True)
    }
    return targets, drafters  # fmt: skip


class Case:
    """An engine, a prompt, what host-driven AR makes of it, and scripts of drafts that are wrong here and there."""

    def __init__(self, saved, kind="llama", causal=False, device="cpu", prompt=40) -> None:
        targets, drafters = saved
        self.engine = scripted.engine_of(targets[kind], drafters[causal], device)
        self.prompt = prompt_of(prompt)
        self.far = self.run(MAX_CONTEXT, False, None).tokens
        assert len(set(self.far)) > 20, "the target must not repeat one token"
        self.whole = self.prefilled()

    def kv(self, n: int) -> dict[str, torch.Tensor]:
        caches = {"target": self.engine._kv, "drafter": self.engine.drafter._kv}
        return {name: tiny_engines.kv_at(cache, torch.arange(n)) for name, cache in caches.items()}

    def prefilled(self) -> dict[str, torch.Tensor]:
        ids = [*self.prompt, *self.far[:-1]]
        self.engine.acquire()
        self.engine.prefill(ids, self.engine._verifier("chain"))
        self.engine.release()
        return self.kv(len(ids))

    def run(self, new, sync_free: bool, policy, stop_ids=()) -> oracle.Result:
        """A chain, or AR without a policy."""
        self.engine.sync_free = sync_free
        return oracle.run(self.engine, self.prompt, new, policy, stop_ids)

    def script(self, wrong) -> None:
        """Drafts for token i of the generation are right unless wrong(i)."""
        tokens = [(t + wrong(i)) % VOCAB for i, t in enumerate(self.far)]
        self.engine.drafter.script(tokens, len(self.prompt))

    def check(self, result, recorder, assert_bits_equal, what: str) -> None:
        """Tokens; KV of the target up to the last token, of the drafter as far as it has surely got."""
        assert result.tokens == self.far[: len(result.tokens)], what
        n = len(self.prompt) + len(result.tokens) - 1
        found = self.kv(n)
        assert_bits_equal(found["target"], self.whole["target"][:, :, :n], f"{what}: target")
        if recorder:
            taken = len(self.prompt) + recorder.taken_in
            got, want = (kv["drafter"][:, :, :taken] for kv in (found, self.whole))
            assert_bits_equal(got, want, f"{what}: drafter")


@pytest.fixture(scope="module", params=DEVICES)
def case(request, saved):
    return Case(saved, device=request.param)


@pytest.mark.parametrize("period", [1, 2, 3, 7, 16, 500])
def test_a_chain_is_ar_whatever_is_accepted(case, period, assert_bits_equal):
    """Every ``period``-th draft is wrong; passes and histogram are the host-driven chain's."""
    case.script(lambda i: i % period == 0)
    want = case.run(NEW, False, Fixed(BLOCK))
    recorder = Recorder(Fixed(BLOCK))
    got = case.run(NEW, True, recorder)
    case.check(got, recorder, assert_bits_equal, f"every {period}th wrong")
    assert got.tokens == want.tokens and got.finish_reason == want.finish_reason == "length"
    for name in ("passes", "accepted", "tau", "new_tokens"):
        assert getattr(got.stats, name) == getattr(want.stats, name)
    assert got.stats.widths == {BLOCK: got.stats.passes}  # host-driven, they shrink towards the end
    assert {m for s in recorder.steps for m in s[3]} <= {PREFERENCE}
    assert recorder.taken_in or period == 500


def test_ar_is_ar(case, assert_bits_equal):
    got, want = case.run(NEW, True, None), case.run(NEW, False, None)
    case.check(got, None, assert_bits_equal, "AR")
    assert got.tokens == want.tokens and got.stats.widths == want.stats.widths == {1: NEW - 1}
    assert got.stats.draft_seconds == 0 < got.stats.verify_seconds


@pytest.mark.parametrize(("kind", "causal"), [("llama", True), ("qwen3", False), ("qwen3", True)])
@pytest.mark.parametrize("device", DEVICES)
def test_widths_may_change_at_any_step(saved, kind, causal, device, assert_bits_equal):
    """Also to 1 for longer than a block; with drafters whose layers look one way, or both."""
    found = Case(saved, kind, causal, device)
    pick = random.Random(7)
    for widths in ([1, 16, 2, 1, 1, 9], [1] * 20 + [16], [3] + [1] * 15 + [2], [5, 1], [16] + [1] * 40):
        bad = {i for i in range(200) if pick.random() < 0.25}
        found.script(bad.__contains__)
        recorder = Recorder(Widths(*widths))
        result = found.run(120, True, recorder)
        found.check(result, recorder, assert_bits_equal, f"{kind} {causal} widths {widths}")
        assert len(result.tokens) == 120 and [s[0] for s in recorder.steps][: len(widths)] == widths


@pytest.mark.parametrize("prompt", [1, 31, 32, 33, 128])
def test_prompts_of_any_length_to_the_end_of_the_context(saved, prompt, assert_bits_equal):
    found = Case(saved, prompt=prompt)
    for period in (4, 500):
        found.script(lambda i, period=period: i % period == 0)
        for policy in (None, Recorder(Fixed(BLOCK))):
            result = found.run(10**6, True, policy)
            assert result.finish_reason == "length" and len(result.tokens) == MAX_CONTEXT - prompt
            found.check(result, policy, assert_bits_equal, f"prompt of {prompt}")


def test_stop_tokens_and_limits_anywhere(case, assert_bits_equal):
    """On the device's list, or behind its end, where the host alone sees them."""
    case.script(lambda i: i % 11 == 10)
    unused = sorted(set(range(VOCAB)) - set(case.far))[: STOPS + 1]
    for place in first_seen(case.far[: 2 * BLOCK + 3]):
        for stops in ([case.far[place]], [*unused, case.far[place]]):
            for policy in (None, Recorder(Fixed(BLOCK))):
                result = case.run(NEW, True, policy, stops)
                assert result.finish_reason == "stop" and result.tokens == case.far[: place + 1]
                case.check(result, policy, assert_bits_equal, f"stop at {place}")
                assert sum(n * k for n, k in result.stats.accepted.items()) == place
        result = case.run(place + 1, True, Fixed(BLOCK))
        assert result.finish_reason == "length" and result.tokens == case.far[: place + 1]


def test_a_step_is_launched_before_the_tokens_of_the_last_are_read(case):
    case.script(lambda i: i % 5 == 4)
    case.engine.sync_free = True
    for name in ("chain", "ar"):
        verifier, order = case.engine._verifier(name), []
        with pytest.MonkeyPatch.context() as patch:
            for call in ("launch", "collect"):
                real = getattr(verifier, call)
                patch.setattr(verifier, call, lambda *a, c=call, r=real, o=order: (o.append(c), r(*a))[1])
            case.run(20, True, Fixed(BLOCK) if name == "chain" else None)
        launched = [i for i, c in enumerate(order) if c == "launch"]
        collected = [i for i, c in enumerate(order) if c == "collect"]
        assert len(launched) > 3 and all(a < b for a, b in zip(launched[1:], collected, strict=False))


def test_what_a_request_leaves_under_way_is_not_seen_by_the_next(case, assert_bits_equal):
    """Left in the middle, with a step launched and not collected."""
    case.script(lambda i: i % 6 == 5)
    case.engine.sync_free = True
    for verify in ("chain", "ar"):
        for pieces in (1, 2, 3):
            stream = case.engine.stream(prompt_of(90, seed=8), max_new_tokens=50, verify=verify)
            generation = stream._generation
            generation._pieces = lambda: iter("-")  # no tokenizer: a piece a step
            for _ in range(pieces):
                next(stream)
            stream.close()
            assert stream.result.finish_reason == "interrupted"
            for policy in (None, Recorder(Fixed(BLOCK))):
                result = case.run(NEW, True, policy)
                case.check(result, policy, assert_bits_equal, f"after {pieces} pieces of {verify}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("block", [2, 8])
def test_real_drafters_and_measured_widths(saved, block, device, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    drafter = tiny_engines.save_drafter(tmp_path / "drafter", block_size=block)
    engine = load(saved[0]["llama"], drafter, max_context=MAX_CONTEXT, device=device)
    engine.sync_free = False
    want = [engine.decode(prompt_of(n), max_new_tokens=NEW, verify="ar").tokens for n in (1, 40)]
    for sync_free in (True, False):
        engine.sync_free = sync_free
        for verify in ("ar", "chain", "auto"):
            got = [engine.decode(prompt_of(n), max_new_tokens=NEW, verify=verify).tokens for n in (1, 40)]
            assert got == want, (sync_free, verify)
    assert len(list((tmp_path / "cache").iterdir())) == 2  # costs of both kinds of steps


@pytest.mark.parametrize("device", DEVICES)
def test_page_order_changes_no_bit(saved, device):
    """Pages scattered at random, with rejected drafts in all of them."""
    whole = Case(saved, device=device)
    engine, bad = whole.engine, {i for i in range(200) if random.Random(i).random() < 0.3}
    order = random.Random(5).sample(range(engine._kv.pages), engine._kv.pages)
    whole.script(bad.__contains__)
    want = whole.run(NEW, True, Fixed(BLOCK))
    assert len(engine._table._pool) == len(order)
    engine._table._pool._free[:] = order
    for policy in (None, Fixed(BLOCK)):
        got = whole.run(NEW, True, policy)
        assert got.tokens == want.tokens
    assert np.unique(engine._table.numpy[0, :64] // 32).tolist() == sorted(order[-2:])


@pytest.mark.parametrize("device", DEVICES)
def test_everything_lies_on_the_device_which_chooses_the_steps(saved, device):
    engine = scripted.engine_of(saved[0]["llama"], saved[1][True], device)
    assert engine.sync_free == (device != "cpu") and engine.device == torch.device(device)
    engine.decode([1, 2, 3], max_new_tokens=20, verify="chain")
    parts = [
        engine._kv,
        engine._work,
        engine._rows,
        engine._table,
        engine._taps,
        engine.drafter,
        engine.drafter._kv,
    ]
    parts += [engine.drafter._work, engine.drafter._block, engine.target]
    found = [t for p in parts for t in vars(p).values() if isinstance(t, torch.Tensor)]
    assert len(found) > 30 and {t.device for t in found} == {engine.device}


@pytest.mark.parametrize("causal", [False, True])
def test_host_and_device_share_nothing_but_what_is_copied(saved, causal, monkeypatch, assert_bits_equal):
    """On the CPU, as it is on a GPU: the host's side is memory of its own, full of nonsense until something is copied."""

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        return torch.full(tensor.shape, -7, dtype=tensor.dtype)

    def uncaptured(self: Graphs, key, calls) -> bool:
        calls()  # a program of the CPU replays ops, not copies
        return True

    monkeypatch.setattr(mirror, "_host_side", apart)
    monkeypatch.setattr(Graphs, "run", uncaptured)
    found = Case(saved, causal=causal)
    found.script(lambda i: i % 5 == 4)
    for sync_free in (True, False):
        for policy in (None, Fixed(BLOCK), Widths(1, 16, 3, 1, 1)):
            for new in (NEW, 7):
                recorder = policy and Recorder(policy)
                result = found.run(new, sync_free, recorder, [found.far[50]])
                place = min(new, found.far.index(found.far[50]) + 1)
                assert len(result.tokens) == place
                found.check(result, recorder, assert_bits_equal, f"{sync_free} {policy} {new}")
