"""Widths: the best of a table, whatever acceptance does to it; how tables are measured, corrected and kept."""

from __future__ import annotations

import json
import random

import pytest

from specpilot import cost

WIDTHS = cost.widths_up_to(16)
FLAT = {w: 1.0 + 0.01 * w for w in WIDTHS}  # a wide pass costs hardly more
STEEP = {w: 0.2 + 0.8 * w for w in WIDTHS}  # a wide pass costs what its rows cost


def expected(chance: float, width: int) -> float:
    """Tokens of a pass when every draft survives with this chance."""
    return sum(chance**i for i in range(width))


def best(costs, chance: float) -> int:
    return max(costs, key=lambda w: expected(chance, w) / costs[w])


def settle(costs, chance: float, steps: int = 2000, scale: float = 1.0, seed: int = 0) -> list[int]:
    """Widths that the policy chooses when drafts survive with this chance and steps take ``scale`` times the table's."""
    pick, policy, chosen = random.Random(seed), cost.Auto(costs), []
    for _ in range(steps):
        w = policy.width()
        emitted = 1
        while emitted < w and pick.random() < chance:
            emitted += 1
        policy.observe(w, emitted, scale * costs[w])
        chosen.append(w)
    return chosen


def rate(costs, widths, chance: float) -> float:
    """Tokens a second over these widths."""
    return sum(expected(chance, w) for w in widths) / sum(costs[w] for w in widths)


def test_widths_up_to():
    assert cost.widths_up_to(16) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert cost.widths_up_to(5) == [1, 2, 3, 4, 5] and cost.widths_up_to(1) == [1]
    assert cost.widths_up_to(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]


@pytest.mark.parametrize("costs", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
def test_the_policy_settles_near_the_best_width(costs, chance):
    """Within 5 % of the speed of the best fixed width."""
    late = settle(costs, chance)[1000:]
    w = best(costs, chance)
    assert rate(costs, late, chance) > 0.95 * expected(chance, w) / costs[w], (w, late[-20:])


def test_extremes_are_reached_exactly():
    late = settle(FLAT, 1.0)[100:]
    assert late.count(16) > 0.95 * len(late)
    late = settle(STEEP, 0.0)[100:]
    assert late.count(1) > 0.95 * len(late)


def test_widths_grow_with_acceptance():
    middle = {w: 1.0 + 0.15 * w for w in WIDTHS}
    means = [sum(late := settle(middle, c)[500:]) / len(late) for c in (0.0, 0.3, 0.5, 0.7, 0.9, 1.0)]
    assert all(a <= b + 0.2 for a, b in zip(means, means[1:], strict=False)), means
    assert means[0] < 1.5 and means[-1] > 15


@pytest.mark.parametrize("scale", [0.2, 5.0])
@pytest.mark.parametrize("chance", [0.6, 0.9])
def test_a_table_off_by_a_factor_still_gives_the_best_width(scale, chance):
    """Measured on a busy machine, or in a short context: all steps are faster or slower by the same factor."""
    costs = {w: 1.0 + 0.1 * w for w in WIDTHS}
    late = settle(costs, chance, scale=scale)[1000:]
    w = best(costs, chance)
    assert rate(costs, late, chance) > 0.95 * expected(chance, w) / costs[w], (w, late[-20:])


def test_a_wrong_entry_is_found_out():
    """The table calls width 16 cheap and it is not: the policy leaves it."""
    truth = {w: 0.2 + 0.4 * w for w in WIDTHS}
    policy, chosen, pick = cost.Auto({**truth, 16: 0.5}), [], random.Random(1)
    for _ in range(300):
        w = policy.width()
        emitted = 1
        while emitted < w and pick.random() < 0.5:
            emitted += 1
        policy.observe(w, emitted, truth[w])
        chosen.append(w)
    assert chosen[0] == 16 and chosen[200:].count(16) <= 2


def test_where_one_is_best_it_probes_now_and_then_and_ever_less():
    chosen = settle(STEEP, 0.0, steps=3000)
    probes = [i for i, w in enumerate(chosen) if w > 1 and i > 10]
    gaps = [b - a for a, b in zip(probes, probes[1:], strict=False)]
    assert 5 < len(gaps) < 15 and gaps == sorted(gaps) and gaps[-1] == cost.Auto.LONGEST + 1


def test_a_probe_finds_that_drafts_have_become_right():
    policy, costs = cost.Auto(STEEP | {16: 1.5}), STEEP | {16: 1.5}
    chosen = []
    for step in range(1500):
        w = policy.width()
        policy.observe(w, 1 if step < 500 else w, costs[w])
        chosen.append(w)
    assert chosen[490:500].count(1) >= 9 and chosen[-100:].count(16) > 95


def test_one_width_leaves_no_choice():
    policy = cost.Auto({1: 0.5})
    for _ in range(200):
        assert policy.width() == 1
        policy.observe(1, 1, 0.5)


def test_widths_that_the_end_cuts_short_count_for_acceptance_only():
    policy = cost.Auto(FLAT)
    before = [policy.costs[w] for w in WIDTHS]
    policy.observe(5, 5, 1e-9)
    assert [policy.costs[w] for w in WIDTHS] == before
    assert policy.survival.expected([5])[0] > cost.Survival(15).expected([5])[0]


def test_one_odd_step_moves_a_cost_little():
    for odd in (1e-6, 1e6):
        costs = cost.StepCosts(FLAT)
        for _ in range(20):
            costs.observe(4, FLAT[4])
        costs.observe(4, odd)
        assert abs(costs[4] / FLAT[4] - 1) < 0.1 and abs(costs[8] / FLAT[8] - 1) < 0.1


def test_survival_counts_the_positions_that_were_judged():
    s = cost.Survival(3)
    assert s.expected([1, 2, 3, 4]) == pytest.approx([1, 1.7, 1.7 + 0.7**2, 1.7 + 0.7**2 + 0.7**3])
    for _ in range(500):
        s.observe(4, 2)  # the first draft is right, the second wrong, the third unjudged
    first, second, third = (
        b - a for a, b in zip([1, *s.expected([2, 3])], s.expected([2, 3, 4]), strict=True)
    )
    assert first == pytest.approx(1, abs=0.05) and second < 0.1 and third < second


def test_measuring_takes_the_best_of_several_runs():
    runs = {1: iter([3.0, 1.0, 2.0]), 2: iter([5.0, 4.0, 6.0])}
    assert cost.measure(lambda w: next(runs[w]) / 100, [1, 2]) == {1: 0.01, 2: 0.04}


def test_measuring_keeps_to_its_budget(monkeypatch):
    """A clock that steps tell: both ends are measured whatever they take, what is left out lies between them."""
    clock, ran = [0.0], []

    def run(w: int) -> float:
        ran.append(w)
        clock[0] += 0.1 * w
        return 0.1 * w

    monkeypatch.setattr(cost, "perf_counter", lambda: clock[0])
    assert cost.measure(run, WIDTHS, budget=0.5) == pytest.approx({w: 0.1 * w for w in WIDTHS})
    assert sorted(set(ran)) == [1, 16]
    clock[0], ran[:] = 0.0, []
    assert cost.measure(run, WIDTHS, budget=3.0) == pytest.approx({w: 0.1 * w for w in WIDTHS})
    assert clock[0] < 6 and len(set(ran)) > 2
    assert cost.measure(run, [1], budget=0.0) == {1: 0.1}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path))
    return tmp_path


def test_measured_costs_are_kept(cache):
    table = {1: 0.25, 16: 1.0 / 3}
    assert cost.stored({"target": 1}, [1, 16], lambda: table) == table
    assert cost.stored({"target": 1}, [1, 16], lambda: pytest.fail("measured again")) == table
    assert cost.stored({"target": 2}, [1, 16], lambda: {1: 9.0, 16: 9.0})[16] == 9.0  # another model
    assert cost.stored({"target": 1}, [1], lambda: {1: 9.0}) == {1: 9.0}  # other widths
    assert len(list(cache.iterdir())) == 3


def test_other_threads_are_another_machine(cache, threads):
    threads(1)
    cost.stored({}, [1], lambda: {1: 1.0})
    threads(2)
    assert cost.stored({}, [1], lambda: {1: 2.0}) == {1: 2.0}


CORRUPT = [
    "", "{", "null", "[]", '{"seconds": null}', '{"seconds": {}}', '{"seconds": {"1": -1.0}}', '{"seconds": {"1": NaN}}',
    '{"seconds": {"a": 1.0}}', '{"seconds": {"1": "x"}}', '{"seconds": {"1": 0}}', '{"seconds": {"2": 1.0}}',
]  # fmt: skip


@pytest.mark.parametrize("content", CORRUPT)
def test_a_corrupt_file_is_measured_again_and_replaced(cache, content):
    cost.stored({}, [1, 4], lambda: {1: 1.0, 4: 2.0})
    (path,) = cache.iterdir()
    path.write_text(content)
    assert cost.stored({}, [1, 4], lambda: {1: 3.0, 4: 4.0}) == {1: 3.0, 4: 4.0}
    assert json.loads(path.read_text())["seconds"] == {"1": 3.0, "4": 4.0}
    path.write_bytes(b"\xff\xfe")
    assert cost.stored({}, [1, 4], lambda: {1: 5.0, 4: 6.0}) == {1: 5.0, 4: 6.0}


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "file"))
    assert cost.stored({}, [1], lambda: {1: 1.0}) == {1: 1.0}
