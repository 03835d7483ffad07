"""linear and embed on CUDA: the value against float64; bits that depend on nothing but (x row, weight), in both formats."""

import pytest
import torch
from gpu import LINEAR_SHAPES, needs_gpu

from specpilot import _C, ops
from specpilot.formats.run_layout import run_weight
from specpilot.ref.embed import embed as embed_ref

pytestmark = needs_gpu
BF16 = torch.bfloat16
SEGMENTS = {shape: _C.linear_cuda_plan(*shape)[3] for shape in LINEAR_SHAPES}
ROWS = [1, 2, 7, 8, 9, 16, 17, 32, 33, 63, 64, 65, 100, 128, 192, 256, 257, 300, 512, 1000, 1024]


def data(rows, n, k, seed=0):
    g = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(rows, k, generator=g, device="cuda").to(BF16)
    w = torch.randn(n, k, generator=g, device="cuda") * 0.05
    w[torch.rand(n, k, generator=g, device="cuda") < 0.002] = 3.0  # exceptions
    return x, w.to(BF16)


def call(x, weight, bias=None, residual=None, y=None):
    y = torch.full((len(x), weight.n), float("nan"), dtype=BF16, device="cuda") if y is None else y
    ops.linear(x, *weight.args, bias, residual, y)
    return y


@pytest.mark.parametrize("shape", LINEAR_SHAPES)
def test_value_formats_and_rows(shape, assert_bits_equal):
    x, w = data(1024, *shape)
    w12, bf16 = run_weight([w], "w12"), run_weight([w], "bf16")
    assert w12.format == "w12" or shape[1] < 64
    exact = x.double() @ w.double().T
    size = x.double().abs() @ w.double().abs().T
    single = torch.cat([call(x[i : i + 1], w12) for i in range(len(x))])
    assert ((single.double() - exact).abs() <= exact.abs() * 2**-8 + size * 2**-18).all()
    for rows in ROWS:
        for weight in (w12, bf16):
            assert_bits_equal(call(x[:rows], weight), single[:rows], f"{weight.format}, first {rows}")
        assert_bits_equal(call(x[-rows:], w12), single[-rows:], f"last {rows}")


@pytest.mark.parametrize("shape", [(n, k) for n, k in LINEAR_SHAPES if n >= 600 and k > 64])
def test_cancelling_data_depends_on_the_plan_alone(shape, assert_bits_equal):
    """2^25, 1, -2^25: another cut of k or another order of segments shows in whole units."""
    g = torch.Generator("cuda").manual_seed(3)
    pool = torch.tensor([2.0**25, 1.0, -(2.0**25), 3.0, -1.0], device="cuda")
    x = pool[torch.randint(0, 5, (1024, shape[1]), generator=g, device="cuda")].to(BF16)
    w = torch.tensor([1.0, -1.0, 2.0], device="cuda")[
        torch.randint(0, 3, shape, generator=g, device="cuda")
    ].to(BF16)
    weight = run_weight([w])
    single = torch.cat([call(x[i : i + 1], weight) for i in range(1024)])
    assert (single.double() - x.double() @ w.double().T).abs().max() > 1  # else this data would prove nothing
    for rows in (9, 64, 200, 256, 300, 1024):
        assert_bits_equal(call(x[:rows], weight), single[:rows], f"{rows} rows")
        assert_bits_equal(call(x[:rows], run_weight([w], "bf16")), single[:rows], f"bf16, {rows} rows")


@pytest.mark.parametrize("shape", [s for s, segments in SEGMENTS.items() if segments > 2])
def test_segments_are_added_in_order(shape, assert_bits_equal):
    """One weight a segment: its chain is exact, so that all rounding is between segments, as float32 does it in their order."""
    n, k = shape
    steps, segments = _C.linear_cuda_plan(n, k)[1], SEGMENTS[shape]
    g = torch.Generator("cuda").manual_seed(4)
    pool = torch.tensor([2.0**25, 1.0, -(2.0**25), 3.0, -1.0], device="cuda")
    values = pool[torch.randint(0, 5, (segments, n), generator=g, device="cuda")]
    w = torch.zeros(n, k, dtype=BF16, device="cuda")
    for i, value in enumerate(values):
        begin, end = (64 * (s * steps // segments) for s in (i, i + 1))
        column = torch.randint(begin, min(end, k), (n,), generator=g, device="cuda")
        w[torch.arange(n, device="cuda"), column] = value.to(BF16)
    want, backwards = (sum(v[1:], v[0]).to(BF16) for v in (values, values.flip(0)))
    assert (want != backwards).any()  # else this data would prove nothing
    for fmt in ("bf16", "w12"):
        weight = run_weight([w], fmt)
        for rows in (1, 16, 64, 300):
            x = torch.ones(rows, k, dtype=BF16, device="cuda")
            assert_bits_equal(call(x, weight), want.expand(rows, n), f"{fmt}, {rows} rows")


@pytest.mark.parametrize("rows", [1, 5, 64, 300])
def test_bias_residual_and_strides(rows, assert_bits_equal):
    n, k = 1203, 333
    x, w = data(rows, n, k)
    weight = run_weight([w])
    g = torch.Generator("cuda").manual_seed(1)
    bias = torch.randn(n, generator=g, device="cuda").to(BF16)
    residual = torch.randn(rows, n, generator=g, device="cuda").to(BF16)
    plain = call(x, weight)
    biased = call(x, weight, bias)
    assert (
        (biased.float() - plain.float() - bias.float()).abs()
        <= 2**-7 * (plain.float().abs() + bias.float().abs()) + 1e-6
    ).all()
    assert_bits_equal(call(x, weight, bias, residual), residual + biased, "residual")
    y = residual.clone()
    assert_bits_equal(call(x, weight, None, y, y), residual + plain, "in place")
    for shift in (0, 7, 8):
        wide_x = torch.full((rows, k + 27), float("nan"), dtype=BF16, device="cuda")
        wide_x[:, shift : shift + k] = x
        wide_y = torch.zeros(rows, n + 11, dtype=BF16, device="cuda")
        assert_bits_equal(
            call(wide_x[:, shift : shift + k], weight, y=wide_y[:, 3 : 3 + n]), plain, f"shift {shift}"
        )
        assert not wide_y[:, :3].any() and not wide_y[:, 3 + n :].any()


def test_exceptions_zeros_infinities_and_nan(assert_bits_equal):
    x, w = data(4, 64, 224)
    w[3, 5], w[3, 100], w[20, 31], w[63, 223] = 3e20, -2e-30, 7e15, -1e9
    w[16:32] = w[16:32] * 1e-18
    w[5, ::3], w[6, ::2] = 0.0, -0.0
    w[40] = torch.logspace(-30, 30, 224).to(BF16)
    w12, bf16 = run_weight([w], "w12"), run_weight([w], "bf16")
    assert w12.format == "w12" and len(w12.exc_pos) > 100
    assert_bits_equal(call(x, w12), call(x, bf16), "w12 against bf16")
    w[1, 3], w[2, 3] = float("inf"), float("nan")
    for fmt in ("bf16", "w12"):
        y = call(x, run_weight([w], fmt))
        assert (
            y[:, 1].isinf().all()
            and y[:, 2].isnan().all()
            and y[:, 4:].isfinite().all()
            and y[:, 0].isfinite().all()
        )


def test_replayed_in_a_graph(assert_bits_equal):
    """Calls that follow each other, so that the next one starts while this one ends."""
    x, w = data(16, 1024, 1024)
    weights = [run_weight([w]), run_weight([w.flip(0)], "bf16")]
    want = x
    for i in range(8):
        want = call(want, weights[i % 2])
    buffers = [torch.empty(16, 1024, dtype=BF16, device="cuda") for _ in range(8)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(8):
            call(x if i == 0 else buffers[i - 1], weights[i % 2], y=buffers[i])
    for _ in range(5):
        buffers[-1].zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert_bits_equal(buffers[-1], want)


@pytest.mark.parametrize("fmt", ["bf16", "w12"])
@pytest.mark.parametrize("shape", LINEAR_SHAPES)
def test_embed_gives_the_rows(fmt, shape, assert_bits_equal):
    n, k = shape
    _, w = data(1, n, k)
    w[0, k - 1], w[n - 1, 0] = float("nan"), 1e-39
    g = torch.Generator().manual_seed(1)
    weight = run_weight([w], fmt)
    for ids in (torch.arange(min(n, 300)), torch.randint(0, n, (200,), generator=g), torch.tensor([n - 1])):
        ids = ids.int().cuda()
        wide = torch.full((len(ids), k + 8), 3.0, device="cuda").to(BF16)
        ops.embed(ids, *weight.args, wide[:, 5 : 5 + k])
        assert_bits_equal(wide[:, 5 : 5 + k], embed_ref(ids, w), f"{fmt} {shape}")
        assert (wide[:, :5] == 3).all() and (wide[:, 5 + k :] == 3).all()
    ops.embed(torch.tensor([n], dtype=torch.int32, device="cuda"), *weight.args, wide[:1, :k])
    assert wide[0, :k].isnan().all()


def test_contract_is_checked():
    x, w = data(2, 16, 64)
    weight, y = run_weight([w]), torch.empty(2, 16, dtype=BF16, device="cuda")
    data_, _, _, overflow, _ = weight.args[:5]
    none = None
    for args, match in [
        ((x.cpu(), *weight.args, none, none, y.cpu()), "data is on another device"),
        (
            (x, data_[:, :, :, :700].contiguous(), none, none, overflow, none, 16, none, none, y),
            "w12 data of a",
        ),
        ((x, data_, none, none, none, none, 16, none, none, y), "with exc_pos"),
        ((x, data_, overflow, none, overflow, none, 16, none, none, y), "on CUDA a weight is"),
        ((x, *run_weight([w.cpu()]).args, none, none, y), "data is on another device"),
    ]:
        with pytest.raises(_C.KernelError, match=match):
            ops.linear(*args)
