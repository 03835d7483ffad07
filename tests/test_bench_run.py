"""bench/run: the documented command works in a checkout, and its figures make sense."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from specpilot import _C

RUN = Path(__file__).parents[1] / "bench" / "run"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="bench/run builds with cmake, which is not installed")
def test_bench_run_measures_every_variant_that_runs_here(tmp_path, monkeypatch):
    monkeypatch.delenv("SPECPILOT_CUDA", raising=False)
    out = tmp_path / "lines.jsonl"
    command = [RUN, "swiglu", "--epochs", "3", "--threads", "1", "--shape", "R=1 ", "--json", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    machine, *lines = map(json.loads, out.read_text().splitlines())
    assert machine["threads"] == 1 and machine["tier"] == _C.machine_tier() and machine["cpu"]
    expected = {name for name, _, runs in _C.variants("swiglu") if runs and name.startswith("cpu")}
    assert {line["shape"] for line in lines} == {"R=1 I=1536", "R=1 I=12288"}
    for shape in ("R=1 I=1536", "R=1 I=12288"):
        assert {line["variant"] for line in lines if line["shape"] == shape} == expected
    for line in lines:
        width = int(line["shape"].split("=")[2])
        assert 0 < line["min_us"] <= line["median_us"] and line["epochs"] == 3
        assert line["gbps"] == pytest.approx(6 * width / line["median_us"] / 1e3, rel=1e-2)


def test_an_unknown_op_is_named():
    done = subprocess.run([RUN, "no_such_op"], capture_output=True, text=True)
    assert done.returncode == 2 and "no bench for no_such_op; known: accept, advance, argmax" in done.stderr
