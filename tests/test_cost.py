"""Widths: the best of a table, whatever acceptance does to it; how tables are measured, corrected and kept."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from specpilot import cost
from specpilot.cost import StepTime

WIDTHS = cost.widths_up_to(16)


def table(draft: float, fixed: float, row: float) -> dict[int, StepTime]:
    """Drafting takes ``draft`` whatever its width, verifying ``fixed`` and so much a row."""
    return {w: StepTime(draft if w > 1 else 0.0, fixed + row * w) for w in WIDTHS}


FLAT = table(0.1, 1.0, 0.01)  # a wide pass costs hardly more
STEEP = table(0.1, 0.2, 0.8)  # a wide pass costs what its rows cost


def expected(chance: float, width: int) -> float:
    """Tokens of a pass when every draft survives with this chance."""
    return sum(chance**i for i in range(width))


def best(costs, chance: float) -> float:
    """Tokens a second of the best fixed width."""
    return max(expected(chance, w) / sum(t) for w, t in costs.items())


class Machine:
    """Where drafts survive with chances that ``slots`` gives a step, and times are those of ``costs`` up to a factor."""

    def __init__(self, policy, costs, slots, scale: float = 1.0, seed: int = 0) -> None:
        self.policy, self.costs, self.slots, self.scale = policy, costs, slots, scale
        self.pick = random.Random(seed)
        self.steps: list[tuple[int, int, int, float]] = []  # drafted, verified, emitted, seconds

    def run(self, steps: int) -> list[tuple[int, int, int, float]]:
        """The steps that were made."""
        for _ in range(steps):
            drafted = verified = self.policy.width()
            chances, margins = self.slots(self.pick)
            if drafted > 1:
                verified = self.policy.narrow(np.array(margins[: drafted - 1], np.float32))
            assert 1 <= verified <= drafted
            emitted = 1
            while emitted < verified and self.pick.random() < chances[emitted - 1]:
                emitted += 1
            time = StepTime(self.scale * self.costs[drafted].draft, self.scale * self.costs[verified].verify)
            self.policy.observe(drafted, verified, emitted, time)
            self.steps.append((drafted, verified, emitted, sum(time)))
        return self.steps[-steps:]


def constant(chance: float, margin: float = 1.0):
    """Margins say nothing: all drafts are alike."""
    return lambda pick: ([chance] * 15, [margin] * 15)


def rate(steps) -> float:
    """Tokens a second."""
    return sum(s[2] for s in steps) / sum(s[3] for s in steps)


def settled(costs, slots, steps: int = 4000, scale: float = 1.0) -> list[tuple[int, int, int, float]]:
    """The steps after the first fifth."""
    machine = Machine(cost.Auto(costs), costs, slots, scale)
    machine.run(steps // 5)
    return machine.run(steps - steps // 5)


def test_widths_up_to():
    assert cost.widths_up_to(16) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert cost.widths_up_to(5) == [1, 2, 3, 4, 5] and cost.widths_up_to(1) == [1]
    assert cost.widths_up_to(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]


@pytest.mark.parametrize("costs", [FLAT, STEEP, table(0.5, 1.0, 0.15)], ids=["flat", "steep", "between"])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
def test_the_policy_settles_near_the_best_width(costs, chance):
    assert rate(settled(costs, constant(chance))) > 0.95 * best(costs, chance)


def test_extremes_are_reached_exactly():
    late = settled(FLAT, constant(1.0), 600)
    assert [s[1] for s in late].count(16) > 0.95 * len(late)
    late = settled(STEEP, constant(0.0), 600)
    assert [s[0] for s in late].count(1) > 0.95 * len(late)


def test_widths_grow_with_acceptance():
    costs, means = table(0.1, 1.0, 0.15), []
    for chance in (0.0, 0.3, 0.5, 0.7, 0.9, 1.0):
        late = settled(costs, constant(chance), 2000)
        means.append(sum(s[1] for s in late) / len(late))
    assert all(a <= b + 0.2 for a, b in zip(means, means[1:], strict=False)), means
    assert means[0] < 1.5 and means[-1] > 15


def clear_or_not(pick: random.Random) -> tuple[list[float], list[float]]:
    """Three of four drafts are clear ones and mostly right; the others mostly are not, and spoil the rest."""
    margins = [pick.choice([0.5, 5.0, 5.0, 5.0]) for _ in range(15)]
    return [0.97 if m > 1 else 0.3 for m in margins], margins


def test_margins_that_tell_beat_every_fixed_width():
    costs = table(0.1, 0.5, 0.2)
    fixed = max(rate(Machine(cost.Fixed(w), costs, clear_or_not).run(3000)) for w in WIDTHS)
    assert rate(settled(costs, clear_or_not)) > 1.08 * fixed


@pytest.mark.parametrize("scale", [0.2, 5.0])
@pytest.mark.parametrize("chance", [0.6, 0.9])
def test_a_table_off_by_a_factor_still_gives_the_best_width(scale, chance):
    """Measured on a busy machine, or in a short context: all steps are faster or slower by the same factor."""
    costs = table(0.1, 0.9, 0.1)
    assert rate(settled(costs, constant(chance), scale=scale)) * scale > 0.93 * best(costs, chance)


def test_a_wrong_entry_is_found_out():
    """The table calls width 16 cheap and it is not: the policy leaves it."""
    truth = table(0.1, 0.2, 0.4)
    machine = Machine(cost.Auto({**truth, 16: StepTime(0.1, 0.5)}), truth, constant(0.5))
    verified = [s[1] for s in machine.run(400)]
    assert verified[0] == 16 and verified[300:].count(16) <= 2


def test_where_one_is_best_it_tries_now_and_then_and_ever_less():
    steps = Machine(cost.Auto(STEEP), STEEP, constant(0.0)).run(3000)
    tries = [i for i, s in enumerate(steps) if s[0] > 1 and i > 30]
    gaps = [b - a for a, b in zip(tries, tries[1:], strict=False)]
    assert 5 < len(gaps) < 15 and gaps == sorted(gaps) and gaps[-1] == cost.Auto.LONGEST + 1


def test_a_try_finds_that_drafts_have_become_right():
    costs = STEEP | {16: StepTime(0.1, 1.4)}
    machine = Machine(cost.Auto(costs), costs, constant(0.0))
    before = machine.run(500)
    machine.slots = constant(1.0)
    after = machine.run(1000)
    assert [s[0] for s in before[-10:]].count(1) >= 9 and [s[1] for s in after[-100:]].count(16) > 95


def test_one_width_leaves_no_choice():
    assert {
        s[0]
        for s in Machine(cost.Auto({1: StepTime(0.0, 0.5)}), {1: StepTime(0.0, 0.5)}, constant(0.5)).run(200)
    } == {1}


def test_widths_that_the_end_cuts_short_count_for_acceptance_only():
    policy = cost.Auto(FLAT)
    before = [(policy.draft[w], policy.verify[w]) for w in WIDTHS if w > 1]
    assert policy.narrow(np.ones(4, np.float32)) in (3, 4)
    policy.observe(5, 5, 5, StepTime(1e-9, 1e-9))
    assert [(policy.draft[w], policy.verify[w]) for w in WIDTHS if w > 1] == before
    fresh = cost.Auto(FLAT)
    assert policy.survival.chances([1.0]) > fresh.survival.chances([1.0])


def test_one_odd_step_moves_a_cost_little():
    seconds = {w: t.verify for w, t in FLAT.items()}
    for odd in (1e-6, 1e6):
        costs = cost.StepCosts(seconds)
        for _ in range(20):
            costs.observe(4, seconds[4])
        costs.observe(4, odd)
        assert abs(costs[4] / seconds[4] - 1) < 0.1 and abs(costs[8] / seconds[8] - 1) < 0.1


def test_measuring_takes_the_best_of_several_runs():
    runs = {1: iter([(0, 3), (0, 1), (0, 2)]), 2: iter([(1, 5), (2, 4), (3, 6)])}

    def run(w: int) -> StepTime:
        return StepTime(*(t / 100 for t in next(runs[w])))

    assert cost.measure(run, [1, 2]) == {1: (0.0, 0.01), 2: (0.01, 0.04)}


def test_measuring_keeps_to_its_budget(monkeypatch):
    """A clock that steps tell: both ends are measured whatever they take, what is left out lies between them."""
    clock, ran = [0.0], []

    def run(w: int) -> StepTime:
        ran.append(w)
        clock[0] += 0.1 * w
        return StepTime(0.04 * w, 0.06 * w)

    def check(budget: float) -> None:
        for w, t in cost.measure(run, WIDTHS, budget=budget).items():
            assert t == pytest.approx((0.04 * w, 0.06 * w))

    monkeypatch.setattr(cost, "perf_counter", lambda: clock[0])
    check(0.5)
    assert sorted(set(ran)) == [1, 16]
    clock[0], ran[:] = 0.0, []
    check(3.0)
    assert clock[0] < 6 and len(set(ran)) > 2
    assert cost.measure(run, [1], budget=0.0) == {1: (0.04, 0.06)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path))
    return tmp_path


ONE, NINE = StepTime(0.5, 1.0), StepTime(4.0, 9.0)


def test_measured_costs_are_kept(cache):
    table = {1: StepTime(0.0, 0.25), 16: StepTime(0.5, 1.0 / 3)}
    assert cost.stored({"target": 1}, [1, 16], lambda: table) == table
    assert cost.stored({"target": 1}, [1, 16], lambda: pytest.fail("measured again")) == table
    assert cost.stored({"target": 2}, [1, 16], lambda: {1: NINE, 16: NINE})[16] == NINE  # another model
    assert cost.stored({"target": 1}, [1], lambda: {1: NINE}) == {1: NINE}  # other widths
    assert len(list(cache.iterdir())) == 3


def test_other_threads_are_another_machine(cache, threads):
    threads(1)
    cost.stored({}, [1], lambda: {1: ONE})
    threads(2)
    assert cost.stored({}, [1], lambda: {1: NINE}) == {1: NINE}


CORRUPT = [
    "", "{", "null", "[]", *(f'{{"seconds": {s}}}' for s in (
        "null", "{}", '{"1": [1, 1]}', '{"1": 1, "4": 1}', '{"1": [1], "4": [1]}', '{"1": [1, 1], "4": [1, -1]}',
        '{"1": [0, NaN], "4": [1, 1]}', '{"1": [0, 1], "4": [0, 1]}', '{"a": [1, 1], "4": [1, 1]}', '{"1": ["x", 1], "4": [1, 1]}',
        '{"1": [1, 1, 1], "4": [1, 1, 1]}', '{"2": [1, 1], "4": [1, 1]}',
    )),
]  # fmt: skip


@pytest.mark.parametrize("content", CORRUPT)
def test_a_corrupt_file_is_measured_again_and_replaced(cache, content):
    cost.stored({}, [1, 4], lambda: {1: ONE, 4: NINE})
    (path,) = cache.iterdir()
    path.write_text(content)
    assert cost.stored({}, [1, 4], lambda: {1: NINE, 4: ONE}) == {1: NINE, 4: ONE}
    assert json.loads(path.read_text())["seconds"] == {"1": [*NINE], "4": [*ONE]}
    path.write_bytes(b"\xff\xfe")
    assert cost.stored({}, [1, 4], lambda: {1: NINE, 4: NINE}) == {1: NINE, 4: NINE}


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "file"))
    assert cost.stored({}, [1], lambda: {1: ONE}) == {1: ONE}
