"""Linears of the bf16 controls: each by the faster of our kernel and cuBLAS, so that no slow control flatters us.

For every matrix and number of rows that an engine meets, both are measured once, in graphs over rotated copies, before the engine
has run; the choices are printed with the tables. With cuBLAS the bits of a row may change with the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gemm import BLAS, blas, clone, copies, ours
from tables import markdown
from timing import measure
from torch import Tensor

from specpilot import Engine
from specpilot.drafters.dflash import DFlashDraftModel
from specpilot.drafters.replay import Replay
from specpilot.formats import RunWeight
from specpilot.layers import Layer, Linear
from specpilot.models.decoder import DecoderTarget

OURS = "ours"
EPOCHS = 5
PREFILL_ROWS = 512  # of a whole call of a prompt, engine/engine.py


@dataclass
class Choices:
    """``rows``: numbers of rows that are measured; a call goes by the next of them. ``us``: by (n, k, rows), µs of each library."""

    rows: Sequence[int]
    device: str
    us: dict[tuple[int, int, int], Mapping[str, float]] = field(default_factory=dict)

    def of(self, weight: RunWeight) -> dict[int, str]:
        """Rows → "ours", "cublas" or "cublaslt". ``weight``: bf16; matrices of one shape share a measurement."""
        size = weight.n, weight.k
        if (*size, self.rows[0]) not in self.us:
            self._measure(weight)
        return {m: self.fastest((*size, m)) for m in self.rows}

    def fastest(self, case: tuple[int, int, int]) -> str:
        """Of (n, k, rows)."""
        return min(self.us[case], key=self.us[case].__getitem__)

    def _measure(self, weight: RunWeight) -> None:
        device, plain = self.device, weight.to_bf16()
        run = copies(weight, weight.nbytes, device, clone)
        rotated = copies(plain, plain.nbytes, device, torch.clone)
        for m in self.rows:
            x = torch.randn(m, weight.k, device=device).bfloat16()
            y = torch.empty(m, weight.n, dtype=torch.bfloat16, device=device)
            arms = {OURS: ours(run, x, y, device)}
            arms |= {library: blas(library, rotated, x, y, device) for library in BLAS}
            found = measure({name: arm.us for name, arm in arms.items()}, EPOCHS)
            self.us[weight.n, weight.k, m] = {name: found[name].median for name in arms}
        if device == "cuda":
            del arms, run, rotated  # graphs and copies of more than a gigabyte each
            torch.cuda.empty_cache()

    def table(self) -> str:
        rows = [
            [f"{n}x{k}", m, us[OURS], *(us[b] for b in BLAS), self.fastest((n, k, m))]
            for (n, k, m), us in self.us.items()
        ]
        return markdown(["linear in bf16", "rows", "ours µs", *(f"{b} µs" for b in BLAS), "taken"], rows)


@dataclass(frozen=True)
class FasterLinear(Linear):
    """``turned``: the weight as bf16 [k, n], None where our kernel is always taken; ``library`` by number of rows."""

    turned: Tensor | None = None
    library: Mapping[int, str] = field(default_factory=dict)

    def __call__(self, x: Tensor, y: Tensor, residual: Tensor | None = None) -> None:
        rows = len(x)
        taken = self.library[min((m for m in self.library if m >= rows), default=max(self.library))]
        if taken == OURS or self.turned is None:
            super().__call__(x, y, residual)
            return
        if x.is_cuda:
            torch.backends.cuda.preferred_blas_library(taken)
        if residual is None:
            torch.mm(x, self.turned, out=y)
        else:  # in place, and fused: one rounding where ours has two
            torch.addmm(residual, x, self.turned, out=y)


def faster(linear: Linear, choices: Choices) -> FasterLinear:
    """Raises ValueError for a linear that no control has: one that is not bf16, or has a bias."""
    weight = linear.weight
    if not isinstance(weight, RunWeight) or weight.format != "bf16" or linear.bias is not None:
        raise ValueError(
            f"faster: a linear of {type(weight).__name__} with bias {linear.bias is not None}, expected bf16"
        )
    library = choices.of(weight)
    plain = weight.to_bf16().t() if set(library.values()) != {OURS} else None
    return FasterLinear(weight, None, plain, library)


def _layers(layers: Sequence[Layer], choices: Choices) -> list[Layer]:
    names = ("qkv", "out", "gate_up", "down")

    def linears(layer: Layer) -> dict[str, Any]:
        return {name: faster(getattr(layer, name), choices) for name in names}

    return [replace(layer, **linears(layer)) for layer in layers]


def use_faster(engine: Engine, choices: Choices) -> Engine:
    """Changes the linears of an engine that has not run yet: those of its target, and of its drafter if it has one."""
    target, drafter = engine.target, engine.drafter
    assert isinstance(target, DecoderTarget)
    target.layers = _layers(target.layers, choices)
    target.head_linear = faster(target.head_linear, choices)
    drafter = drafter.inner if isinstance(drafter, Replay) else drafter
    if isinstance(drafter, DFlashDraftModel):
        drafter.layers = _layers(drafter.layers, choices)
        drafter.fc, drafter.context_kv = faster(drafter.fc, choices), faster(drafter.context_kv, choices)
        # The target's own head, and so its copy as well.
        shared = drafter.head.weight is target.head
        drafter.head = target.head_linear if shared else faster(drafter.head, choices)
    return engine
