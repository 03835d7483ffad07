"""The benchmark measures what it says, writes its report, and does not let unequal tokens pass."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from specpilot.benchmark import Report, Run
from specpilot.benchmark.arms import parse_arms
from specpilot.benchmark.prompts import BUILT_IN, read_prompts
from specpilot.benchmark.stats import Ratio, Spread
from specpilot.forcing import Verdict

MACHINE = {
    "cpu": "a CPU",
    "threads": 2,
    "tier": "cpu_avx2",
    "memory_bandwidth_gbps": 20.0,
    "version": "0.1.0",
    "commit": "abc1234",
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "date": "2026-12-02",
}


def text(renderable) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.fixture
def report():
    """Two prompts of each of two sets; ar-w12 is 1.25 times, chain-w12 two and four times as fast as ar-bf16."""
    found = Report(
        {"target": "t", "drafter": "d", "max_new_tokens": 9}, MACHINE, ["ar-bf16", "ar-w12", "chain-w12"]
    )
    for of in ("maths", "code"):
        for number, chain in enumerate((2, 4)):
            tokens = tuple(range(9))
            for arm, speed, passes in (
                ("ar-bf16", 8, 8),
                ("ar-w12", 10, 8),
                ("chain-w12", 8 * chain, 8 // chain),
            ):
                found.runs.append(Run(of, number, arm, (1, 2, 3, 4), tokens, passes, 0.5, 8 / speed))
    return found


def test_rows_are_medians_paired_ratios_and_both_kinds_of_tau(report):
    row = next(r for r in report.rows() if (r.set, r.arm) == ("code", "chain-w12"))
    assert row.prompts == row.equal == 2
    assert row.tok_s == Spread(24.0, 8.0) and row.prefill_tok_s == Spread(8.0, 0.0)
    assert row.ratios["ar-bf16"].median == 3.0 and row.ratios["ar-w12"].median == pytest.approx(2.4)
    assert row.tau == 3.0 and row.tokens_per_pass == pytest.approx(16 / 6)
    assert [r.set for r in report.rows()] == ["maths"] * 3 + ["code"] * 3 + ["all"] * 3
    assert report.rows()[-1].prompts == 4 and report.ok


def test_an_answer_of_one_token_has_no_decode_speed(report):
    report.runs = [replace(r, tokens=(7,), passes=0) if r.prompt == 0 else r for r in report.runs]
    row = next(r for r in report.rows() if (r.set, r.arm) == ("code", "chain-w12"))
    assert row.tok_s.median == 32.0 and row.ratios["ar-bf16"].median == 4.0 and row.tau == 4.0
    report.runs = [replace(r, tokens=(7,), passes=0) for r in report.runs]
    assert math.isnan(report.rows()[0].tok_s.median) and "–" in report.markdown() and report.ok


def test_unequal_tokens_are_reported_with_prompt_and_position(report, tmp_path):
    at = next(i for i, r in enumerate(report.runs) if (r.set, r.prompt, r.arm) == ("code", 1, "chain-w12"))
    report.runs[at] = replace(report.runs[at], tokens=(0, 1, 2, 77, 4, 5, 6, 7, 8))
    assert not report.ok
    line = "code, prompt 1, position 3: chain-w12 emits 77, ar-w12 3"
    assert report.mismatches() == [line]
    report.write(tmp_path)
    assert line in text(report.table()) and line in (tmp_path / "report.md").read_text()
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["mismatches"] == [line] and not written["ok"]
    assert next(r for r in written["rows"] if (r["set"], r["arm"]) == ("code", "chain-w12"))["equal"] == 1
    report.runs[at] = replace(report.runs[at], tokens=tuple(range(8)))
    assert report.mismatches() == ["code, prompt 1, position 8: chain-w12 emits nothing, ar-w12 8"]


def test_other_systems_may_differ_and_are_controls(report):
    report.runs = [replace(r, arm="other", tokens=(9,) * 9) if r.arm == "ar-bf16" else r for r in report.runs]
    report.arms[0] = "other"
    report.controls, report.others = ("other", "ar-w12"), ("other",)
    assert report.ok and report.reference == "ar-w12"
    assert report.rows()[0].equal == 0 and report.rows()[1].ratios["other"].median == pytest.approx(1.25)
    assert report.rows()[1].prefill_ratios["other"].median == 1.0


def test_a_failed_check_and_an_interruption_are_not_ok(report):
    report.verdicts = {"ar-w12": Verdict(eps=0.1, p0=0.01, alpha=1e-3, passes=100)}
    assert report.ok and "token forcing, ar-w12: ok, 100 positions" in text(report.table())
    report.verdicts["ar-w12"].findings.append("answer 0, position 1: planted")
    assert not report.ok and "answer 0, position 1: planted" in text(report.table())
    report.verdicts, report.partial = {}, True
    assert not report.ok and "PARTIAL" in text(report.table())


def test_stats():
    assert Spread.of([1.0, 2.0, 9.0]) == Spread(2.0, 1.0)
    assert Ratio.of([2.0]) == Ratio(2.0, 2.0, 2.0)
    r = Ratio.of([1.0, 1.1, 1.2, 1.3, 5.0])
    assert 1.0 <= r.low < r.median == 1.2 < r.high <= 5.0


def test_prompts(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"turns": ["one", "two"]}\n\n{"turns": ["three"]}\n')
    (tmp_path / "a.jsonl").write_text('{"turns": ["four"]}\n')
    sets = read_prompts([tmp_path])
    assert [(s.name, s.prompts) for s in sets] == [("a", ("four",)), ("b", ("one", "three"))]
    assert sets[0].note == "" and sets[1].note == "b: the first turn only, 1 of 2 prompts have more"
    assert read_prompts([tmp_path / "b.jsonl"], limit=1)[0].prompts == ("one",)
    assert read_prompts([], limit=3)[0].prompts == BUILT_IN[:3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not JSON"),
        ('{"turns": ["a"]}\n{"prompt": "b"}', "line 2: expected"),
        ('{"turns": []}', "line 1: expected"),
        ('{"turns": [3]}', "line 1: expected"),
        ("[1]", "line 1: expected"),
        ("\n", "no prompts in it"),
    ],
)
def test_bad_prompt_files_are_named(tmp_path, content, message):
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(ValueError, match=rf"p\.jsonl.*{message}"):
        read_prompts([tmp_path / "p.jsonl"])


def test_bad_paths_and_arms_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        read_prompts([tmp_path / "none.jsonl"])
    with pytest.raises(ValueError, match=r"no \*\.jsonl files"):
        read_prompts([tmp_path])
    (tmp_path / "a.jsonl").write_text('{"turns": ["four"]}\n')
    with pytest.raises(ValueError, match="set named 'a' was already given"):
        read_prompts([tmp_path, tmp_path / "a.jsonl"])
    with pytest.raises(
        ValueError,
        match="unknown arm 'tree-w12'; known: ar-bf16, ar-w12, chain-bf16, chain-w12, auto-bf16, auto-w12",
    ):
        parse_arms(["ar-w12", "tree-w12"])
    with pytest.raises(ValueError, match="each once"):
        parse_arms(["ar-w12", "ar-w12"])
