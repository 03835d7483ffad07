"""``specpilot bench --table``: seconds of a verify pass, T, and of drafting, D, by width; kept for ``verify="auto"``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from .. import cost, load
from ..cost import StepTime
from ..devices import resolve
from ..machine import clocks
from . import Stage, machine, progress
from .report import machine_line
from .stats import Spread

SECONDS = 20.0  # that measuring may take, if it gets its epochs
LEAST, MOST = 5, 50  # epochs


@dataclass(frozen=True)
class TableConfig:
    """Whose steps to time; as in ``specpilot.load``."""

    target: str = "smollm2-135m"
    drafter: str | None = "auto"
    weights: str = "w12"
    drafter_weights: str = "q8"
    max_context: int | None = None
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class StepTable:
    """What was measured.

    ``samples``  by width, the times of one step an epoch, in seconds
    ``clocks``   while steps ran: ``machine.clocks``
    ``facts``    what the times are kept under, besides the machine: ``Engine.cost_facts``
    """

    config: TableConfig
    machine: dict[str, Any]
    samples: dict[int, list[StepTime]]
    clocks: dict[str, str]
    facts: dict[str, Any]

    @property
    def widths(self) -> list[int]:
        return list(self.samples)

    @property
    def epochs(self) -> int:
        return min(map(len, self.samples.values()))

    @cached_property
    def verify(self) -> dict[int, Spread]:
        """T, in seconds."""
        return {w: Spread.of([t.verify for t in times]) for w, times in self.samples.items()}

    @cached_property
    def draft(self) -> dict[int, Spread]:
        """D, in seconds; a step of one row does not draft."""
        return {w: Spread.of([t.draft for t in times]) for w, times in self.samples.items() if w > 1}

    def keep(self) -> Path:
        """Puts the medians where ``verify="auto"`` looks for them, in place of what is there; gives the file. Raises OSError."""
        times = {
            w: StepTime(self.draft[w].median if w > 1 else 0.0, t.median) for w, t in self.verify.items()
        }
        return cost.store(
            self.facts, resolve(self.config.device), times, epochs=self.epochs, clocks=self.clocks
        )

    def conditions(self) -> str:
        c = self.config
        models = f"target {c.target} in {c.weights}, drafter {c.drafter} in {c.drafter_weights}"
        return f"{models}, one step in an empty context, {self.epochs} epochs"

    def machine_line(self) -> str:
        names = {"sm_mhz": "SM", "memory_mhz": "memory", "cpu_mhz": "CPU"}
        rates = ", ".join(f"{names[k]} {mhz} MHz" for k, mhz in self.clocks.items())
        return f"{machine_line(self.machine)} · {rates or 'clocks unknown'}"

    def table(self) -> Table:
        """For the terminal. A step pays when it emits more tokens than (T + D) / T(1)."""
        table = Table(title=self.conditions(), caption=self.machine_line(), box=None)
        for name in ("width", "T, ms ± MAD", "D, ms ± MAD", "T / T(1)", "pays from τ"):
            table.add_column(name, justify="right")
        one = self.verify[1].median
        for w, t in self.verify.items():
            d = self.draft.get(w)
            whole = (t.median + (d.median if d else 0.0)) / one
            table.add_row(
                str(w), _ms(t), _ms(d) if d else "–", f"{t.median / one:.2f}", f"{whole:.2f}" if d else "1"
            )
        return table

    def to_dict(self) -> dict[str, Any]:
        """Everything, times in seconds."""
        return {
            "config": asdict(self.config),
            "machine": self.machine,
            "clocks": self.clocks,
            "epochs": self.epochs,
            "rows": [
                {"width": w, "verify": asdict(t), "draft": asdict(self.draft[w]) if w > 1 else None}
                for w, t in self.verify.items()
            ],
            "samples": {w: [t._asdict() for t in times] for w, times in self.samples.items()},
        }

    def write(self, out: Path) -> None:
        """report.json and report.png in the directory ``out``."""
        from .plot import plot_table

        out.mkdir(parents=True, exist_ok=True)
        (out / "report.json").write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        plot_table(self, out / "report.png")


def _ms(s: Spread) -> str:
    return f"{1e3 * s.median:.3f} ± {1e3 * s.mad:.3f}"


def sample(run: Callable[[int], StepTime], widths: Sequence[int], stage: Stage) -> dict[int, list[StepTime]]:
    """Epochs of one step a width, in an order that rotates, behind two that do not count: the first captures graphs, the second
    tells how many there is time for."""
    for w in widths:
        run(w)
    begin = perf_counter()
    for w in widths:
        run(w)
    epochs = max(LEAST, min(MOST, int(SECONDS / (perf_counter() - begin))))
    tick = stage("measuring", epochs)
    found: dict[int, list[StepTime]] = {w: [] for w in widths}
    for epoch in range(epochs):
        turn = epoch % len(widths)
        for w in [*widths[turn:], *widths[:turn]]:
            found[w].append(run(w))
        tick(1)
    return found


def while_working(work: Callable[[], object], ask: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What ``ask`` says while ``work`` is done again and again: idle clocks drop within milliseconds."""
    work()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        while not answer.done():
            work()
    return answer.result()


def measure(config: TableConfig, console: Console | None = None) -> StepTable:
    """Times steps of every width that "auto" chooses among; progress goes to the console when there is one. Raises ValueError
    without a drafter, and what ``specpilot.load`` raises."""
    engine = load(**asdict(config), progress=console is not None) if config.drafter else None
    if engine is None or engine.drafter is None or engine.cost_facts is None:
        raise ValueError(
            f"drafter {config.drafter or 'none'}: a table needs the times of drafting, name a drafter for {config.target}"
        )
    with progress(console) as stage:
        samples, rates = engine.time_steps(
            lambda run, widths: (
                sample(run, widths, stage),
                while_working(lambda: run(widths[-1]), lambda: clocks(engine.device)),
            )
        )
    return StepTable(config, machine(config.device), samples, rates, engine.cost_facts)
