"""w12 arrays against the numpy model, field for field, and back; broken arrays are refused by name."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import _assert_bits_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from w12_model import adversarial, bits_of, disk_w12, gaussian, tensor_of

from specpilot.formats import CheckpointError, w12

CASES = adversarial()


def check(bits, assert_bits_equal):
    weight = tensor_of(bits)
    packed, want = w12.pack(weight), disk_w12(bits)
    for field, expected in want.items():
        np.testing.assert_array_equal(getattr(packed, field).numpy(), expected, err_msg=field)
    assert w12.count_exceptions(weight) == packed.exc_pos.numel()
    w12.verify(packed, weight)
    assert_bits_equal(w12.unpack(packed), weight)


@pytest.mark.parametrize("name", CASES)
def test_adversarial(name, assert_bits_equal):
    check(CASES[name], assert_bits_equal)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_weight(data):
    shape = data.draw(st.lists(st.integers(0, 35), min_size=1, max_size=1))
    if data.draw(st.booleans()):
        shape = [data.draw(st.integers(0, 4)), *shape]
    shape.append(data.draw(st.integers(1, 70)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    patterns = data.draw(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=8))
    scale = data.draw(st.sampled_from([1e-30, 0.02, 1e20]))
    bits = bits_of(gaussian(int(np.prod(shape[:-1])), shape[-1], data.draw(st.integers(0, 99)), scale))
    bits = np.where(rng.random(bits.shape) < 0.1, rng.choice(np.array(patterns, np.uint16), bits.shape), bits)
    check(bits.astype(np.uint16).reshape(shape), _assert_bits_equal)


def test_bands_do_not_cross_leading_indices(assert_bits_equal):
    experts = torch.stack([gaussian(20, 33, e, 10.0 ** -(9 * e)) for e in range(3)])
    packed = w12.pack(experts)
    assert packed.low.shape == (60, 33) and packed.base.shape == (6,)
    for e in range(3):
        assert torch.equal(packed.base[2 * e : 2 * e + 2], w12.pack(experts[e]).base)
    assert_bits_equal(w12.unpack(packed), experts)
    assert_bits_equal(w12.unpack(w12.pack(experts.view(3, 1, 20, 33))), experts.view(3, 1, 20, 33))


def test_long_rows_strides_and_threads(threads, assert_bits_equal):
    wide = gaussian(33, 2500)
    wide.view(-1)[::97] = 1e30
    whole = w12.pack(wide)
    for count in (1, 3):
        threads(count)
        for a, b in zip(w12.pack(wide).arrays, whole.arrays, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert_bits_equal(w12.unpack(whole), wide)
    for view in (wide[:, 7:71], wide[::2], wide.T):
        assert_bits_equal(w12.unpack(w12.pack(view)), view.contiguous())


def test_sizes_are_counted_honestly():
    packed = w12.pack(gaussian(512, 1024))
    assert packed.nbytes == sum(array.numel() * array.element_size() for array in packed.arrays)
    assert 12 < packed.bits_per_weight == 8 * packed.nbytes / (512 * 1024) <= 12.1
    assert w12.pack(torch.empty(0, 8, dtype=torch.bfloat16)).bits_per_weight == 0


@pytest.mark.parametrize(
    "weight",
    [torch.zeros(2, 2), torch.zeros(4).bfloat16(), torch.zeros(3, 0).bfloat16(), torch.tensor(1).bfloat16()],
)
def test_refuses_what_has_no_w12_form(weight):
    with pytest.raises(ValueError, match=r"w12: weight is .*expected torch\.bfloat16"):
        w12.pack(weight)
    assert not w12.can_pack((1 << 17, 1 << 16)) and w12.can_pack((1 << 16, 1 << 16))


def outlying(*positions):
    """A packed [20, 7] weight with exceptions at these positions."""
    weight = torch.full((20, 7), 0.5, dtype=torch.bfloat16)
    weight.view(-1)[list(positions)] = 1e30
    return w12.pack(weight)


def edited(packed, field, index, value):
    array = getattr(packed, field).numpy().copy()
    array[index] = value
    return replace(packed, **{field: torch.from_numpy(array)}, name="layer.weight")


GOOD = outlying(3, 50, 139)
BROKEN = {
    "code 0 with a mantissa": (
        edited(edited(GOOD, "high", (2, 0), 7), "low", (2, 1), 5),
        r"\(2, 1\) has code 0 with mantissa 5",
    ),
    "padding nibble": (
        edited(GOOD, "high", (4, 3), GOOD.high[4, 3].item() | 0x10),
        "padding nibble of row 4",
    ),
    "base": (edited(GOOD, "base", 1, 128), "base of band 1 is 128"),
    "equal positions": (edited(GOOD, "exc_pos", 1, 3), "do not ascend at exception 1"),
    "falling positions": (edited(GOOD, "exc_pos", 1, 139), "do not ascend at exception 2"),
    "position out of range": (edited(GOOD, "exc_pos", 2, 140), "exception 2 is at position 140 of 140"),
    "largest position": (edited(GOOD, "exc_pos", 2, 2**32 - 1), "position 4294967295"),
    "exception over a word": (edited(GOOD, "exc_pos", 0, 4), "exception 0 at position 4 has a word"),
    "turned": (replace(GOOD, low=GOOD.low.T.contiguous(), name="layer.weight"), r"w12_low is .*\[7, 20\]"),
    "short": (replace(GOOD, high=GOOD.high[:-1], name="layer.weight"), "w12_high"),
    "bands": (replace(GOOD, base=GOOD.base[:1], name="layer.weight"), "w12_base"),
    "lengths": (replace(GOOD, exc_val=GOOD.exc_val[:2], name="layer.weight"), "w12_exc_val"),
    "dtype": (
        replace(GOOD, exc_pos=GOOD.exc_pos.view(torch.int32), name="layer.weight"),
        "w12_exc_pos is torch.int32",
    ),
    "shape": (replace(GOOD, shape=(140,), name="layer.weight"), "has no w12 form"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_arrays_are_refused_by_name(fault):
    packed, message = BROKEN[fault]
    with pytest.raises(CheckpointError, match=f"tensor layer.weight: .*{message}"):
        w12.unpack(packed)


def test_random_arrays_are_read_within_bounds():
    """Whatever the arrays hold, the answer is a tensor that packs to them again, or an error."""
    rng = np.random.default_rng(0)
    for trial in range(300):
        rows, k, exceptions = rng.integers(1, 40), rng.integers(1, 40), rng.integers(0, 6)
        arrays = [
            torch.from_numpy(rng.integers(0, 1 << bits, shape, dtype=np.uint32).astype(f"u{bytes_}"))
            for (_, shape), bits, bytes_ in zip(
                w12.layout((rows, k), exceptions).values(),
                (8, 8, 7, trial % 32 + 1, 16),
                (1, 1, 1, 4, 2),
                strict=True,
            )
        ]
        try:
            w12.unpack(w12.PackedWeight(*arrays, (int(rows), int(k))))
        except CheckpointError:
            continue


def test_verify_names_the_first_difference():
    weight = gaussian(40, 33)
    packed = w12.pack(weight)
    for position in (1319, 700):
        weight.view(torch.int16).view(-1)[position] ^= 1
        with pytest.raises(CheckpointError, match=f"weight at position {position} does not come back"):
            w12.verify(packed, weight)
    with pytest.raises(CheckpointError, match="packed from"):
        w12.verify(packed, weight.T)
