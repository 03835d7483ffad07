"""A chain emits what one-token decoding emits, and leaves the same context behind, whatever the drafter says."""

from __future__ import annotations

import random
from collections import Counter

import oracle
import pytest
import tiny_engines
import torch
from oracle import BLOCK, MAX_CONTEXT, Widths

from specpilot import cost, load
from specpilot.width_policy import Auto, Fixed, WidthPolicy

VOCAB = tiny_engines.VOCAB
NEW = 60


def prompt_of(n: int, seed: int = 2) -> list[int]:
    return torch.randint(VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(kind → target directory, drafter directory)."""
    root = tmp_path_factory.mktemp("chain")
    targets = {kind: tiny_engines.save_target(root / kind, kind, text=False) for kind in ("llama", "qwen3")}
    return targets, tiny_engines.save_drafter(root / "drafter", block_size=BLOCK)


class Case:
    """An engine, a prompt, and what AR makes of it."""

    def __init__(self, saved, kind: str = "llama", weights: str = "w12", prompt: int = 40) -> None:
        targets, drafter = saved
        self.engine = oracle.engine_of(targets[kind], drafter, weights)
        self.prompt = prompt_of(prompt)
        self.far = self.ar(MAX_CONTEXT).tokens  # further than any test goes
        self.whole = oracle.prefilled(self.engine, [*self.prompt, *self.far[:-1]])

    def ar(self, new: int, stop_ids=()) -> oracle.Result:
        return oracle.run(self.engine, self.prompt, new, None, stop_ids)

    def chain(self, new: int, policy: WidthPolicy, right, stop_ids=()) -> oracle.Result:
        """``right``: how many drafts are right, as a function of the anchor's position."""
        self.engine.drafter.script = oracle.drafts(self.far, len(self.prompt), right, VOCAB)
        return oracle.run(self.engine, self.prompt, new, policy, stop_ids)

    def check(self, result: oracle.Result, assert_bits_equal, what: str) -> None:
        """Tokens, and all KV that lasts: of the target up to the last token, of the drafter as far as it has got."""
        assert result.tokens == self.far[: len(result.tokens)], what
        found = oracle.contexts(self.engine, len(self.prompt) + len(result.tokens) - 1)
        assert found["drafter"].shape[2] > len(self.prompt) or len(result.tokens) <= BLOCK, what
        for name, value in found.items():
            assert_bits_equal(value, self.whole[name][:, :, : value.shape[2]], f"{what}: {name}")


@pytest.fixture(scope="module")
def case(saved):
    found = Case(saved)
    assert len(set(found.far)) > 20, "the target must not repeat one token"
    return found


@pytest.mark.parametrize("right", range(BLOCK))
def test_every_acceptance_length(case, right, assert_bits_equal):
    """``right`` drafts a pass are accepted and one bonus token added, so the histogram is known."""
    passes = 4
    result = case.chain(1 + passes * (right + 1), Fixed(BLOCK), lambda _: right)
    case.check(result, assert_bits_equal, f"{right} right")
    assert result.stats.accepted == Counter({right + 1: passes})
    assert result.stats.passes == passes and result.stats.tau == right + 1
    assert len(result.tokens) == result.stats.new_tokens == 1 + passes * (right + 1)


@pytest.mark.parametrize("width", range(1, BLOCK + 1))
def test_every_width_over_random_acceptance(case, width, assert_bits_equal):
    pick = random.Random(width)
    result = case.chain(NEW, Fixed(width), lambda _: pick.randrange(BLOCK))
    case.check(result, assert_bits_equal, f"width {width}")
    assert len(result.tokens) == NEW and result.finish_reason == "length"
    assert max(result.stats.widths) == width and max(result.stats.accepted) <= width


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("weights", ["w12", "bf16"])
def test_widths_may_change_at_any_step(saved, kind, weights, assert_bits_equal):
    """Also to 1 for longer than a block, so that the drafter has to catch up on what it was not asked about."""
    found = Case(saved, kind, weights)
    for widths in ([1, 16, 2, 1, 1, 9], [1] * 20 + [16], [3] + [1] * 15 + [2], [5, 1], [16] + [1] * 40):
        pick = random.Random(len(widths))
        result = found.chain(120, Widths(*widths), lambda _, pick=pick: pick.choice((0, 1, 4, 15)))
        found.check(result, assert_bits_equal, f"{kind} {weights} widths {widths}")


@pytest.mark.parametrize("prompt", [1, 2, 31, 32, 33, 127, 128, 129])
def test_prompts_of_any_length(saved, prompt, assert_bits_equal):
    found = Case(saved, prompt=prompt)
    pick = random.Random(prompt)
    result = found.chain(NEW, Fixed(BLOCK), lambda _: pick.randrange(BLOCK))
    found.check(result, assert_bits_equal, f"prompt of {prompt}")


@pytest.mark.parametrize("right", [0, 7, 15])
def test_to_the_exact_end_of_the_context(case, right, assert_bits_equal):
    """The last token stands at the last position; the passes before it must not reach further."""
    result = case.chain(10**6, Fixed(BLOCK), lambda _: right)
    assert result.finish_reason == "length" and len(result.tokens) == MAX_CONTEXT - len(case.prompt)
    case.check(result, assert_bits_equal, f"{right} right")
    assert case.ar(10**6).tokens == result.tokens


def first_seen(tokens: list[int]) -> list[int]:
    """Places at which a token stands for the first time."""
    return [i for i, t in enumerate(tokens) if t not in tokens[:i]]


def test_a_stop_token_anywhere_in_a_block(case, assert_bits_equal):
    places = first_seen(case.far[: 2 * BLOCK + 3])
    assert len({p % BLOCK for p in places}) > BLOCK // 2
    for place in places:
        stop = case.far[place]
        result = case.chain(NEW, Fixed(BLOCK), lambda _: BLOCK, [stop])
        assert result.finish_reason == "stop" and result.tokens == case.far[: place + 1]
        assert result.tokens == case.ar(NEW, [stop]).tokens
        assert sum(n * k for n, k in result.stats.accepted.items()) == place  # the first is the prefill's
        case.check(result, assert_bits_equal, f"stop at {place}")


def test_drafted_stop_tokens_and_padding_ids_stop_nothing(case, assert_bits_equal):
    unused = sorted(set(range(VOCAB)) - set(case.far))
    for drafted in (unused[0], unused[-1]):
        case.engine.drafter.script = lambda start, drafted=drafted: [drafted] * (BLOCK - 1)
        result = oracle.run(case.engine, case.prompt, NEW, Fixed(BLOCK), [drafted])
        assert result.finish_reason == "length" and result.stats.accepted == Counter({1: NEW - 1})
        case.check(result, assert_bits_equal, f"drafts of {drafted}")


def test_what_a_request_leaves_behind_is_not_seen_by_the_next(case, assert_bits_equal):
    """Rejected rows, a longer neighbour and an end inside a block all leave their KV in pages that are given out again."""
    other = prompt_of(90, seed=8)
    for right in (0, 15, 3):
        case.engine.drafter.script = lambda start: prompt_of(BLOCK - 1, start)
        oracle.run(case.engine, other, 50, Fixed(BLOCK))
        result = case.chain(NEW, Fixed(BLOCK), lambda _, right=right: right)
        case.check(result, assert_bits_equal, "after another request")


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_real_drafters_through_load(saved, kind, tmp_path, monkeypatch):
    """A random drafter, its own drafts, widths by the measured policy; two block sizes."""
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    targets, _ = saved
    for block in (2, 8):
        drafter = tiny_engines.save_drafter(tmp_path / f"drafter-{block}", block_size=block)
        engine = load(targets[kind], drafter, max_context=MAX_CONTEXT)
        for n in (1, 40):
            want = engine.decode(prompt_of(n), max_new_tokens=NEW, verify="ar")
            for verify in ("chain", "auto"):
                got = engine.decode(prompt_of(n), max_new_tokens=NEW, verify=verify)
                assert got.tokens == want.tokens, (block, n, verify)
        assert len(want.tokens) == NEW and set(want.stats.widths) == {1}


class Clockwork(Auto):
    """The automatic policy on a machine whose step times are the table's."""

    def __init__(self, costs: dict[int, cost.StepTime]) -> None:
        super().__init__(costs)
        self._truth = costs

    def observe(self, drafted: int, verified: int, emitted: int, time: cost.StepTime, margins) -> None:
        time = (
            self._truth[verified]._replace(draft=self._truth[drafted].draft)
            if drafted in self._truth
            else time
        )
        super().observe(drafted, verified, emitted, time, margins)


class Narrowing(WidthPolicy):
    """Drafts for any width and verifies any part of it; keeps what it was shown and what came of it."""

    def __init__(self, seed: int) -> None:
        self._pick = random.Random(seed)
        self.margins: list[float] = []
        self.steps: list[tuple[int, int, int]] = []

    def width(self) -> int:
        return self._pick.randint(1, BLOCK)

    def narrow(self, margins) -> int:
        self.margins += margins.tolist()
        return self._pick.randint(1, len(margins) + 1)

    def observe(self, drafted: int, verified: int, emitted: int, time: cost.StepTime, margins) -> None:
        self.steps.append((drafted, verified, emitted))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("seed", range(4))
def test_drafts_that_are_not_verified_leave_nothing_behind(saved, kind, seed, assert_bits_equal):
    narrowed = Case(saved, kind)
    policy, pick = Narrowing(seed), random.Random(seed)
    result = narrowed.chain(NEW, policy, lambda _: pick.randrange(BLOCK))
    narrowed.check(result, assert_bits_equal, f"narrowed at random, {seed}")
    assert set(policy.margins) == {oracle.Oracle.preference}
    assert any(v < d for d, v, _ in policy.steps) and all(e <= v <= d for d, v, e in policy.steps)
    assert result.stats.widths == Counter(v for _, v, _ in policy.steps)


def test_auto_follows_acceptance_within_a_generation(case, assert_bits_equal, monkeypatch):
    """Drafts go from always right to always wrong and back: widths follow, tokens do not change."""
    costs = {w: cost.StepTime(0.5, 0.5 + 0.1 * w) for w in cost.widths_up_to(BLOCK)}
    monkeypatch.setattr(case.engine.drafter, "preference", 5.0)
    right = {"always": lambda at: 15, "wrong for a while": lambda at: 0 if 90 < at < 150 else 15}
    widths = {}
    for name, script in right.items():
        result = case.chain(MAX_CONTEXT, Clockwork(costs), script)
        case.check(result, assert_bits_equal, f"right {name}")
        widths[name] = result.stats.widths
    assert widths["always"][BLOCK] and not widths["always"][1]
    assert widths["wrong for a while"][BLOCK] and widths["wrong for a while"][1]
