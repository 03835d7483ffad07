"""Each example runs as it stands, on a tiny pair; the test knows all of them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import tiny_engines

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("examples")
    return str(tiny_engines.save_target(root / "target")), str(tiny_engines.save_drafter(root / "drafter"))


@pytest.fixture
def run(pair, monkeypatch, capsys, tmp_path):
    """``run(name)``: what an example prints for a tiny pair."""

    def call(name: str) -> str:
        monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path))
        monkeypatch.setattr(sys, "argv", [name, *pair])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return call


def test_decode(run):
    out = run("decode.py")
    assert "tok/s" in out and out.count(" tokens: ") == 3
    assert out.endswith("the same tokens without speculation: True\n")


def test_stream(run):
    out = run("stream.py")
    assert "tok/s" in out and "interrupted after" in out


def test_every_example_has_a_test():
    tested = {name.removeprefix("test_") + ".py" for name in globals() if name.startswith("test_")}
    tested |= {p.name.removeprefix("test_") for p in Path(__file__).parent.rglob("test_*.py")}
    assert {p.name for p in EXAMPLES.glob("*.py")} <= tested
