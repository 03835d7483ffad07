"""linear_q8: every variant against the oracle, bit for bit; its integers against float64; rows that have no scale."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants

from specpilot import _C
from specpilot.formats import q8_weight
from specpilot.ref.linear_q8 import linear_q8 as oracle

VARIANTS = variants("linear_q8")
BF16 = torch.bfloat16
SHAPES = [
    (1, 16, 64),
    (1, 1, 1),
    (3, 17, 33),
    (8, 48, 576),
    (16, 33, 1536),
    (17, 33, 70),
    (64, 9, 128),
    (65, 40, 1100),
    (5, 300, 2048),  # from here on, blocks of CUDA share K
    (16, 70, 4100),
    (32, 130, 1088),
    (200, 140, 4096),
]


def data(rows, n, k, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rows, k, generator=g).to(BF16), (torch.randn(n, k, generator=g) * 0.05).to(BF16)


def call(x, weight, variant, bias=None, residual=None, y=None):
    y = torch.full((x.shape[0], weight.n), float("nan"), dtype=BF16) if y is None else y
    ops.linear_q8(x, *weight.args, bias, residual, y, variant=variant)
    return y


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_are_the_contracts(variant, shape, assert_bits_equal):
    x, w = data(*shape)
    weight, g = q8_weight(w), torch.Generator().manual_seed(1)
    bias = torch.randn(shape[1], generator=g).to(BF16)
    residual = torch.randn(shape[0], shape[1], generator=g).to(BF16)
    for b, r in ((None, None), (bias, None), (None, residual), (bias, residual)):
        want = oracle(x, weight.integers(), weight.scale, b, r)
        assert_bits_equal(call(x, weight, variant, b, r), want, f"{shape}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_largest_sums_do_not_overflow(variant, assert_bits_equal):
    """All magnitudes at their limit and of one sign, at the largest K: the sum with the bytes' offset is just below 2^31."""
    for sign in (1, -1):
        x, w = torch.full((2, 65536), 3.0).to(BF16), torch.full((16, 65536), sign * 0.5).to(BF16)
        weight = q8_weight(w)
        assert (weight.integers() == sign * 127).all()
        got = call(x, weight, variant)
        assert_bits_equal(got, oracle(x, weight.integers(), weight.scale))
        assert (got == sign * 98304).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_beyond_a_pass(variant, assert_bits_equal):
    """More integers than the workspace of CUDA holds."""
    x, w = data(260, 2, 65536)
    weight = q8_weight(w)
    assert_bits_equal(call(x, weight, variant), oracle(x, weight.integers(), weight.scale))


@pytest.mark.parametrize("variant", VARIANTS)
def test_value_is_near(variant):
    """Uniform rounding errors of half a level on both sides, added up over K, by their standard deviation."""
    x, w = data(33, 200, 1536)
    got, want = call(x, q8_weight(w), variant).double(), x.double() @ w.double().T
    level_x, level_w = x.double().abs().amax(1) / 127, w.double().abs().amax(1) / 127
    error_x = level_x[:, None] * w.double().norm(dim=1) / 12**0.5
    error_w = level_w * x.double().norm(dim=1)[:, None] / 12**0.5
    error = (error_x**2 + error_w**2 + (want * 2**-9) ** 2) ** 0.5
    assert ((got - want).abs() / error).square().mean().sqrt() < 1.1
    assert ((got - want).abs() < 6 * error).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_are_independent_of_their_number(variant, assert_bits_equal):
    x, w = data(1024, 40, 96)
    x *= torch.logspace(-3, 3, 1024)[:, None].to(BF16)
    weight = q8_weight(w)
    single = torch.cat([call(x[i : i + 1], weight, variant) for i in range(1024)])
    for rows in [*range(2, 65), 65, 97, 200, 255, 256, 257, 1024]:
        assert_bits_equal(call(x[:rows], weight, variant), single[:rows], f"{rows} rows")
        assert_bits_equal(call(x[-rows:], weight, variant), single[-rows:], f"last {rows} rows")


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_and_strides_do_not_matter(variant, threads, assert_bits_equal):
    x, w = data(20, 700, 100)
    weight = q8_weight(w)
    want = oracle(x, weight.integers(), weight.scale)
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
    weight, y = q8_weight(w), torch.randn(5, 48).to(BF16)
    want = oracle(x, weight.integers(), weight.scale, None, y.clone())
    assert_bits_equal(call(x, weight, variant, residual=y, y=y), want)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("k", [40, 200])
def test_rows_without_a_scale(variant, k, assert_bits_equal):
    """Zeros, tiny rows, infinities and NaN anywhere in a row; their neighbours do not notice."""
    x, w = data(9, 20, k)
    weight, plain = q8_weight(w), call(*data(9, 20, k)[:1], q8_weight(w), variant)
    x[1] = 0
    x[2] = x[2] * 2.0**-110
    x[3] = torch.tensor([1], dtype=torch.int16).view(BF16)  # a subnormal
    x[4, 0], x[5, k - 1], x[6, k // 2] = float("inf"), -float("inf"), float("nan")
    got = call(x, weight, variant)
    assert (got[1:4] == 0).all() and got[4:7].isnan().all()
    for row in (0, 7, 8):
        assert_bits_equal(got[row], plain[row], f"row {row}")


@pytest.mark.parametrize("shape", [(1, 1), (16, 64), (17, 33), (3, 1536), (1100, 70)])
def test_a_weight_is_rounded_to_the_nearest_of_its_levels(shape):
    w = data(1, *shape)[1]
    w[0] = 0
    if shape[0] > 2:
        w[2] = w[2] * 2.0**-120
    weight = q8_weight(w)
    q, level = weight.integers().float(), w.float().abs().amax(1) / 127
    assert torch.equal(weight.scale, level) and (weight.n, weight.k) == shape
    kept = level > 2.0**-100
    exact = w[kept].double() / level[kept].double()[:, None]
    assert ((q[kept] - exact).abs() <= 0.5 + 1e-4).all() and (q[kept].abs().amax(1) == 127).all()
    assert not q[~kept].any()
    assert torch.equal(weight.to_float(), q * level[:, None])
    pad = weight.data.permute(0, 2, 1, 3).reshape(-1, weight.data.shape[1] * 4)
    assert (pad[shape[0] :] == 128).all() and (pad[:, shape[1] :] == 128).all()


def test_a_weight_that_is_not_finite_is_refused():
    for bad in (float("inf"), float("nan")):
        w = torch.ones(1100, 70, dtype=BF16)
        w[1090, 69] = bad
        with pytest.raises(ValueError, match="row 1090 has an infinity or NaN"):
            q8_weight(w)
    with pytest.raises(ValueError, match=r"weight is torch.float32 \[2, 3\], expected torch.bfloat16"):
        q8_weight(torch.ones(2, 3))


def test_nothing_to_do():
    assert call(torch.empty(0, 32, dtype=BF16), q8_weight(torch.ones(16, 32, dtype=BF16)), "").shape == (
        0,
        16,
    )


def test_contract_is_checked():
    x, w = data(2, 16, 32)
    d, s = q8_weight(w).args
    y = torch.empty(2, 16, dtype=BF16)
    long = torch.zeros(1, 65537, dtype=BF16)
    for args, match in [
        ((x.float(), d, s, None, None, y), "x is float32"),
        ((x.repeat(1, 3), d, s, None, None, y), r"data is .*; expected uint8 \[1, 32, 16, 4\]"),
        ((x, d.view(torch.int8), s, None, None, y), "data is int8"),
        ((x, d, s[:8], None, None, y), r"scale is .*; expected float32 \[16\]"),
        ((x, d, s, torch.zeros(3, dtype=BF16), None, y), r"bias is .*; expected bf16 \[16\]"),
        ((x, d, s, None, y[:1], y), r"residual is bf16 \[1, 16\]"),
        ((x, d, s, None, None, y[:1]), r"y is bf16 \[1, 16\]"),
        ((x.new_zeros(1025, 32), d, s, None, None, y.new_zeros(1025, 16)), "1025 rows, at most 1024"),
        ((long, d, s, None, None, y[:1]), "K is 65537; at most 65536"),
    ]:
        with pytest.raises(_C.KernelError, match=match):
            ops.linear_q8(*args)


@pytest.mark.parametrize("variant", variants("linear_q8", "cuda"))
def test_cuda_wants_data_at_whole_copies(variant):
    x, w = data(2, 16, 32)
    d, s = q8_weight(w).args
    shifted = torch.zeros(d.numel() + 4, dtype=torch.uint8)[4:].view(d.shape)
    with pytest.raises(_C.KernelError, match="data begins 4 bytes past a multiple of 16"):
        ops.linear_q8(x, shifted, s, None, None, torch.empty(2, 16, dtype=BF16), variant=variant)


def test_operator_registration():
    x, w = data(2, 16, 32)
    weight = q8_weight(w)
    f = torch.compile(
        lambda x, y: ops.linear_q8(x, *weight.args, None, None, y), fullgraph=True, backend="aot_eager"
    )
    y, want = torch.zeros(2, 16, dtype=BF16), call(x, weight, "")
    f(x, y)
    assert torch.equal(y, want)
