"""``specpilot bench``: arms interleaved prompt by prompt in one process, bit equality, token forcing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..devices import resolve
from ..machine import describe, machine_identity
from .arms import Run, load_engines, measure, parse_arms
from .check import check
from .prompts import read_prompts
from .report import Report, Row

__all__ = ["BenchConfig", "Report", "Row", "Run", "Session", "run"]

Stage = Callable[[str, int], Callable[[int], None]]
Contestant = Callable[[str, int, list[int]], Run]  # (prompt set, number in it, prompt ids)


@dataclass(frozen=True)
class BenchConfig:
    """What to measure. ``prompts``: JSONL files and directories; none: a few built-in ones."""

    target: str = "smollm2-135m"
    drafter: str | None = "auto"
    arms: tuple[str, ...] = ("ar-bf16", "ar-w12", "auto-w12")
    prompts: tuple[str | Path, ...] = ()
    limit: int | None = None
    max_new_tokens: int = 128
    check: bool = False
    max_context: int | None = None
    device: str = "cpu"
    threads: int | None = None


@contextmanager
def progress(console: Console | None) -> Iterator[Stage]:
    """Yields ``stage(name, total)``, which starts a bar and gives its ``tick(n)``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=console, disable=console is None, transient=True)

    def stage(name: str, total: int) -> Callable[[int], None]:
        task = bars.add_task(name, total=total)
        return lambda n: bars.advance(task, n)

    with bars:
        yield stage


def commit() -> str | None:
    """Short hash of the checkout this package runs from, with ``+`` when changed; None outside of one."""
    here = Path(__file__).parents[3]
    if not (here / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(here)]
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        state = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if state.stdout.strip() else "")


def machine(device: str) -> dict[str, Any]:
    """The machine line's facts. ``device``: where the engines are."""
    identity = machine_identity(resolve(device))
    return {
        **describe(bandwidth=True),
        "gpu": identity.get("gpu"),
        "commit": commit(),
        "date": date.today().isoformat(),
    }


class Session:
    """Loaded engines and encoded prompts. ``add`` takes another system into the same interleaved run."""

    def __init__(self, config: BenchConfig, console: Console | None = None) -> None:
        self.new = config.max_new_tokens
        if self.new < 2:
            raise ValueError(
                f"max_new_tokens is {self.new}, expected 2 or more: the first token is the prefill's"
            )
        arms = parse_arms(config.arms)
        texts = read_prompts(config.prompts, config.limit)
        self.config, self.console = config, console
        self.engines = load_engines(config, arms, progress=console is not None)
        encode = next(iter(self.engines.values())).encode
        self.sets = {s.name: [encode(text) for text in s.prompts] for s in texts}
        self.contestants: dict[str, Contestant] = {
            arm.name: partial(measure, self.engines[arm.weights], arm, self.new) for arm in arms
        }
        facts = {**asdict(config), "prompts": [str(p) for p in config.prompts]}
        self.report = Report(
            facts, machine(config.device), list(self.contestants), [s.note for s in texts if s.note]
        )

    def add(self, name: str, contestant: Contestant) -> None:
        """Another system's arm, a control for the others; its tokens may differ."""
        self.contestants = {name: contestant, **self.contestants}
        self.report.arms.insert(0, name)
        self.report.controls = (name, *self.report.controls)
        self.report.others = (name, *self.report.others)

    def run(self) -> Report:
        """Measures, and with ``config.check`` judges. Interrupted, it gives what it has, marked partial."""
        with progress(self.console) as stage:
            try:
                self._interleave(stage)
                if self.config.check:
                    check(self.report, self.config.target, self.new, stage, self.config.device)
            except KeyboardInterrupt:
                if not self.report.runs:
                    raise
                self.report.partial = True
        return self.report

    def _interleave(self, stage: Stage) -> None:
        """Every prompt by every arm, the order rotated by prompt; a prompt counts when all have run."""
        names = list(self.contestants)
        first = next(iter(self.sets.values()))[0]
        tick = stage("decoding", len(names) * (1 + sum(map(len, self.sets.values()))))
        for name in names:
            self.contestants[name]("warm-up", 0, first)
            tick(1)
        turn = 0
        for set_name, prompts in self.sets.items():
            for number, ids in enumerate(prompts):
                runs = {}
                for name in [*names[turn:], *names[:turn]]:
                    runs[name] = self.contestants[name](set_name, number, ids)
                    tick(1)
                self.report.runs += [runs[name] for name in names]
                turn = (turn + 1) % len(names)


def run(config: BenchConfig, console: Console | None = None) -> Report:
    """One benchmark from a configuration; progress goes to the console when there is one."""
    return Session(config, console).run()
