"""Fixed acceptance: the law gives the τ it was asked for, and in an engine every pass accepts exactly what was drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tiny_drafters
import tiny_targets

from specpilot.drafters.dflash import DFlashDraftModel
from specpilot.drafters.replay import DraftLog, Replay, SurvivalLaw
from specpilot.engine import Engine
from specpilot.formats import open_checkpoint

BLOCK = 8
PROMPT = list(range(20, 60))
TRUE_A, TRUE_B = -0.7, 0.9


def log_of(generations: int = 16, drafts: int = 64, slots: int = BLOCK - 1) -> DraftLog:
    """Margins of generations of different ease, outcomes by a logistic law that is known."""
    random = np.random.default_rng(1)
    ease = random.uniform(1, 4, (generations, 1, 1))
    margins = random.exponential(ease, (generations, drafts, slots))
    right = random.random(margins.shape) < 1 / (1 + np.exp(-TRUE_A - TRUE_B * np.minimum(margins, 8)))
    return DraftLog(margins.astype(np.float32), right.cumprod(2).sum(2))


LOG = log_of()


def test_the_fit_finds_the_law_that_made_the_log():
    a, b = log_of(generations=64, drafts=256).fit()
    assert abs(a - TRUE_A) < 0.06 and abs(b - TRUE_B) < 0.06


@pytest.mark.parametrize("tau", [2.0, 3.5, 5.0, 6.5])
def test_draws_have_the_tau_and_are_calibrated(tau):
    law = SurvivalLaw.of(LOG, tau)
    assert abs(law.tau - tau) < 1e-4
    a, b = LOG.fit()
    drawn, chances, outcomes = [], [], []
    for request in range(2 * len(LOG.margins)):
        right, margins = law.draw(request, 10000, seed=3)
        drawn.append(1 + right.mean())
        seen = np.arange(BLOCK - 1) <= right[:, None]
        chances.append(1 / (1 + np.exp(-a - b * np.minimum(margins[seen], 8))))
        outcomes.append((np.arange(BLOCK - 1) < right[:, None])[seen])
    assert abs(np.mean(drawn) - tau) < 0.005 * tau
    assert np.std(drawn) > 0.1, "requests differ"
    few = np.mean(drawn[:5])
    assert abs(few - tau) < 0.1 * tau, "few requests are not all easy or all hard"
    chance, outcome = np.concatenate(chances), np.concatenate(outcomes)
    for low in np.arange(0.3, 1, 0.1):  # what the margins say is what happens
        bin = (chance >= low) & (chance < low + 0.1)
        if bin.sum() > 2000:
            assert abs(outcome[bin].mean() - chance[bin].mean()) < 0.03


def test_draws_repeat_by_seed_and_request_alone():
    law = SurvivalLaw.of(LOG, 4.0)
    first, again = law.draw(5, 50, seed=1), law.draw(5, 80, seed=1)
    assert np.array_equal(first[1], law.draw(5, 50, seed=1)[1])
    assert not np.array_equal(first[0], law.draw(5, 50, seed=2)[0])
    assert len(again[0]) == 80


def test_a_tau_out_of_reach_is_refused():
    with pytest.raises(ValueError, match="τ 8.0 is not between"):
        SurvivalLaw.of(LOG, 8.0)
    with pytest.raises(ValueError, match="τ 1.0 is not between"):
        SurvivalLaw.of(LOG, 1.0)
    assert SurvivalLaw.of(LOG.first(3), 3.0).margins.shape[2] == 3


@pytest.fixture(scope="module")
def engine(target, drafter):
    model = tiny_targets.target_of(target)
    checkpoint = open_checkpoint(drafter)
    inner = DFlashDraftModel(checkpoint.config, checkpoint, tiny_drafters.parts_of(model), "w12")
    return Engine(model, Replay(inner, SurvivalLaw.of(LOG, 4.0), seed=1), max_context=300)


@pytest.mark.parametrize("sync_free", [False, True])
def test_every_pass_accepts_what_was_drawn(engine, sync_free, monkeypatch):
    monkeypatch.setattr(engine, "sync_free", sync_free)
    replay = engine.drafter
    new = 160
    passes = 0
    for request in range(3):
        prompt = [*PROMPT, request]
        # A block more than is asked for later: the last drafts need something to be right about.
        ar = engine.decode(prompt, max_new_tokens=new + BLOCK, verify="ar", ignore_stop_ids=True)
        replay.follow(prompt, ar.tokens, request)
        chain = engine.decode(prompt, max_new_tokens=new, verify="chain", ignore_stop_ids=True)
        assert chain.tokens == ar.tokens[:new]
        expected, start = Counter(), len(prompt)
        while start < len(prompt) + new - 1:
            count = min(int(replay.drawn[start]) + 1, len(prompt) + new - 1 - start)
            expected[count] += 1
            start += count
        assert chain.stats.accepted == expected
        assert len(expected) > 3
        passes += chain.stats.passes
    assert 2.5 < 3 * (new - 1) / passes < 6


def test_a_policy_sees_the_margins_of_the_draw(engine):
    replay = engine.drafter
    ar = engine.decode(PROMPT, max_new_tokens=60, verify="ar", ignore_stop_ids=True)
    replay.follow(PROMPT, ar.tokens, request=7)
    chain = engine.decode(PROMPT, max_new_tokens=20, verify="auto", ignore_stop_ids=True)
    assert chain.tokens == ar.tokens[:20]
    margins = replay.law.draw(7, 60, seed=1)[1]
    replay.place_block(len(PROMPT) + 3, 0)
    ids, seen = replay._own_ids.clone(), replay._own_margins.clone()
    replay.draft(ids[:4], seen[:4])
    assert np.array_equal(seen[:4].numpy(), margins[3, :4])
    right = int(replay.drawn[len(PROMPT) + 3])
    assert (ids[:4].numpy() == np.array(ar.tokens[4:8])).tolist() == [k < right for k in range(4)]


def test_what_does_not_fit_is_refused(engine):
    with pytest.raises(ValueError, match="a law of 3 slots for a drafter that proposes 7"):
        Replay(engine.drafter.inner, SurvivalLaw.of(LOG.first(3), 2.0))
    with pytest.raises(ValueError, match="301 tokens"):
        engine.drafter.follow([1] * 100, [1] * 201, 0)
