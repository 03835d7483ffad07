"""Weights of 8 bits against numpy, on every device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpu import needs_gpu

from specpilot.formats import q8_weight
from specpilot.formats.slabs import Slabs

BF16 = torch.bfloat16
WHERE = ["cpu", "slabs", pytest.param("cuda", marks=needs_gpu)]


def made(weight, where):
    if where == "slabs":
        return q8_weight(weight, Slabs())
    return q8_weight(weight.to(where))


def rows_of_every_size(n, k):
    """Magnitudes from bf16's smallest to its largest, zeros and halves among the levels."""
    g = torch.Generator().manual_seed(n + k)
    weight = torch.randn(n, k, generator=g) * torch.linspace(-126, 120, n).exp2()[:, None]
    weight[0], weight[n // 2, ::2] = 0, 0
    weight[-1] = torch.arange(k) % 128 - 63.5
    weight[-1, 0] = 127
    weight[-2, 0] = torch.finfo(BF16).max
    return weight.to(BF16)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("n, k", [(16, 64), (17, 33), (1100, 70), (2100, 260)])
def test_levels_and_scales_are_numpys(where, n, k):
    weight = rows_of_every_size(n, k)
    got = made(weight, where)
    values = weight.float().numpy()
    largest = np.abs(values).max(1)
    one = np.float32(1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        factor = np.where(largest >= 2.0**-100, one / largest * np.float32(127), np.float32(0))
    levels = np.rint(values * factor[:, None])
    assert got.data.device.type == got.scale.device.type == ("cuda" if where == "cuda" else "cpu")
    np.testing.assert_array_equal(got.integers().cpu().numpy(), levels)
    np.testing.assert_array_equal(got.scale.cpu().numpy(), largest / np.float32(127))
    padding = got.data.cpu().permute(0, 2, 1, 3).reshape(-1, got.data.shape[1] * 4)
    assert (padding[n:] == 128).all() and (padding[:, k:] == 128).all()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", [0, 1500])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_row_that_is_not_finite_is_named(where, row, value):
    weight = torch.ones(2000, 8, dtype=BF16)
    weight[row, 3] = value
    with pytest.raises(ValueError, match=f"row {row} has an infinity or NaN"):
        made(weight, where)
