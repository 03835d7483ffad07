"""How the exponents of a trained bf16 weight are spread, and random weights that are spread alike.

``LAW[d]`` is the share of non-zero weights whose exponent field is ``LOWEST + d`` above the base of their band of 16 rows (w12's
base: the lowest that covers most). Measured over all linear weights of the shipped drafter, which was trained in this precision;
the default target is at hand only as four-bit integers, which have no small values. ``measure`` repeats the measurement.
w12 covers 1 … 15 above the base; what lies outside is stored as exceptions.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

LOWEST = -10
# fmt: off
LAW = (
    2.6e-07, 6.5e-08, 2.6e-07, 4.5e-07, 1.23e-06, 1.74e-06, 4.97e-06, 8.07e-06, 1.737e-05,
    3.836e-05, 7.046e-05, 1.4824e-04, 2.9219e-04, 5.8886e-04, 1.16832e-03, 2.33406e-03, 4.68847e-03, 9.37113e-03,
    0.01879192, 0.03727078, 0.07394535, 0.14232843, 0.24624036, 0.30551616, 0.14912161, 8.03856e-03, 1.234e-05,
)
# fmt: on
BASE = 108  # a standard deviation of 0.025, as in models of this size
_QUANTILE_BITS = 20
_AT_ONCE = 1 << 26  # elements made together: bounds the temporary memory


def measure(weight: Tensor) -> Tensor:
    """int64 [len(LAW)]: non-zero weights of a bf16 matrix by exponent above the base of their band, clipped to LAW's range."""
    bits = weight.view(torch.int16).int() & 0x7FFF
    counts = torch.zeros(len(LAW), dtype=torch.int64)
    for band in bits.split(16):
        found = (band >> 7)[band != 0]
        below = torch.nn.functional.pad(torch.bincount(found, minlength=256).cumsum(0), (1, 0))
        covered = below[16:144] - below[1:129]  # base b covers b + 1 … b + 15
        above = found - int(covered.argmax()) - LOWEST
        counts += torch.bincount(above.clamp(0, len(LAW) - 1), minlength=len(LAW))
    return counts


@cache
def _quantiles(device: torch.device) -> Tensor:
    """int32 [2 ** bits]: the exponent field of each quantile."""
    size = 1 << _QUANTILE_BITS
    ends = (torch.tensor(LAW, dtype=torch.float64).cumsum(0) / sum(LAW) * size).round().long()
    steps = torch.bucketize(torch.arange(size), ends, right=True)
    return (steps + LOWEST + BASE).int().to(device)


def random_weight(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """bf16 on the generator's device: exponents by ``LAW``, signs and mantissas uniform."""
    out = torch.empty(shape, dtype=torch.bfloat16, device=generator.device)
    quantiles, flat = _quantiles(generator.device), out.view(-1).view(torch.int16)
    for piece in flat.split(_AT_ONCE):
        drawn = torch.randint(
            1 << (8 + _QUANTILE_BITS),
            piece.shape,
            generator=generator,
            device=piece.device,
            dtype=torch.int32,
        )
        exponent = quantiles.index_select(0, drawn >> 8)
        sign, mantissa = drawn & 0x80, drawn & 0x7F
        piece.copy_((exponent << 7 | mantissa) - (sign << 8))  # minus 2^15 sets the sign bit of an int16
    return out
