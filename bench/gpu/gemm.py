"""Our weight products against cuBLAS and against a pure read of the same bytes, by matrix and number of rows.

    python bench/gpu/gemm.py                                    Qwen3-8B's matrices and SmolLM2-135M's, 1 … 64 rows
    python bench/gpu/gemm.py --rows 128,256,512,1024            prompts
    python bench/gpu/gemm.py --matrices 24576x4096 --rows 1     one matrix

Arms of a matrix, interleaved: ours with w12 and with bf16 weights, torch.mm into a given output by cuBLAS and by cuBLASLt (the
faster counts), and reads of both weights' bytes. Bits: w12 = bf16, and the first row of many = the row alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from gemm_table import Case, bars, table
from read_ceiling import reader
from shapes import QWEN3_8B, SMOLLM2, TINY, Matrix
from tables import Lines, arguments, device_of, finish, numbers, state_text
from timing import Measured, Recorded, copies_of, load_of, measure
from torch import Tensor

from specpilot import ops
from specpilot.formats import RunWeight
from specpilot.formats.run_layout import run_weight

OURS = ("w12", "bf16")
BLAS = ("cublas", "cublaslt")


def random_weight(m: Matrix, device: str) -> Tensor:
    """bf16 [n, k], columns of different scale, so that about as many weights are exceptions as in a trained model."""
    generator = torch.Generator(device).manual_seed(m.n * m.k)
    scale = 0.02 * torch.exp(0.4 * torch.randn(m.k, generator=generator, device=device))
    return (torch.randn(m.n, m.k, generator=generator, device=device) * scale).bfloat16()


def clone(w: RunWeight) -> RunWeight:
    """The same weight elsewhere in memory."""
    return replace(w, **{name: t.clone() for name, t in vars(w).items() if isinstance(t, Tensor)})


def copies(first: Any, nbytes: int, device: str, again: Callable[[Any], Any]) -> list[Any]:
    return [first, *(again(first) for _ in range(copies_of(nbytes, device) - 1))]


def ours(weights: list[RunWeight], x: Tensor, y: Tensor, device: str) -> Recorded:
    return Recorded(lambda i: ops.linear(x, *weights[i].args, None, None, y), len(weights), device)


def blas(library: str, weights: list[Tensor], x: Tensor, y: Tensor, device: str) -> Recorded:
    """``library``: "cublas" or "cublaslt". Which of the two runs is settled when the graph is made."""
    if device == "cuda":
        torch.backends.cuda.preferred_blas_library(library)
    turned = [w.t() for w in weights]
    return Recorded(lambda i: torch.mm(x, turned[i], out=y), len(weights), device)


def same_bits(outputs: dict[tuple[str, int], Tensor]) -> bool:
    """Every output against bf16's of the fewest rows, by the rows they share; and w12's against bf16's of as many rows."""
    views = {key: y.view(torch.int16) for key, y in outputs.items()}
    fewest = views[OURS[1], min(m for _, m in views)]
    return all(
        torch.equal(y[: len(fewest)], fewest) and torch.equal(y, views[OURS[1], m])
        for (_, m), y in views.items()
    )


def check_close(matrix: Matrix, got: Tensor, want: Tensor) -> None:
    """That our product is one: equal bits alone could be equal nonsense. Raises RuntimeError."""
    error = ((got.float() - want.float()).norm() / want.float().norm()).item()
    if not error < 0.01:
        raise RuntimeError(
            f"linear {matrix}: relative error {error:.3g} against torch.mm, expected less than 0.01"
        )


def measure_matrix(matrix: Matrix, rows: list[int], epochs: int, device: str) -> tuple[list[Case], Measured]:
    """All arms of a matrix at all ``rows``."""
    plain = random_weight(matrix, device)
    stored = {f: run_weight([plain], f) for f in OURS}
    run = {f: copies(w, w.nbytes, device, clone) for f, w in stored.items()}
    blas_weights = copies(plain, plain.nbytes, device, torch.clone)
    inputs = torch.randn(max(rows), matrix.k, generator=torch.Generator(device).manual_seed(1), device=device)
    inputs = inputs.bfloat16()
    arms = {f"read {f}": reader([w.data for w in run[f]], device) for f in OURS}
    outputs = {}
    for m in rows:
        for f in OURS:
            y = outputs[f, m] = torch.zeros(m, matrix.n, dtype=torch.bfloat16, device=device)
            arms[f"{f} {m}"] = ours(run[f], inputs[:m], y, device)
        for library in BLAS:
            y = torch.empty(m, matrix.n, dtype=torch.bfloat16, device=device)
            arms[f"{library} {m}"] = blas(library, blas_weights, inputs[:m], y, device)
            for f in OURS:
                check_close(matrix, outputs[f, m], y)
    found = measure({k: a.us for k, a in arms.items()}, epochs, load_of(arms[f"w12 {rows[0]}"], device))
    bits = same_bits(outputs)
    cases = [
        Case(
            matrix,
            m,
            nbytes={f: w.nbytes for f, w in stored.items()},
            us={a: found[f"{a} {m}"] for a in (*OURS, *BLAS)},
            read={f: found[f"read {f}"] for f in OURS},
            bits=bits,
            weights=stored["w12"].format,
        )
        for m in rows
    ]
    return cases, found


def matrices(names: str, dry_run: bool) -> list[Matrix]:
    if dry_run:
        return [*TINY.layer_matrices, TINY.head]
    known = [*QWEN3_8B.layer_matrices, QWEN3_8B.head, *SMOLLM2.layer_matrices, SMOLLM2.head]
    wanted = names.split(",") if names else [str(m) for m in known]
    if unknown := set(wanted) - {str(m) for m in known}:
        sys.exit(f"--matrices: {', '.join(sorted(unknown))}; there are {', '.join(map(str, known))}")
    return [m for m in known if str(m) in wanted]


def main() -> int:
    parser = arguments(__doc__, "gemm.jsonl")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 16, 32, 64], metavar="M,M,…")
    parser.add_argument("--matrices", default="", metavar="NxK,NxK,…")
    args = parser.parse_args()
    device, layer = device_of(args), TINY if args.dry_run else QWEN3_8B
    lines, cases, states = Lines(args.out, device), [], []
    for matrix in matrices(args.matrices, args.dry_run):
        found, measured = measure_matrix(matrix, args.rows, args.epochs, device)
        for case in found:
            for record in case.records():
                lines.add({**record, **measured.state})
        cases += found
        states.append(f"{matrix}: {state_text(measured.state)}")
        print(f"{states[-1]}\n\n{table(found, layer)}\n", flush=True)  # what a run cut short leaves
        if device == "cuda":
            torch.cuda.empty_cache()
    return finish(lines.facts, table(cases, layer), bars(cases, layer), args.dry_run, lines)


if __name__ == "__main__":
    sys.exit(main())
