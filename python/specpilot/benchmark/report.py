"""What a benchmark found: medians, paired ratios, bit equality, token forcing; JSON, Markdown, table."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..forcing import Calibration, Verdict
from .arms import Run
from .stats import Ratio, Spread

ALL = "all"
CONTROLS = ("ar-bf16", "ar-w12")


@dataclass(frozen=True)
class Row:
    """One arm on one prompt set."""

    set: str
    arm: str
    prompts: int
    tok_s: Spread
    prefill_tok_s: Spread
    tau: float  # mean of the requests' own means
    tokens_per_pass: float  # all tokens over all passes
    ratios: dict[str, Ratio]  # control → speed over it, paired by prompt
    prefill_ratios: dict[str, Ratio]
    equal: int  # prompts whose tokens equal the reference arm's


def machine_line(m: dict[str, Any]) -> str:
    """Where it was measured, and with what: the facts of ``benchmark.machine``."""
    commit = f" ({m['commit']})" if m.get("commit") else ""
    gpu = f"{m['gpu']} on " if m.get("gpu") else ""
    return (
        f"{gpu}{m['cpu']}, {m['threads']} threads, {m['tier']}, {m['memory_bandwidth_gbps']:.1f} GB/s read · "
        f"specpilot {m['version']}{commit}, torch {m['torch']}, transformers {m['transformers']} · "
        f"{m['date']}"
    )


@dataclass
class Report:
    """Filled by a session. ``partial``: it was interrupted, and holds what was measured until then."""

    config: dict[str, Any]
    machine: dict[str, Any]
    arms: list[str]
    notes: list[str] = field(default_factory=list)
    controls: tuple[str, ...] = CONTROLS  # arms that speeds are divided by
    others: tuple[str, ...] = ()  # arms of other systems, whose tokens may differ
    runs: list[Run] = field(default_factory=list)
    calibration: Calibration | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    partial: bool = False

    @property
    def reference(self) -> str:
        """The arm whose tokens the others must emit."""
        return next((c for c in ("ar-w12", "ar-bf16") if c in self.arms), self.arms[0])

    @property
    def ok(self) -> bool:
        return not self.partial and not self.mismatches() and all(v.ok for v in self.verdicts.values())

    def _by_arm(self, arm: str, of: str = ALL) -> dict[tuple[str, int], Run]:
        return {r.key: r for r in self.runs if r.arm == arm and of in (ALL, r.set)}

    def mismatches(self) -> list[str]:
        """Every answer that is not the reference's, by prompt and first differing position."""
        found = []
        want = self._by_arm(self.reference)
        for run in self.runs:
            other = want.get(run.key)
            if other is None or run.arm in self.others or run.tokens == other.tokens:
                continue
            pairs = zip(run.tokens, other.tokens, strict=False)
            short = min(len(run.tokens), len(other.tokens))
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), short)
            got, expected = (t[at] if at < len(t) else "nothing" for t in (run.tokens, other.tokens))
            where = f"{run.set}, prompt {run.prompt}, position {at}"
            found.append(f"{where}: {run.arm} emits {got}, {self.reference} {expected}")
        return found

    def rows(self) -> list[Row]:
        """Rows by set and arm, and over all sets when there are several."""
        sets = list(dict.fromkeys(r.set for r in self.runs))
        found = []
        for name in [*sets, *([ALL] if len(sets) > 1 else [])]:
            by_arm = {arm: self._by_arm(arm, name) for arm in self.arms}
            found += [self._row(name, arm, by_arm) for arm in self.arms if by_arm[arm]]
        return found

    def _row(self, name: str, arm: str, by_arm: dict[str, dict[tuple[str, int], Run]]) -> Row:
        mine = by_arm[arm]
        ratios, prefill_ratios = {}, {}
        for control in self.controls:
            other = by_arm.get(control, {})
            pairs = [(r, other[k]) for k, r in mine.items() if k in other]
            if pairs and control != arm:
                prefill_ratios[control] = Ratio.of([a.prefill_tok_s / b.prefill_tok_s for a, b in pairs])
                decoded = [a.tok_s / b.tok_s for a, b in pairs if len(a.tokens) > 1 and len(b.tokens) > 1]
                if decoded:
                    ratios[control] = Ratio.of(decoded)
        want = by_arm[self.reference]
        taus = [r.tau for r in mine.values() if r.passes]
        passes = sum(r.passes for r in mine.values())
        return Row(
            set=name,
            arm=arm,
            prompts=len(mine),
            tok_s=Spread.of([r.tok_s for r in mine.values() if len(r.tokens) > 1] or [math.nan]),
            prefill_tok_s=Spread.of([r.prefill_tok_s for r in mine.values()]),
            tau=sum(taus) / len(taus) if taus else math.nan,
            tokens_per_pass=sum(len(r.tokens) - 1 for r in mine.values()) / passes if passes else math.nan,
            ratios=ratios,
            prefill_ratios=prefill_ratios,
            equal=sum(k in want and mine[k].tokens == want[k].tokens for k in mine),
        )

    def machine_line(self) -> str:
        return machine_line(self.machine)

    def conditions(self) -> str:
        c = self.config
        parts = [
            f"target {c['target']}",
            f"drafter {c['drafter']}",
            f"greedy, up to {c['max_new_tokens']} new tokens, one request at a time",
            "tok/s without prefill",
        ]
        return ", ".join(parts)

    def remarks(self) -> list[tuple[bool, str]]:
        """Everything to be said under the table, bad news first and marked True."""
        said = [(True, "PARTIAL: interrupted, only what was measured until then")] if self.partial else []
        bad = self.mismatches()
        if bad:
            said.append((True, f"TOKENS DIFFER from {self.reference} in {len(bad)} answers:"))
            said += [(True, f"  {line}") for line in bad]
        for arm, v in self.verdicts.items():
            said.append((not v.ok, f"token forcing, {arm}: {v.line()}"))
            said += [(True, f"  {line}") for line in v.findings]
            said += [(False, f"  {line}: another stock mode emits it") for line in v.reclassified]
        if self.calibration:
            c, q = self.calibration, self.calibration.quantiles
            noise = f"noise median {q['0.5']:.3g}, maximum {q['1']:.3g}"
            said.append(
                (False, f"token forcing: eps from {c.positions} positions of stock against stock, {noise}")
            )
        return said + [(False, note) for note in self.notes]

    def cells(self) -> list[list[str]]:
        """The table as text, header first."""
        shown = [c for c in self.controls if c in self.arms and len(self.arms) > 1]
        header = [
            "set",
            "arm",
            "tok/s ± MAD",
            *(f"× {c}" for c in shown),
            "τ",
            "tokens/pass",
            "prefill tok/s",
        ]
        lines = [[*header, f"tokens = {self.reference}"]]
        for r in self.rows():
            tau = ["–" if math.isnan(x) else f"{x:.2f}" for x in (r.tau, r.tokens_per_pass)]
            speed = "–" if math.isnan(r.tok_s.median) else f"{r.tok_s.median:.1f} ± {r.tok_s.mad:.1f}"
            over = [str(r.ratios[c]) if c in r.ratios else "1" if c == r.arm else "–" for c in shown]
            rest = [f"{r.prefill_tok_s.median:.0f}", f"{r.equal}/{r.prompts}"]
            lines.append([r.set, r.arm, speed, *over, *tau, *rest])
        return lines

    def table(self) -> RenderableType:
        """For the terminal."""
        header, *lines = self.cells()
        table = Table(title=self.conditions(), caption=self.machine_line(), box=None)
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i < 2 else "right", no_wrap=i < 3)
        for i, line in enumerate(lines):
            table.add_row(*line, end_section=i + 1 < len(lines) and lines[i + 1][0] != line[0])
        return Group(table, *(Text(t, style="bold red" if bad else "") for bad, t in self.remarks()))

    def markdown(self) -> str:
        """For documentation."""
        header, *lines = self.cells()
        rows = [header, ["---"] * 2 + ["--:"] * (len(header) - 2), *lines]
        parts = [
            "\n".join(f"| {' | '.join(row)} |" for row in rows),
            f"{self.conditions()}. Medians; intervals are 95 % bootstraps over prompts of the paired ratios.",
            "\n".join(f"- {text.strip()}" for _, text in self.remarks()),
            f"Machine: {self.machine_line()}",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tokens themselves."""
        runs = [
            {
                "set": r.set,
                "prompt": r.prompt,
                "arm": r.arm,
                "prompt_tokens": len(r.prompt_ids),
                "new_tokens": len(r.tokens),
                "passes": r.passes,
                "prefill_seconds": r.prefill_seconds,
                "decode_seconds": r.decode_seconds,
            }
            for r in self.runs
        ]
        checks = {a: {**asdict(v), "p_value": v.p_value, "ok": v.ok} for a, v in self.verdicts.items()}
        return {
            "ok": self.ok,
            "partial": self.partial,
            "config": self.config,
            "machine": self.machine,
            "notes": self.notes,
            "reference": self.reference,
            "mismatches": self.mismatches(),
            "rows": [asdict(r) for r in self.rows()],
            "forcing": {
                "calibration": asdict(self.calibration) if self.calibration else None,
                "arms": checks,
            },
            "runs": runs,
        }

    def write(self, out: Path) -> list[Path]:
        """report.json, report.md and report.png in the directory ``out``."""
        from .plot import plot

        out.mkdir(parents=True, exist_ok=True)
        paths = [out / f"report.{kind}" for kind in ("json", "md", "png")]
        paths[0].write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        paths[1].write_text(self.markdown())
        plot(self, paths[2])
        return paths
