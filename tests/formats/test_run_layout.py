"""Run layouts against the numpy model, field for field, and back."""

import numpy as np
import pytest
import torch
from conftest import _assert_bits_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from w12_model import adversarial, bits_of, gaussian, run_layout_w12, tensor_of

from specpilot import _C
from specpilot.formats.run_layout import run_weight

CASES = adversarial()


def pair_rows(bits):
    """The bf16 run layout [bands, tiles, 16, 32]."""
    n, k = bits.shape
    padded = np.pad(bits, ((0, -n % 16), (0, -k % 32)))
    bands, tiles = padded.shape[0] // 16, padded.shape[1] // 32
    split = padded.reshape(bands, 16, tiles, 16, 2)  # band, row, tile, pair row, parity
    return split.transpose(0, 2, 3, 1, 4).reshape(bands, tiles, 16, 32)


def packed_w12(weight):
    """The w12 run layout, also where run_weight would fall back."""
    n, k = weight.shape
    bands, tiles = -(-n // 16), -(-k // 32)
    base, begin = torch.empty(bands, dtype=torch.uint8), torch.empty(bands + 1, dtype=torch.int64)
    exceptions = _C.w12_scan(weight, base, begin)
    data = torch.empty(bands, tiles, 768, dtype=torch.uint8)
    pos, val = torch.empty(exceptions, dtype=torch.int32), torch.empty(exceptions, dtype=torch.bfloat16)
    _C.run_pack_w12(weight, base, begin.int(), data, pos, val)
    return {"data": data, "base": base, "exc_begin": begin.int(), "exc_pos": pos, "exc_val": val}


def check(bits, assert_bits_equal):
    weight = tensor_of(bits)
    got, want = packed_w12(weight), run_layout_w12(bits)
    for field, expected in want.items():
        actual = bits_of(got[field]) if field == "exc_val" else got[field].numpy()
        np.testing.assert_array_equal(actual, expected, err_msg=field)
    back = torch.full_like(weight, float("nan"))
    _C.run_unpack(got["data"], got["base"], got["exc_begin"], got["exc_pos"], got["exc_val"], back)
    assert_bits_equal(back, weight, "w12 and back")
    plain = run_weight([weight], "bf16")
    np.testing.assert_array_equal(bits_of(plain.data), pair_rows(bits))
    assert_bits_equal(plain.to_bf16(), weight, "bf16 and back")


@pytest.mark.parametrize("name", CASES)
def test_adversarial(name, assert_bits_equal):
    check(CASES[name], assert_bits_equal)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_weight(data):
    n, k = data.draw(st.integers(0, 35)), data.draw(st.integers(1, 70))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    patterns = data.draw(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=8))
    scale = data.draw(st.sampled_from([1e-30, 0.02, 1e20]))
    bits = bits_of(gaussian(n, k, data.draw(st.integers(0, 99)), scale))
    bits = np.where(rng.random((n, k)) < 0.1, rng.choice(np.array(patterns, np.uint16), (n, k)), bits)
    check(bits.astype(np.uint16), _assert_bits_equal)


@pytest.mark.parametrize("format", ["bf16", "w12"])
def test_parts_are_stacked_and_threads_do_not_matter(format, threads, assert_bits_equal):
    parts = [gaussian(n, 70, n) for n in (17, 3, 300)]
    whole = run_weight([torch.cat(parts)], format)
    for count in (1, 3):
        threads(count)
        stacked = run_weight(parts, format)
        assert (stacked.n, stacked.k, stacked.format) == (320, 70, format)
        for a, b in zip(stacked.args[:-1], whole.args[:-1], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert_bits_equal(a, b)
        assert_bits_equal(stacked.to_bf16(), torch.cat(parts))


def test_strided_weights(assert_bits_equal):
    wide = gaussian(40, 100)
    for view in (wide[:, 7:71], wide[::2], wide.T):
        assert_bits_equal(run_weight([view]).to_bf16(), view.contiguous())


def test_sizes_are_counted_honestly():
    packed = run_weight([gaussian(512, 1024)])
    fields = (packed.data, packed.base, packed.exc_begin, packed.exc_pos, packed.exc_val)
    assert packed.format == "w12"
    assert packed.nbytes == sum(t.numel() * t.element_size() for t in fields)
    assert packed.bits_per_weight == 8 * packed.nbytes / (512 * 1024)
    assert 12 < packed.bits_per_weight <= 12.2
    assert run_weight([gaussian(512, 1024)], "bf16").bits_per_weight == 16


def test_falls_back_when_exceptions_cost_more_than_words_save():
    """A tile saves 256 bytes, a band costs 5 and an exception 6: the switch is near 1/12 of the weights."""
    limit = (16 * 2 * 256 - 5 * 16 - 4) // 6
    for exceptions, format in ((limit, "w12"), (limit + 1, "bf16")):
        weight = torch.ones(256, 64, dtype=torch.bfloat16)
        order = torch.randperm(weight.numel(), generator=torch.Generator().manual_seed(0))
        weight.view(-1)[order[:exceptions]] = 1e30
        packed = run_weight([weight])
        assert packed.format == format
        assert packed.nbytes <= 2 * weight.numel()
        assert torch.equal(packed.to_bf16(), weight)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "no parts"),
        ([torch.zeros(2, 3)], "part 0 is torch.float32"),
        ([gaussian(2, 3), gaussian(2, 4)], "part 1 is .*2, 4"),
        ([gaussian(2, 3)[0]], "part 0"),
    ],
)
def test_refuses(parts, message):
    with pytest.raises(ValueError, match=message):
        run_weight(parts)


def test_kernels_refuse_tensors_that_do_not_belong_together():
    weight = gaussian(32, 64)
    good = packed_w12(weight)
    good["exc_begin"] = torch.tensor([0, 1, 2], dtype=torch.int32)
    good["exc_pos"] = torch.tensor([3, 5], dtype=torch.int32)
    good["exc_val"] = torch.ones(2, dtype=torch.bfloat16)
    pack = ("weight", "base", "exc_begin", "data", "exc_pos", "exc_val")
    unpack = ("data", "base", "exc_begin", "exc_pos", "exc_val", "weight")
    bad = {
        "data": torch.empty(2, 2, 767, dtype=torch.uint8),
        "base": torch.full((2,), 128, dtype=torch.uint8),
        "exc_begin": torch.tensor([0, 3, 2], dtype=torch.int32),
        "exc_val": torch.ones(1, dtype=torch.bfloat16),
    }
    for field, value in bad.items():
        args = {**good, "weight": weight.clone(), field: value}
        with pytest.raises(_C.KernelError):
            _C.run_pack_w12(*(args[name] for name in pack))
        with pytest.raises(_C.KernelError):
            _C.run_unpack(*(args[name] for name in unpack))
    with pytest.raises(_C.KernelError, match="exc_pos out of its band"):
        args = {**good, "weight": weight.clone(), "exc_pos": torch.tensor([3, 1024], dtype=torch.int32)}
        _C.run_unpack(*(args[name] for name in unpack))
    with pytest.raises(_C.KernelError, match="another number of exceptions"):
        _C.run_pack_w12(*({**good, "weight": weight}[name] for name in pack))
