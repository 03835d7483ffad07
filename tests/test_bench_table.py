"""The table of step times: how it is measured and shown, and that ``verify="auto"`` takes it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from specpilot import _C, cost, load, machine
from specpilot.benchmark import table
from specpilot.benchmark.stats import Spread
from specpilot.benchmark.table import StepTable, TableConfig
from specpilot.cost import StepTime

MACHINE = {
    "cpu": "a CPU", "gpu": "a GPU", "threads": 2, "tier": "cpu_avx2", "memory_bandwidth_gbps": 20.0, "version": "0.1.0",
    "commit": None, "torch": "2.13.0", "transformers": "5.24.0", "date": "2026-12-03",
}  # fmt: skip


def no_stage(name, total):
    return lambda n: None


def clock_of_steps(monkeypatch, step: float) -> list[int]:
    """A clock that steps tell, and the widths that ran."""
    ran: list[int] = []
    monkeypatch.setattr(table, "perf_counter", lambda: step * len(ran))
    return ran


@pytest.mark.parametrize(("step", "epochs"), [(100.0, 5), (1.0, 6), (1e-6, 50)])
def test_epochs_fill_the_time_and_rotate(monkeypatch, step, epochs):
    ran = clock_of_steps(monkeypatch, step)

    def run(w: int) -> StepTime:
        ran.append(w)
        return StepTime(0.1 * len(ran), 1.0 * w)

    samples = table.sample(run, [1, 2, 4], no_stage)
    assert ran[:6] == [1, 2, 4] * 2 and len(ran) == 6 + 3 * epochs
    assert ran[6:18] == [1, 2, 4, 2, 4, 1, 4, 1, 2, 1, 2, 4]
    assert {w: len(t) for w, t in samples.items()} == {1: epochs, 2: epochs, 4: epochs}
    assert samples[4][0] == pytest.approx((0.9, 4.0)) and samples[4][1] == pytest.approx((1.1, 4.0))


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Medians: T 10, 20 and 30 ms, D 5 and 6 ms; one odd sample each, and a step of one row that says it drafted."""
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    halves = {1: (0.001, 0.01), 2: (0.005, 0.02), 4: (0.006, 0.03)}
    samples = {w: [StepTime(d, t)] * 2 + [StepTime(9.0, 9.0)] for w, (d, t) in halves.items()}
    return StepTable(
        TableConfig("t", "d"), MACHINE, samples, {"sm_mhz": "1980", "memory_mhz": "3201"}, {"m": 1}
    )


def test_it_shows_medians_and_what_pays(found, tmp_path):
    assert found.verify[4] == Spread(0.03, 0.0) and found.draft == {
        2: Spread(0.005, 0.0),
        4: Spread(0.006, 0.0),
    }
    console = Console(width=200)
    with console.capture() as shown:
        console.print(found.table())
    lines = [line.split() for line in shown.get().splitlines()]
    assert ["1", "10.000", "±", "0.000", "–", "1.00", "1"] in lines
    assert ["4", "30.000", "±", "0.000", "6.000", "±", "0.000", "3.00", "3.60"] in lines
    assert "a GPU on a CPU" in shown.get() and "SM 1980 MHz, memory 3201 MHz" in shown.get()
    found.write(tmp_path / "out")
    written = json.loads((tmp_path / "out/report.json").read_text())
    assert written["rows"][0] == {"width": 1, "verify": {"median": 0.01, "mad": 0.0}, "draft": None}
    assert written["rows"][2]["draft"]["median"] == 0.006 and written["epochs"] == 3
    assert written["samples"]["4"][2] == {"draft": 9.0, "verify": 9.0} and written["clocks"] == found.clocks
    assert (tmp_path / "out/report.png").read_bytes()[1:4] == b"PNG"


def test_it_replaces_what_is_kept(found):
    cpu = torch.device("cpu")
    cost.stored({"m": 1}, cpu, [1, 2, 4], lambda: dict.fromkeys([1, 2, 4], StepTime(1.0, 1.0)))
    path = found.keep()
    assert list(path.parent.iterdir()) == [path]
    assert cost.stored({"m": 1}, cpu, [1, 2, 4], lambda: pytest.fail("measured again")) == {
        1: (0.0, 0.01), 2: (0.005, 0.02), 4: (0.006, 0.03),
    }  # fmt: skip
    kept = json.loads(path.read_text())
    assert kept["clocks"] == found.clocks and kept["epochs"] == 3
    assert kept["key"]["machine"]["threads"] == _C.threads()


@pytest.fixture
def bench(run, target, drafter, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "SECONDS", 0.1)
    names = ("--target", target, "--drafter", drafter, "--out", tmp_path / "out")
    return lambda *more: run("bench", "--table", *names, *more)


def test_auto_decodes_by_the_table(bench, target, drafter, tmp_path, monkeypatch):
    code, out, err = bench("--weights", "bf16")
    assert code == 0 and "T, ms ± MAD" in out, err
    (path,) = (tmp_path / "cache").glob("step-costs-*.json")
    assert str(path) in err
    kept = json.loads(path.read_text())["seconds"]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert {str(row["width"]): row["verify"]["median"] for row in report["rows"]} == {
        w: verify for w, (_, verify) in kept.items()
    }
    monkeypatch.setattr(cost, "measure", lambda *a: pytest.fail("measured again"))
    engine = load(target, drafter, weights="bf16")
    assert [str(w) for w in cost.widths_up_to(engine.drafter.block_size)] == list(kept)
    assert (
        engine.decode("hello", max_new_tokens=8).tokens
        == engine.decode("hello", max_new_tokens=8, verify="ar").tokens
    )
    engine = load(target, drafter)  # other weights have a table of their own
    with pytest.raises(BaseException, match="measured again"):
        engine.decode("hello", max_new_tokens=8)


@pytest.mark.parametrize(
    "option", ["--check", "--limit=1", "--arms=ar-w12", "--max-new-tokens=128", "--prompts=p"]
)
def test_options_of_decoding_are_refused(bench, option):
    code, out, err = bench(option)
    assert code == 1 and out == "" and f"error: {option.split('=')[0]} is for decoding" in err


@pytest.mark.parametrize("option", ["--weights", "--drafter-weights"])
def test_options_of_the_table_are_refused_without_it(run, option):
    code, out, err = run("bench", option, "w12")
    assert code == 1 and out == "" and f"error: {option} goes with --table" in err


@pytest.mark.parametrize("name", ["none", "auto"])
def test_a_table_needs_a_drafter(run, target, name):
    code, out, err = run("bench", "--table", "--target", target, "--drafter", name)
    assert code == 1 and out == "" and f"error: drafter {name}: a table needs" in err and str(target) in err


def test_the_engine_is_taken_while_steps_run(target, drafter):
    engine = load(target, drafter)
    with pytest.raises(RuntimeError, match="busy"):
        engine.time_steps(lambda run, widths: engine.decode("hello", max_new_tokens=2, verify="ar"))
    assert engine.decode("hello", max_new_tokens=2, verify="ar").tokens


def test_clocks_are_asked_for_while_steps_run():
    done: list[int] = []

    def ask() -> dict[str, str]:
        before = len(done)
        while len(done) < before + 3:
            pass
        return {"cpu_mhz": "1"}

    assert table.while_working(lambda: done.append(1), ask) == {"cpu_mhz": "1"}


def test_clocks(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 1)
    cores = [SimpleNamespace(current=800.0), SimpleNamespace(current=2450.4)]
    monkeypatch.setattr(machine.psutil, "cpu_freq", lambda percpu: cores)
    assert machine.clocks(cpu) == {"cpu_mhz": "2450"}
    for nothing in (lambda percpu: [], lambda percpu: None, lambda percpu: open("/none")):
        monkeypatch.setattr(machine.psutil, "cpu_freq", nothing)
        assert machine.clocks(cpu) == {}
    asked: list[list[str]] = []
    said = "NVIDIA H200, 580.1, 1980, 3201, 412.5, 41"
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda d: SimpleNamespace(uuid=f"u{d.index}"))
    monkeypatch.setattr(machine, "output", lambda command: asked.append(command) or said)
    assert machine.clocks(gpu) == {"sm_mhz": "1980", "memory_mhz": "3201"}
    assert asked[0][-2:] == ["-i", "GPU-u1"]
    monkeypatch.setattr(machine, "output", lambda command: "")
    assert machine.clocks(gpu) == {}
