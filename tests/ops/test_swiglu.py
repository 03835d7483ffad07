"""swiglu: every variant against float64 on all bf16 gates, and against the reference bit for bit."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import bf16_ulps, variants

from specpilot import _C
from specpilot.ref.swiglu import silu
from specpilot.ref.swiglu import swiglu as swiglu_f64

VARIANTS = variants("swiglu")
BF16 = torch.bfloat16
EVERY = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(BF16)
UPS = [1.0, -0.0, 0.37, -2.5e30, 1e-38, 3e-39, float("inf"), float("nan")]


def data(rows, width, seed=0):
    g = torch.Generator().manual_seed(1000 * seed + 17 * rows + width)
    return (torch.randn(rows, 2 * width, generator=g) * 3).to(BF16)


def call(gate_up, variant, y=None):
    y = torch.full((len(gate_up), gate_up.shape[1] // 2), float("nan"), dtype=BF16) if y is None else y
    ops.swiglu(gate_up, y, variant=variant)
    return y


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gate_against_float64(variant):
    """Within 1 ulp, and nearly always equal, down to g = -87, where exp(-g) is clamped and silu < 1e-35."""
    y = call(torch.cat([EVERY, torch.ones(65536).to(BF16)])[None], variant)[0]
    nan = EVERY.isnan()
    assert y[nan].isnan().all() and not y[~nan].isnan().any()
    normal = (EVERY.double().abs() >= 2.0**-125) | (EVERY == 0)  # silu(g) ~ g / 2 is a normal number or zero
    usual = normal & (EVERY >= -87)
    off = bf16_ulps(y[usual], silu(EVERY[usual]).to(BF16))
    assert off.max() <= 1 and (off != 0).float().mean() < 1e-3
    low = EVERY < -87
    assert (y[low].double().abs() <= EVERY[low].double().abs() * 2.0**-126).all()
    subnormal = ~normal & ~nan
    assert (y[subnormal].double().abs() < 2.0**-126).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("up", UPS)
def test_every_gate_as_in_the_reference(variant, up, assert_bits_equal):
    gate = EVERY[~EVERY.isnan()] if up != up else EVERY  # which of two NaNs gives its sign is not defined
    gate_up = torch.cat([gate, torch.full_like(gate, up)])[None]
    same_nan = [
        torch.where(y.isnan(), torch.nan, y) for y in (call(gate_up, variant), call(gate_up, "cpu_ref"))
    ]
    assert_bits_equal(*same_nan, f"{variant}, up {up}")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [1, 7, 16, 31, 33, 100, 1023, 1025, 1536, 4096, 12288])
def test_values_and_bits(variant, width, assert_bits_equal):
    for rows in (0, 1, 2, 17, 65) if width < 2000 else (1, 3):
        gate_up = data(rows, width)
        y = call(gate_up, variant)
        assert_bits_equal(y, call(gate_up, "cpu_ref"), f"{rows} rows")
        off = bf16_ulps(y, swiglu_f64(gate_up))
        assert rows == 0 or (off.max() <= 2 and (off != 0).float().mean() < 1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
def test_a_row_does_not_see_its_neighbours(variant, threads_used, threads, assert_bits_equal):
    threads(threads_used)
    for rows, width in ((2, 12288), (64, 1536), (200, 100), (1024, 33)):
        gate_up = data(rows, width)
        together = call(gate_up, variant)
        for i in {0, 1, rows // 2, rows - 1}:
            assert_bits_equal(
                call(gate_up[i : i + 1], variant), together[i : i + 1], f"row {i} of {rows}, {threads_used}"
            )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [33, 1536])
def test_slices_of_wider_buffers(variant, width, assert_bits_equal):
    gate_up = data(9, width)
    wide_in, wide_out = (
        torch.full((9, 2 * width + 40), 3.0).to(BF16),
        torch.full((9, width + 20), 3.0).to(BF16),
    )
    wide_in[:, 11 : 11 + 2 * width] = gate_up
    call(wide_in[:, 11 : 11 + 2 * width], variant, wide_out[:, 7 : 7 + width])
    assert_bits_equal(wide_out[:, 7 : 7 + width], call(gate_up, variant), "strided")
    assert (wide_out[:, :7] == 3).all() and (wide_out[:, 7 + width :] == 3).all()


def test_contract_is_checked():
    gate_up, y = data(3, 8), torch.empty(3, 8, dtype=BF16)
    for args, message in [
        ((gate_up.float(), y), "gate_up is float32"),
        ((gate_up, y.float()), "y is float32"),
        ((gate_up, y[:, :7].contiguous()), r"gate_up is bf16 \[3, 16\].*\[3, 14\]"),
        ((gate_up[:2], y), r"gate_up is bf16 \[2, 16\].*\[3, 16\]"),
        ((gate_up, torch.empty(8, 3, dtype=BF16).T), "y is bf16.*unit column stride"),
        ((gate_up, y[:1].expand(3, 8)), "y is bf16.*rows overlap"),
    ]:
        with pytest.raises(_C.KernelError, match=f"swiglu: {message}"):
            ops.swiglu(*args)


def test_operator_registration():
    gate_up = data(2, 8)
    torch.library.opcheck(torch.ops.specpilot.swiglu.default, (gate_up, torch.empty(2, 8, dtype=BF16)))
