"""Widths: near the best of a table, whatever acceptance does to it, and better where margins tell."""

from __future__ import annotations

import random

import numpy as np
import pytest

from specpilot.cost import StepTime, widths_up_to
from specpilot.width_policy import Auto, Fixed

WIDTHS = widths_up_to(16)


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
    """Where drafts survive with chances that ``slots`` gives a step, and times are those of ``costs`` up to a factor.

    ``sync_free``: widths are not narrowed, and a step is observed after the next one's width was asked for.
    """

    def __init__(
        self, policy, costs, slots, scale: float = 1.0, seed: int = 0, sync_free: bool = False
    ) -> None:
        self.sync_free, self.late = sync_free, None
        self.policy, self.costs, self.slots, self.scale = policy, costs, slots, scale
        self.pick = random.Random(seed)
        self.steps: list[tuple[int, int, int, float]] = []  # drafted, verified, emitted, seconds

    def run(self, steps: int) -> list[tuple[int, int, int, float]]:
        """The steps that were made."""
        for _ in range(steps):
            drafted = verified = self.policy.width()
            chances, margins = self.slots(self.pick)
            shown = np.array(margins[: drafted - 1], np.float32)
            if drafted > 1 and not self.sync_free:
                verified = self.policy.narrow(shown)
            assert 1 <= verified <= drafted
            emitted = 1
            while emitted < verified and self.pick.random() < chances[emitted - 1]:
                emitted += 1
            time = StepTime(self.scale * self.costs[drafted].draft, self.scale * self.costs[verified].verify)
            seen = drafted, verified, emitted, time, shown
            if self.sync_free:
                seen, self.late = self.late, seen
            if seen:
                self.policy.observe(*seen)
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
    machine = Machine(Auto(costs), costs, slots, scale)
    machine.run(steps // 5)
    return machine.run(steps - steps // 5)


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
    fixed = max(rate(Machine(Fixed(w), costs, clear_or_not).run(3000)) for w in WIDTHS)
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
    machine = Machine(Auto({**truth, 16: StepTime(0.1, 0.5)}), truth, constant(0.5))
    verified = [s[1] for s in machine.run(400)]
    assert verified[0] == 16 and verified[300:].count(16) <= 2


def test_where_one_is_best_it_tries_now_and_then_and_ever_less():
    steps = Machine(Auto(STEEP), STEEP, constant(0.0)).run(3000)
    tries = [i for i, s in enumerate(steps) if s[0] > 1 and i > 30]
    gaps = [b - a for a, b in zip(tries, tries[1:], strict=False)]
    assert 5 < len(gaps) < 15 and gaps == sorted(gaps) and gaps[-1] == Auto.LONGEST + 1


def test_a_try_finds_that_drafts_have_become_right():
    costs = STEEP | {16: StepTime(0.1, 1.4)}
    machine = Machine(Auto(costs), costs, constant(0.0))
    before = machine.run(500)
    machine.slots = constant(1.0)
    after = machine.run(1000)
    assert [s[0] for s in before[-10:]].count(1) >= 9 and [s[1] for s in after[-100:]].count(16) > 95


def test_one_width_leaves_no_choice():
    assert {
        s[0] for s in Machine(Auto({1: StepTime(0.0, 0.5)}), {1: StepTime(0.0, 0.5)}, constant(0.5)).run(200)
    } == {1}


def test_widths_that_the_end_cuts_short_count_for_acceptance_only():
    policy = Auto(FLAT)
    before = [(policy.draft[w], policy.verify[w]) for w in WIDTHS if w > 1]
    ones = np.ones(4, np.float32)
    assert policy.narrow(ones) in (3, 4)
    policy.observe(5, 5, 5, StepTime(1e-9, 1e-9), ones)
    assert [(policy.draft[w], policy.verify[w]) for w in WIDTHS if w > 1] == before
    fresh = Auto(FLAT)
    assert policy.survival.chances([1.0]) > fresh.survival.chances([1.0])


@pytest.mark.parametrize("costs", [FLAT, STEEP, table(0.5, 1.0, 0.15)], ids=["flat", "steep", "between"])
@pytest.mark.parametrize("chance", [0.0, 0.6, 0.95])
def test_steps_that_do_not_wait_settle_near_the_best_width_too(costs, chance):
    machine = Machine(Auto(costs, narrows=False), costs, constant(chance), sync_free=True)
    machine.run(800)
    assert rate(machine.run(3000)) > 0.93 * best(costs, chance)


def test_a_try_is_judged_by_its_own_step():
    """The steps before and after it are observed while it is under way; a forgotten one is judged by none."""
    costs = STEEP | {16: StepTime(0.1, 1.4)}
    machine = Machine(Auto(costs, narrows=False), costs, constant(0.0), sync_free=True)
    before = machine.run(500)
    tries = [i for i, s in enumerate(before) if s[0] > 1 and i > 30]
    assert tries and all(b - a > 1 for a, b in zip(tries, tries[1:], strict=False))
    machine.policy.begin()  # the last step is never observed
    machine.late, machine.slots = None, constant(1.0)
    assert [s[0] for s in machine.run(1000)[-100:]].count(16) > 95


def test_times_that_tell_nothing_are_left_out():
    policy = Auto(FLAT)
    before = [policy.verify[w] for w in WIDTHS]
    policy.observe(4, 4, 4, None, np.ones(3, np.float32))
    assert [policy.verify[w] for w in WIDTHS] == before
    assert policy.survival.chances([1.0]) > Auto(FLAT).survival.chances([1.0])
