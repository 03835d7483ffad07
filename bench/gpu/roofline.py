"""Every op's time against what its bytes cost at least: a table and a picture.

    SPECPILOT_CUDA=ON bench/run --variant cuda --json runs/ops.jsonl
    python bench/gpu/gemm.py; python bench/gpu/step.py
    python bench/gpu/roofline.py runs/ops.jsonl runs/gemm.jsonl runs/step.jsonl
    python bench/gpu/roofline.py runs/*.jsonl --ceilings runs/roofline.jsonl     ceilings measured before

Ceilings are pure reads, and copies, of as many bytes in the same kind of graph: from memory for ops whose large operand comes from
there (weights, K and V), from the cache for those that live between two ops of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ceilings import MAKERS, PLACES, Ceilings, from_records, measure_ceilings, records
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tables import Lines, arguments, device_of, finish, markdown, read_lines, state_text

STREAMED = {
    "linear",
    "linear_q8",
    "attention",
    "embed",
    "pass",
}  # come from memory; of all others, only under --cold
COPIES = {"gather_rows", "kv_move", "rope_kv", "rmsnorm"}  # write about as much as they read
SIDE = {"cublas", "cublaslt"}  # shown beside ours, not as ops of their own
COLOURS = ("#4c78a8", "#e4572e", "#6a994e", "#f2a541", "#9aa0a6", "#8e6c8a", "#3d405b", "#b56576")


@dataclass(frozen=True)
class Point:
    """An op at a shape. ``kind`` and ``place`` say which ceiling it is held against; ``control_us``: cuBLAS, where it was timed."""

    op: str
    shape: str
    variant: str
    us: float
    nbytes: float
    kind: str
    place: str
    gflops: float = 0.0
    control_us: float | None = None

    @property
    def gbps(self) -> float:
        return self.nbytes / self.us / 1e3

    def share(self, ceilings: Ceilings) -> float:
        """Speed as a share of the ceiling's."""
        return ceilings[self.kind, self.place].at(self.nbytes) / self.us


def points_of(lines: Sequence[Mapping[str, Any]]) -> list[Point]:
    """From the lines of ``bench/run --json``, gemm.py and step.py: those of CUDA that say how many bytes they moved."""
    timed = [r for r in lines if "median_us" in r]
    control: dict[tuple[str, str], float] = {}
    for r in timed:
        if r["variant"] in SIDE:
            key = (r["op"], r["shape"])
            control[key] = min(r["median_us"], control.get(key, r["median_us"]))
    cold, points = False, []
    for r in lines:
        cold = r.get("cold", cold)
        variant = r.get("variant", "")
        if "gbps" not in r or variant in SIDE or variant.startswith(("cpu", "read")):
            continue
        op, us = r["op"], r["median_us"]
        points.append(
            Point(
                op, r["shape"], variant, us, r["gbps"] * us * 1e3,
                "copy" if op in COPIES else "read",
                "memory" if cold or op in STREAMED else "cache",
                r.get("gflops", 0.0),
                control.get((op, r["shape"])),
            )
        )  # fmt: skip
    return points


def table(points: Sequence[Point], ceilings: Ceilings) -> str:
    rows = [
        [
            p.op, p.shape, p.variant, p.nbytes / 1e6, p.us, p.gbps, p.gflops / 1e3 or None,
            f"{p.kind}, {p.place}", p.share(ceilings), p.control_us and p.control_us / p.us,
        ]
        for p in points
    ]  # fmt: skip
    header = ["op", "shape", "variant", "MB", "µs", "GB/s", "TFLOP/s", "ceiling", "of it", "cuBLAS / it"]
    return markdown(header, rows)


def ceiling_table(ceilings: Ceilings) -> str:
    sizes = sorted({n for curve in ceilings.values() for n in curve.nbytes})
    columns = [key for kind in MAKERS for place in PLACES if (key := (kind, place)) in ceilings]
    rows = [
        [
            f"{n / 1e6:.3g}",
            *(n / ceilings[c].at(n) / 1e3 if n <= ceilings[c].nbytes[-1] else None for c in columns),
        ]
        for n in sizes
    ]
    return markdown(["MB a call, GB/s", *(f"{kind}, {place}" for kind, place in columns)], rows)


def plot(points: Sequence[Point], ceilings: Ceilings, title: str, path: Path) -> None:
    """Bytes against GB/s, both by powers of ten; writes a PNG, no display is needed."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (kind, place), c in ceilings.items():
        colour, style = "#222222" if kind == "read" else "#888888", "-" if place == "memory" else ":"
        rate = [n / us / 1e3 for n, us in zip(c.nbytes, c.us, strict=True)]
        axes.plot(c.nbytes, rate, label=f"{kind}, {place}", color=colour, linestyle=style)
    for i, op in enumerate(dict.fromkeys(p.op for p in points)):
        mine = [p for p in points if p.op == op]
        x, y = [p.nbytes for p in mine], [p.gbps for p in mine]
        axes.scatter(
            x, y, s=18, color=COLOURS[i % len(COLOURS)], marker="os^D"[i // len(COLOURS) % 4], label=op
        )
    axes.set(xscale="log", yscale="log", xlabel="bytes a call", ylabel="GB/s")
    axes.set_title(title, loc="left", fontweight="bold")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = arguments(__doc__, "roofline.jsonl")
    parser.add_argument("files", nargs="+", type=Path, help="JSON lines of bench/run, gemm.py and step.py")
    parser.add_argument("--ceilings", type=Path, help="a file that this script wrote, in place of measuring")
    parser.add_argument("--plot", type=Path, default=Path("runs/roofline.png"))
    args = parser.parse_args()
    points = points_of([line for file in args.files for line in read_lines(file)])
    if args.ceilings:
        lines = read_lines(args.ceilings)
        facts, ceilings, state = lines[0], from_records(lines), "clocks: see the file"
    else:
        device = device_of(args)
        out = Lines(args.out, device)
        ceilings, smi = measure_ceilings(args.epochs, device, *([[4096, 65536]] if args.dry_run else []))
        for record in records(ceilings):
            out.add({**record, **smi})
        facts, state = out.facts, state_text(smi)
    name = str(facts.get("gpu", facts["device"]))
    plot(points, ceilings, f"Bytes and their speed on {name}", args.plot)
    text = "\n\n".join([ceiling_table(ceilings), state, table(points, ceilings), f"plot: {args.plot}"])
    return finish(facts, text, [], args.dry_run)


if __name__ == "__main__":
    sys.exit(main())
