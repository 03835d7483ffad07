"""Output that all tables share: JSON lines, a Markdown table, and checks against bars."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import device as gpu
import torch


def arguments(doc: str | None, out: str) -> argparse.ArgumentParser:
    """Options of every script."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("runs") / out, help="JSON lines (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the CPU; figures mean nothing")
    return parser


def device_of(args: argparse.Namespace) -> str:
    """ "cuda", or "cpu" for a dry run; without a GPU only a dry run is possible."""
    if args.dry_run:
        return "cpu"
    if not torch.cuda.is_available():
        sys.exit(
            "this table is made on a GPU, and torch finds none: run it on a machine with one, or with --dry-run"
        )
    return "cuda"


def numbers(text: str) -> list[int]:
    """ "1,8,16" for argparse."""
    return [int(part) for part in text.split(",") if part]


class Lines:
    """A JSON lines file, written as the run goes, so that a run cut short leaves what it had."""

    def __init__(self, path: Path, device: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.facts = gpu.facts(device)
        self._file: TextIO = path.open("w")
        self.add(self.facts)

    def add(self, record: Mapping[str, Any]) -> None:
        print(json.dumps(record), file=self._file, flush=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table whose first column is text; floats get three significant digits or more."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(_pad(c, w, i) for i, (c, w) in enumerate(zip(r, widths, strict=True))) + " |"
        for r in cells
    ]
    rule = "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return (
            f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
        )
    return "" if value is None else str(value)


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


@dataclass(frozen=True)
class Check:
    """A measured value against a bar: at least ``low``, at most ``high``."""

    what: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ok(self) -> bool:
        """False for a NaN too."""
        above = self.low is None or self.value >= self.low
        return self.value == self.value and above and (self.high is None or self.value <= self.high)

    def __str__(self) -> str:
        bar = f"at least {self.low:g}" if self.high is None else f"at most {self.high:g}"
        return f"{'PASS' if self.ok else 'FAIL'}  {self.what}: {self.value:.3f} ({bar})"


def finish(
    facts: Mapping[str, str], text: str, checks: Sequence[Check], dry_run: bool, lines: Lines | None = None
) -> int:
    """Prints table and checks last of all, and adds the checks to ``lines``; the exit code: 1 if a bar was missed in a run that
    means anything."""
    print("\n" + "  ".join(f"{k}: {v}" for k, v in facts.items()) + "\n\n" + text + "\n")
    for check in checks:
        print(check)
        if lines:
            lines.add({**vars(check), "ok": check.ok})
    return 0 if dry_run or all(check.ok for check in checks) else 1


def state_text(state: Mapping[str, str]) -> str:
    """ "1980 MHz SM, 3201 MHz memory, …" of ``machine.smi``."""
    if not state:
        return "clocks unknown"
    return (
        f"{state['sm_mhz']} MHz SM, {state['memory_mhz']} MHz memory, {state['watts']} W, {state['celsius']} °C "
        "under load"
    )
