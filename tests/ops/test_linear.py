"""linear: every variant against the order's independent model and float64; bits that depend on nothing but (x row, weight)."""

import pytest
import torch
from conftest import cpu_variants

from specpilot import _C, ops
from specpilot.formats.run_layout import run_weight
from specpilot.ref.linear import linear as linear_f64
from specpilot.ref.linear import linear_pairs32

VARIANTS = cpu_variants("linear")
BF16 = torch.bfloat16


def data(rows, n, k, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, k, generator=g).to(BF16)
    w = (torch.randn(n, k, generator=g) * 0.05).to(BF16)
    return x, w


def call(x, weight, variant, bias=None, residual=None, y=None):
    y = torch.full((x.shape[0], weight.n), float("nan"), dtype=BF16) if y is None else y
    ops.linear(x, *weight.args, bias, residual, y, variant=variant)
    return y


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fmt", ["bf16", "w12"])
@pytest.mark.parametrize(
    "shape", [(1, 16, 32), (1, 1, 1), (3, 17, 33), (16, 48, 576), (17, 33, 70), (49, 40, 1100), (65, 20, 64)]
)
def test_bits_are_the_orders(variant, fmt, shape, assert_bits_equal):
    x, w = data(*shape)
    g = torch.Generator().manual_seed(1)
    bias = torch.randn(shape[1], generator=g).to(BF16)
    residual = torch.randn(shape[0], shape[1], generator=g).to(BF16)
    weight = run_weight([w], fmt)
    for b, r in ((None, None), (bias, None), (None, residual), (bias, residual)):
        assert_bits_equal(call(x, weight, variant, b, r), linear_pairs32(x, w, b, r), f"{fmt} {shape}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_value_is_right(variant):
    x, w = data(33, 200, 1536)
    got, want = call(x, run_weight([w], "w12"), variant).double(), x.double() @ w.double().T
    assert (got - want).abs().max() <= want.abs().max() * 2**-8
    assert torch.equal(linear_f64(x, w).double(), want.to(BF16).double())


# 2^25, 1, -2^25 in places that any other order would sum differently: an order error shows in whole units, not in last bits.
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fmt", ["bf16", "w12"])
def test_cancelling_data_shows_the_order(variant, fmt, assert_bits_equal):
    g = torch.Generator().manual_seed(3)
    k = 160
    pool = torch.tensor([2.0**25, 1.0, -(2.0**25), 3.0, -1.0])
    x = pool[torch.randint(0, 5, (19, k), generator=g)].to(BF16)
    w = torch.tensor([1.0, -1.0, 2.0])[torch.randint(0, 3, (35, k), generator=g)].to(BF16)
    want = linear_pairs32(x, w)
    assert (want.double() - x.double() @ w.double().T).abs().max() > 0  # else this data would prove nothing
    assert_bits_equal(call(x, run_weight([w], fmt), variant), want)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fmt", ["bf16", "w12"])
def test_rows_are_independent_of_their_number(variant, fmt, assert_bits_equal):
    """Row i of an R-row call has the bits of the one-row call, R = 2 … 64 and beyond a row block."""
    x, w = data(1024, 40, 96)
    weight = run_weight([w], fmt)
    single = torch.cat([call(x[i : i + 1], weight, variant) for i in range(1024)])
    for rows in [*range(2, 65), 65, 97, 200, 241, 1024]:
        assert_bits_equal(call(x[:rows], weight, variant), single[:rows], f"{rows} rows")
        assert_bits_equal(call(x[-rows:], weight, variant), single[-rows:], f"last {rows} rows")


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_and_strides_do_not_matter(variant, threads, assert_bits_equal):
    x, w = data(20, 700, 100)
    weight = run_weight([w], "w12")
    want = linear_pairs32(x, w)
    wide_x = torch.full((20, 130), float("nan"), dtype=BF16)
    wide_x[:, 7:107] = x
    for n in (1, 2, 3, 7):
        threads(n)
        wide_y = torch.zeros(20, 900, dtype=BF16)
        assert_bits_equal(call(wide_x[:, 7:107], weight, variant, y=wide_y[:, 100:800]), want, f"{n} threads")
        assert not wide_y[:, :100].any() and not wide_y[:, 800:].any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_residual_may_be_the_output(variant, assert_bits_equal):
    x, w = data(5, 48, 64)
    y = torch.randn(5, 48).to(BF16)
    want = linear_pairs32(x, w, None, y.clone())
    assert_bits_equal(call(x, run_weight([w], "bf16"), variant, residual=y, y=y), want)


@pytest.mark.parametrize("variant", VARIANTS)
def test_exceptions_zeros_and_subnormals(variant, assert_bits_equal):
    """Outliers, untrained rows, signed zeros, subnormals (flushed, as the AMX unit does) and a row that is all exceptions."""
    x, w = data(4, 64, 224)
    w[3, 5], w[3, 100], w[20, 31], w[63, 223] = 3e20, -2e-30, 7e15, -1e9
    w[16:32] = w[16:32] * 1e-18
    w[5, ::3], w[6, ::2] = 0.0, -0.0
    w[7, 40] = torch.tensor([1], dtype=torch.int16).view(BF16)
    w[40] = torch.logspace(-30, 30, 224).to(BF16)
    weight = run_weight([w], "w12")
    assert weight.format == "w12" and len(weight.exc_pos) > 100
    flushed = torch.where(w.float().abs() < 2.0**-126, torch.zeros_like(w), w)
    got = call(x, weight, variant)
    assert_bits_equal(got, call(x, run_weight([w], "bf16"), variant), "w12 against bf16")
    assert_bits_equal(got, linear_pairs32(x, flushed))


@pytest.mark.parametrize("variant", VARIANTS)
def test_infinities_and_nan_reach_the_output(variant):
    x, w = data(2, 16, 64)
    w[1, 3], w[2, 3] = float("inf"), float("nan")
    for fmt in ("bf16", "w12"):
        y = call(x, run_weight([w], fmt), variant)
        assert (
            y[:, 1].isinf().all()
            and y[:, 2].isnan().all()
            and y[:, 3:].isfinite().all()
            and y[:, 0].isfinite().all()
        )


def test_nothing_to_do():
    w = run_weight([torch.ones(16, 32, dtype=BF16)], "bf16")
    assert call(torch.empty(0, 32, dtype=BF16), w, "").shape == (0, 16)


def test_contract_is_checked():
    x, w = data(2, 16, 32)
    weight = run_weight([w], "w12")
    y = torch.empty(2, 16, dtype=BF16)
    for args, match in [
        ((x.float(), *weight.args, None, None, y), "x is float32"),
        ((x.repeat(1, 2), *weight.args, None, None, y), "w12 data"),
        ((x, *weight.args, None, None, y[:, :8]), r"y is bf16 \[2, 8\].*\[2, 16\]"),
        ((x, *weight.args, torch.zeros(3, dtype=BF16), None, y), r"bias is bf16 \[3\].*\[16\]"),
        ((x, *weight.args, None, y[:1], y), r"residual is bf16 \[1, 16\]"),
        ((x, weight.data[:, :, :700], *weight.args[1:], None, None, y), "w12 data"),
        ((x, weight.data, None, *weight.args[2:], None, None, y), "needs base"),
        ((x, *weight.args[:2], weight.exc_begin + 1, *weight.args[3:], None, None, y), "exc_begin must rise"),
        (
            (torch.zeros(1025, 32, dtype=BF16), *weight.args, None, None, torch.zeros(1025, 16, dtype=BF16)),
            "1025 rows",
        ),
    ]:
        with pytest.raises(_C.KernelError, match=match):
            _C.linear(*args)
    bad = torch.tensor([32 * 16], dtype=torch.int32)
    with pytest.raises(_C.KernelError, match="exc_pos out of its band"):
        begin = torch.tensor([0, 1], dtype=torch.int32)
        _C.linear(x, weight.data, weight.base, begin, bad, torch.zeros(1, dtype=BF16), 16, None, None, y)
    with pytest.raises(_C.KernelError, match="no variant nonsense"):
        _C.linear(x, *weight.args, None, None, y, variant="nonsense")


def test_operator_registration():
    x, w = data(2, 16, 32)
    weight = run_weight([w], "bf16")
    f = torch.compile(
        lambda x, y: ops.linear(x, *weight.args, None, None, y), fullgraph=True, backend="aot_eager"
    )
    y, want = torch.zeros(2, 16, dtype=BF16), call(x, weight, "")
    f(x, y)
    assert torch.equal(y, want)
