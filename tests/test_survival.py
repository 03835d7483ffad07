"""Survival: the online fit agrees with an offline fit and with the truth; what it expects of drafts is their product."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from specpilot.survival import Survival


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def passes(truth, count: int, width: int = 8, seed: int = 0):
    """(margins, emitted) of passes whose drafts survive with chance truth(margin)."""
    pick = random.Random(seed)
    for _ in range(count):
        margins = [pick.expovariate(0.4) for _ in range(width - 1)]
        emitted = 1
        while emitted < width and pick.random() < truth(margins[emitted - 1]):
            emitted += 1
        yield margins, emitted


def fitted(judged: list[tuple[float, bool]]) -> tuple[float, float]:
    """Maximum likelihood by torch, in float64."""
    x = torch.tensor([min(m, Survival.LARGEST) for m, _ in judged], dtype=torch.float64)
    y = torch.tensor([right for _, right in judged], dtype=torch.float64)
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(w[0] + w[1] * x, y)
        value.backward()
        return value

    optimizer.step(loss)
    return w[0].item(), w[1].item()


@pytest.mark.parametrize("a, b", [(-0.7, 0.9), (-2.0, 0.5), (0.5, 0.2), (-3.0, 2.0)])
def test_the_fit_is_that_of_all_judged_drafts(a, b):
    survival, judged = Survival(7), []
    for margins, emitted in passes(lambda m: sigmoid(a + b * min(m, 8.0)), 3000):
        survival.learn(margins, 8, emitted)
        judged += [(m, i < emitted - 1) for i, m in enumerate(margins[: min(emitted, 7)])]
    offline = fitted(judged)
    for margin in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        got, want = survival.chances([margin])[0], sigmoid(offline[0] + offline[1] * margin)
        assert abs(got - want) < 0.1, (margin, got, want)  # it forgets, so it is not as sharp
        assert abs(want - sigmoid(a + b * margin)) < 0.05


def test_drafts_that_were_not_verified_teach_nothing():
    survival = Survival(7)
    survival.learn([1.0, 1.0, 1.0], 1, 1)
    before = survival.chances([0.0, 1.0, 5.0])
    survival.learn([], 1, 1)
    assert survival.chances([0.0, 1.0, 5.0]) == before == Survival(7).chances([0.0, 1.0, 5.0])


def test_a_changed_drafter_is_learnt_again():
    survival = Survival(7)
    for margins, emitted in passes(lambda m: 0.95, 500):
        survival.learn(margins, 8, emitted)
    assert min(survival.chances([0.5, 2.0, 6.0])) > 0.8
    for margins, emitted in passes(lambda m: 0.05, 100):
        survival.learn(margins, 8, emitted)
    assert max(survival.chances([0.5, 2.0, 6.0])) < 0.35


def test_a_clearer_preference_is_never_worth_less():
    survival = Survival(7)
    for margins, emitted in passes(lambda m: 0.9 if m < 1 else 0.1, 500):
        survival.learn(margins, 8, emitted)
    chances = survival.chances([0.0, 1.0, 4.0, 100.0, math.inf])
    assert chances == sorted(chances) and 0 < chances[0] and chances[-1] < 1


def test_expected_tokens():
    survival = Survival(4)
    fresh = survival.tokens()
    assert fresh.shape == (1, 5) and fresh[0] == pytest.approx(
        [sum(0.7**i for i in range(w)) for w in range(1, 6)]
    )
    survival.remember([2.0, 0.0])
    survival.remember([1.0])
    known = survival.chances([2.0, 0.0, 1.0])
    first = (known[0] + known[2]) / 2  # mean of those that were drafted
    second = third = fourth = known[1]  # what follows takes the mean of the slot before
    rows = [
        [first, second, third, fourth],
        [known[0], known[1], third, fourth],
        [known[2], second, third, fourth],
    ]
    want = [[1 + sum(math.prod(row[: i + 1]) for i in range(n)) for n in range(5)] for row in rows]
    assert np.allclose(survival.tokens(), want)


def test_only_recent_drafts_count():
    survival = Survival(2)
    for _ in range(Survival.RECENT):
        survival.remember([8.0, 8.0])
    assert survival.tokens().shape == (Survival.RECENT, 3) and survival.tokens()[:, -1].min() > 2.9
