"""From the times of weight products to a table, and to the bars that they are held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shapes import Matrix, Model
from tables import Check, markdown

from specpilot.benchmark.stats import Spread

LARGE, SMALL = 60e6, 16e6  # bytes in bf16: held against the read ceiling; allowed 5 % more than cuBLAS
HEADER = (
    "matrix", "rows", "w12 µs", "±", "bf16 µs", "cuBLAS µs", "w12 GB/s", "of read", "bf16 of read", "cuBLAS / w12",
    "bf16 / w12", "bits",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A matrix at a number of rows. ``us`` by arm, ``read`` and ``nbytes`` by format; ``weights``: what "w12" came out as, since
    a matrix whose exceptions would cost more than they save stays bf16."""

    matrix: Matrix
    rows: int
    nbytes: Mapping[str, int]
    us: Mapping[str, Spread]
    read: Mapping[str, Spread]
    bits: bool
    weights: str = "w12"

    @property
    def blas(self) -> float:
        """µs of the faster library."""
        return min(self.us["cublas"].median, self.us["cublaslt"].median)

    @property
    def speedup(self) -> float:
        return self.blas / self.us["w12"].median

    def of_read(self, weights: str) -> float:
        """Speed as a share of that of a pure read of the same bytes."""
        return self.read[weights].median / self.us[weights].median

    def records(self) -> Iterator[dict[str, Any]]:
        """Lines in the form of ``bench/run --json``, one an arm."""
        for arm, us in {**self.us, **{f"read {f}": t for f, t in self.read.items()}}.items():
            nbytes = self.nbytes["w12" if "w12" in arm else "bf16"]
            yield {
                "op": "linear",
                "shape": f"R={self.rows} N={self.matrix.n} K={self.matrix.k}",
                "variant": arm,
                "median_us": us.median,
                "mad_us": us.mad,
                "gbps": nbytes / us.median / 1e3,
                "bits": self.bits,
            }


def _rows(cases: Sequence[Case]) -> list[int]:
    return sorted({c.rows for c in cases})


def layer_sum(cases: Sequence[Case], model: Model, rows: int) -> dict[str, float] | None:
    """µs of a layer's linears by arm; None unless all of them were measured. Each sums its own faster library."""
    found = {(c.matrix.n, c.matrix.k): c for c in cases if c.rows == rows}
    parts = [found.get((m.n, m.k)) for m in model.layer_matrices]
    whole = [p for p in parts if p]
    if len(whole) != len(parts):
        return None
    return {
        "w12": sum(p.us["w12"].median for p in whole),
        "bf16": sum(p.us["bf16"].median for p in whole),
        "blas": sum(p.blas for p in whole),
        "read w12": sum(p.read["w12"].median for p in whole),
        "read bf16": sum(p.read["bf16"].median for p in whole),
        "bytes": sum(p.nbytes["w12"] for p in whole),
    }


def table(cases: Sequence[Case], model: Model) -> str:
    """A row a case, then the sums over a layer of ``model``."""
    rows: list[list[Any]] = []
    for c in cases:
        w12, bf16 = c.us["w12"].median, c.us["bf16"].median
        rows.append(
            [
                str(c.matrix) + " (kept bf16)" * (c.weights == "bf16"), c.rows, w12, c.us["w12"].mad, bf16, c.blas,
                c.nbytes["w12"] / w12 / 1e3, c.of_read("w12"), c.of_read("bf16"), c.speedup, bf16 / w12,
                "same" if c.bits else "DIFFER",
            ]
        )  # fmt: skip
    for m in _rows(cases):
        if s := layer_sum(cases, model, m):
            rows.append(
                [
                    f"{model.name} layer", m, s["w12"], None, s["bf16"], s["blas"], s["bytes"] / s["w12"] / 1e3,
                    s["read w12"] / s["w12"], s["read bf16"] / s["bf16"], s["blas"] / s["w12"], s["bf16"] / s["w12"], None,
                ]
            )  # fmt: skip
    return markdown(HEADER, rows)


def bars(cases: Sequence[Case], model: Model) -> list[Check]:
    """The worst case of every bar that the measured cases have a say in."""
    checks = [
        Check("matrices whose bits differ", float(len({c.matrix for c in cases if not c.bits})), high=0)
    ]
    few = [c for c in cases if c.rows <= 64]
    for what, chosen, bar in (
        ("cuBLAS / w12, matrices of 16 MB and more", [c for c in few if c.matrix.bf16_bytes >= SMALL], 1.0),
        ("cuBLAS / w12, smaller matrices", [c for c in few if c.matrix.bf16_bytes < SMALL], 1 / 1.05),
    ):
        if chosen:
            worst = min(chosen, key=lambda c: c.speedup)
            checks.append(Check(f"{what}: worst, {worst.matrix} at {worst.rows}", worst.speedup, low=bar))
    for m in _rows(few):
        s = layer_sum(cases, model, m)
        if s and (m <= 16 or m == 64):
            what = f"cuBLAS / w12 over a {model.name} layer at {m}"
            checks.append(Check(what, s["blas"] / s["w12"], low=1.25 if m <= 16 else 1.15))
    large = [c for c in few if c.matrix.bf16_bytes >= LARGE and c.rows <= 16]
    if large:
        worst = min(large, key=lambda c: c.of_read("w12"))
        what = f"w12's share of the read ceiling, 60 MB and more, up to 16 rows: worst, {worst.matrix} at {worst.rows}"
        checks.append(Check(what, worst.of_read("w12"), low=0.85))
    one = {c.matrix: c.us["w12"].median for c in few if c.rows == 1}
    flat = {c.matrix: c.us["w12"].median / one[c.matrix] for c in few if c.rows == 64 and c.matrix in one}
    big = {m: ratio for m, ratio in flat.items() if m.bf16_bytes >= SMALL}
    if big:
        worst_flat = max(big, key=lambda m: big[m])
        checks.append(Check(f"w12 at 64 rows / at 1: worst, {worst_flat}", big[worst_flat], high=1.15))
    return checks
