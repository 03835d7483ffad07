"""rmsnorm: every variant against the order's model, float64 and transformers; a row sees only itself."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import bf16_ulps, variants
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from specpilot import _C
from specpilot.ref.rmsnorm import rmsnorm as rmsnorm_f64
from specpilot.ref.rmsnorm import rmsnorm_lanes16

VARIANTS = variants("rmsnorm")
WIDTHS = [1, 7, 16, 31, 33, 100, 576, 1536, 4096]
BF16 = torch.bfloat16


def data(rows, width, seed=0):
    g = torch.Generator().manual_seed(1000 * seed + 17 * rows + width)
    scale = torch.logspace(-3, 3, max(rows, 1))[:rows, None]
    return (torch.randn(rows, width, generator=g) * scale).to(BF16), torch.randn(width, generator=g).to(BF16)


def call(x, weight, variant, eps=1e-5, denom=None, y=None):
    y = torch.full(x.shape, float("nan"), dtype=BF16) if y is None else y
    ops.rmsnorm(x, weight, eps, float(denom or x.shape[1]), y, variant=variant)
    return y


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [*WIDTHS, 16384, 24576, 25000])
def test_bits_are_the_orders(variant, width, assert_bits_equal):
    for rows in (0, 1, 2, 5, 65):
        x, weight = data(rows, width)
        for eps, denom in ((1e-5, width), (1e-6, 0.25 * width + 1), (0.0, width)):
            want = rmsnorm_lanes16(x, weight, eps, denom)
            assert_bits_equal(
                call(x, weight, variant, eps, denom), want, f"{rows} rows, eps {eps}, denom {denom}"
            )


def transformers_norm(x, weight):
    norm = LlamaRMSNorm(x.shape[1], eps=1e-5).to(BF16)
    with torch.no_grad():
        norm.weight.copy_(weight)
        return norm(x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "theirs", [lambda x, w: rmsnorm_f64(x, w, 1e-5, x.shape[1]), transformers_norm], ids=["float64", "llama"]
)
def test_against_others(variant, theirs):
    """The normalised value is within 1 ulp; times a weight, that ulp may become 2."""
    for width in WIDTHS:
        x, weight = data(200, width, seed=1)
        for w, limit in ((torch.ones_like(weight), 1), (weight, 2)):
            off = bf16_ulps(call(x, w, variant), theirs(x, w))
            assert off.max() <= limit and (off != 0).double().mean() < 2e-4


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
def test_a_row_does_not_see_its_neighbours(variant, threads_used, threads, assert_bits_equal):
    threads(threads_used)
    for rows, width in ((2, 4096), (64, 1536), (65, 100), (200, 576), (1024, 576)):
        x, weight = data(rows, width)
        together = call(x, weight, variant)
        for i in {0, 1, rows // 2, rows - 1}:
            assert_bits_equal(
                call(x[i : i + 1], weight, variant), together[i : i + 1], f"row {i} of {rows}, {threads_used}"
            )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [33, 576])
def test_slices_of_wider_buffers_and_in_place(variant, width, assert_bits_equal):
    x, weight = data(9, width)
    want = call(x, weight, variant)
    wide_in, wide_out = (torch.full((9, width + 50), 3.0).to(BF16) for _ in range(2))
    wide_in[:, 10 : 10 + width] = x
    call(wide_in[:, 10 : 10 + width], weight, variant, y=wide_out[:, 7 : 7 + width])
    assert_bits_equal(wide_out[:, 7 : 7 + width], want, "strided")
    assert (wide_out[:, :7] == 3).all() and (wide_out[:, 7 + width :] == 3).all()
    call(wide_in[:, 10 : 10 + width], weight, variant, y=wide_in[:, 10 : 10 + width])
    assert_bits_equal(wide_in[:, 10 : 10 + width], want, "in place")


@pytest.mark.parametrize("variant", VARIANTS)
def test_special_values_as_in_the_reference(variant, assert_bits_equal):
    """Subnormals count as zero, an infinity or NaN spoils its row alone, overflow of the sum gives zeros."""
    x, weight = data(8, 37)
    x[1, 5], x[2, 36], x[3, 0], x[4] = float("inf"), float("nan"), -float("inf"), 3e38
    x[5] = 1e-40
    x[6, 3:9] = 1e-39
    weight[4], weight[20] = 1e-40, float("inf")
    y = call(x, weight, variant)
    same_nan = [torch.where(t.isnan(), torch.nan, t) for t in (y, call(x, weight, "cpu_ref"))]
    assert_bits_equal(*same_nan, variant)
    finite = torch.arange(37) != 20
    assert (
        y[2].isnan().all()
        and not y[4][finite].any()
        and not y[5][finite].any()
        and not y[6, 3:9].any()
        and not y[:1, 4].any()
    )
    assert y[0][finite].isfinite().all() and y[7][finite].isfinite().all()


def test_contract_is_checked():
    x, weight = data(3, 8)
    for args, message in [
        ((x.float(), weight, 1e-5, 8.0, x), r"x is float32 \[3, 8\].*expected bf16"),
        ((x, weight[:7], 1e-5, 8.0, x.clone()), r"weight is bf16 \[7\].*\[8\]"),
        ((x, weight, 1e-5, 8.0, x[:2].clone()), r"y is bf16 \[2, 8\].*\[3, 8\]"),
        ((x.T, weight[:3], 1e-5, 8.0, x.clone()), "x is bf16.*unit column stride"),
        ((x, weight, 1e-5, 8.0, x[:1].expand(3, 8)), "y is bf16.*rows overlap"),
        ((x, weight, 1e-5, 0.0, x), "denom is 0"),
        ((x, weight, -1.0, 8.0, x), "eps is -1"),
        ((x[0], weight, 1e-5, 8.0, x), "x is bf16"),
    ]:
        with pytest.raises(_C.KernelError, match=f"rmsnorm: {message}"):
            ops.rmsnorm(*args)


def test_operator_registration():
    x, weight = data(2, 8)
    torch.library.opcheck(torch.ops.specpilot.rmsnorm.default, (x, weight, 1e-5, 8.0, torch.empty_like(x)))
