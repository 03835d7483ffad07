"""The report's picture: tok/s by set and arm, and τ."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from .report import Report

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
    for axes in (speed, tau):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.supxlabel(f"{report.conditions()}\n{report.machine_line()}", fontsize=7, wrap=True)
    figure.savefig(path, dpi=150)
