"""Step times: how tables are measured, corrected and kept."""

from __future__ import annotations

import json

import pytest
import torch

from specpilot import cost
from specpilot.cost import StepTime

CPU = torch.device("cpu")
WIDTHS = cost.widths_up_to(16)


def test_widths_up_to():
    assert cost.widths_up_to(16) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert cost.widths_up_to(5) == [1, 2, 3, 4, 5] and cost.widths_up_to(1) == [1]
    assert cost.widths_up_to(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]


def test_one_odd_step_moves_a_cost_little():
    seconds = {w: 1 + 0.01 * w for w in WIDTHS}
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
    assert cost.stored({"target": 1}, CPU, [1, 16], lambda: table) == table
    assert cost.stored({"target": 1}, CPU, [1, 16], lambda: pytest.fail("measured again")) == table
    assert cost.stored({"target": 2}, CPU, [1, 16], lambda: {1: NINE, 16: NINE})[16] == NINE  # another model
    assert cost.stored({"target": 1}, CPU, [1], lambda: {1: NINE}) == {1: NINE}  # other widths
    assert len(list(cache.iterdir())) == 3


def test_other_threads_are_another_machine(cache, threads):
    threads(1)
    cost.stored({}, CPU, [1], lambda: {1: ONE})
    threads(2)
    assert cost.stored({}, CPU, [1], lambda: {1: NINE}) == {1: NINE}


CORRUPT = [
    "", "{", "null", "[]", *(f'{{"seconds": {s}}}' for s in (
        "null", "{}", '{"1": [1, 1]}', '{"1": 1, "4": 1}', '{"1": [1], "4": [1]}', '{"1": [1, 1], "4": [1, -1]}',
        '{"1": [0, NaN], "4": [1, 1]}', '{"1": [0, 1], "4": [0, 1]}', '{"a": [1, 1], "4": [1, 1]}', '{"1": ["x", 1], "4": [1, 1]}',
        '{"1": [1, 1, 1], "4": [1, 1, 1]}', '{"2": [1, 1], "4": [1, 1]}',
    )),
]  # fmt: skip


@pytest.mark.parametrize("content", CORRUPT)
def test_a_corrupt_file_is_measured_again_and_replaced(cache, content):
    cost.stored({}, CPU, [1, 4], lambda: {1: ONE, 4: NINE})
    (path,) = cache.iterdir()
    path.write_text(content)
    assert cost.stored({}, CPU, [1, 4], lambda: {1: NINE, 4: ONE}) == {1: NINE, 4: ONE}
    assert json.loads(path.read_text())["seconds"] == {"1": [*NINE], "4": [*ONE]}
    path.write_bytes(b"\xff\xfe")
    assert cost.stored({}, CPU, [1, 4], lambda: {1: NINE, 4: NINE}) == {1: NINE, 4: NINE}


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "file"))
    assert cost.stored({}, CPU, [1], lambda: {1: ONE}) == {1: ONE}
