"""Pictures: of a report tok/s by set and arm, and τ; of a step table T and D over the width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from .report import Report
    from .table import StepTable

COLOURS = ("#9aa0a6", "#4c78a8", "#e4572e", "#f2a541", "#6a994e")


def plot(report: Report, path: Path) -> None:
    """Writes a PNG; no display is needed."""
    rows = report.rows()
    sets = list(dict.fromkeys(r.set for r in rows))
    figure = Figure(figsize=(max(7.0, 1.9 + 1.5 * len(sets)), 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    speed, tau = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.3])
    width = 0.8 / max(1, len(report.arms))
    for i, arm in enumerate(report.arms):
        mine = [r for r in rows if r.arm == arm]
        x = [sets.index(r.set) + (i - (len(report.arms) - 1) / 2) * width for r in mine]
        y = [r.tok_s.median for r in mine]
        mad = [r.tok_s.mad for r in mine]
        colour = COLOURS[i % len(COLOURS)]
        speed.bar(x, y, width * 0.94, yerr=mad, color=colour, label=arm, capsize=2, ecolor="#444444")
        for r, at in zip(mine, x, strict=True):
            ratio = r.ratios.get("ar-bf16")
            if ratio and not math.isnan(r.tok_s.median):
                top = r.tok_s.median + r.tok_s.mad
                speed.annotate(
                    f"{ratio.median:.2f}×",
                    (at, top),
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        bars = tau.bar(x, [r.tau for r in mine], width * 0.94, color=colour)
        tau.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    partial = " (partial)" if report.partial else ""
    over = ", × over ar-bf16" if "ar-bf16" in report.arms and len(report.arms) > 1 else ""
    speed.set_title(f"Decoding speed{over}{partial}", loc="left", fontweight="bold")
    speed.set_ylabel("tok/s, median ± MAD")
    speed.legend(ncols=len(report.arms), frameon=False, loc="upper left")
    speed.margins(y=0.22)
    tau.set_title("Tokens per verify pass (τ), mean over requests", loc="left", fontweight="bold")
    tau.set_ylabel("τ")
    tau.margins(y=0.25)
    tau.set_xticks(range(len(sets)), sets)
    _save(figure, (speed, tau), f"{report.conditions()}\n{report.machine_line()}", path)


def plot_table(table: StepTable, path: Path) -> None:
    """Writes a PNG; no display is needed."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    halves = (("T, a verify pass", table.verify, COLOURS[1]), ("D, drafting", table.draft, COLOURS[2]))
    for name, times, colour in halves:
        y, mad = [1e3 * s.median for s in times.values()], [1e3 * s.mad for s in times.values()]
        axes.errorbar(list(times), y, yerr=mad, marker="o", markersize=4, color=colour, label=name, capsize=2)
    axes.set_title("Time of a step's halves by width", loc="left", fontweight="bold")
    axes.set_xlabel("rows: the anchor and its drafts")
    axes.set_ylabel("ms, median ± MAD")
    axes.set_xticks(table.widths)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    _save(figure, (axes,), f"{table.conditions()}\n{table.machine_line()}", path)


def _save(figure: Figure, plots: Sequence[Axes], caption: str, path: Path) -> None:
    for axes in plots:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.supxlabel(caption, fontsize=7, wrap=True)
    figure.savefig(path, dpi=150)
