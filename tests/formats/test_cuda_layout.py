"""CUDA run layouts: bit for bit there and back on either device, and word for word as csrc/formats/w12_cuda.h says."""

import pytest
import torch
from gpu import DEVICES, LINEAR_SHAPES
from hypothesis import given, settings
from hypothesis import strategies as st
from w12_model import adversarial, gaussian, tensor_of

from specpilot import _C
from specpilot.formats import cuda_layout

CASES = adversarial()
SHAPES = [
    (1, 1),
    (16, 64),
    (33, 70),
    (600, 129),
    (2050, 64),
    (4100, 65),
    (4300, 65),
]  # 2 tiles a row group, and 3
BLOCKS, WARPS = 132, 8  # w12_cuda::kBlocks, kMaxWarps


def weight(n, k):
    """Of every kind: zeros of both signs, outliers enough to overflow some headers, subnormals, infinities, NaN."""
    g = torch.Generator().manual_seed(n)
    w = gaussian(n, k)
    w[torch.rand(n, k, generator=g) < 0.05] = -0.0
    w[torch.rand(n, k, generator=g) < 0.003] = 1e20
    w[:, -1] = 1e-39
    w[-1, 0], w[0, 0] = float("nan"), -float("inf")
    return w.to(torch.bfloat16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(device, shape, assert_bits_equal):
    w = weight(*shape)
    data, overflow = cuda_layout.pack_w12(w.to(device))
    assert_bits_equal(cuda_layout.unpack(data, overflow, *shape).cpu(), w, "w12")
    assert_bits_equal(cuda_layout.unpack(cuda_layout.pack_bf16(w.to(device)), None, *shape).cpu(), w, "bf16")


@pytest.mark.parametrize("name", CASES)
def test_adversarial(name, assert_bits_equal):
    w = tensor_of(CASES[name])
    if w.numel():
        assert_bits_equal(cuda_layout.unpack(*cuda_layout.pack_w12(w), *w.shape), w)


def test_parts_do_not_show(monkeypatch):
    w = weight(4300, 130)
    whole = cuda_layout.pack_w12(w)
    monkeypatch.setattr(cuda_layout, "_AT_ONCE", 1)
    for a, b in zip(whole, cuda_layout.pack_w12(w), strict=True):
        assert torch.equal(a, b)


def test_bases_are_those_of_the_file_format():
    w = torch.cat([weight(64, 70), torch.zeros(16, 70), gaussian(16, 70) * 1e-30]).to(torch.bfloat16)
    base, begin = torch.empty(6, dtype=torch.uint8), torch.empty(7, dtype=torch.int64)
    _C.w12_scan(w, base, begin)
    assert torch.equal(cuda_layout.bases(w), base.int())


@pytest.mark.parametrize("n, tiles", [(600, 2), (4300, 3)])
def test_words_lie_where_the_kernels_look(n, tiles):
    """One weight at a time, by the formulas of the header."""
    k = 129
    w = weight(n, k)
    data, overflow = cuda_layout.pack_w12(w)
    assert data.shape[2] == tiles
    base = cuda_layout.bases(torch.nn.functional.pad(w, (0, 0, 0, -n % 16)))
    bits = w.view(torch.int16).int() & 0xFFFF
    g = torch.Generator().manual_seed(5)
    exceptions = 0
    for row, col in zip(
        torch.randint(0, n, (400,), generator=g).tolist(),
        [*torch.randint(0, k, (390,), generator=g).tolist(), *[k - 1] * 10],
        strict=True,
    ):
        tile = data[row // 16 // tiles, col // 64, row // 16 % tiles]
        kt, rest = divmod(col % 64, 16)
        j = 8 * kt + 2 * (rest // 8 * 2 + row % 16 // 8) + rest % 2
        lane = 4 * (row % 8) + rest % 8 // 2
        low = int(tile[16 + j // 16 * 512 + 16 * lane + j % 16])
        word = int(tile[1040 + 16 * lane + 4 * kt :][:4].view(torch.int32)) & 0xFFFFFFFF
        if j % 8 >= 4:
            word = (word << 4 | word >> 28) & 0xFFFFFFFF
        upper = word >> 8 * (j % 4) & 0x87
        header = tile[:16].view(torch.int32).tolist()
        assert header[0] & 255 == base[row // 16]
        count = header[0] >> 16
        listed = header[1 : 1 + count] if count <= 3 else overflow[header[1] : header[1] + count].tolist()
        entries = {e & 1023: e >> 16 & 0xFFFF for e in listed}
        want = int(bits[row, col])
        if 32 * lane + j in entries:
            exceptions += 1
            assert entries[32 * lane + j] == want
        else:
            field = upper << 8 | low
            assert (field + (int(base[row // 16]) << 7) if field & 0x7F80 else field) == want
    assert exceptions > 10 and len(overflow) > 100


def test_bits_per_weight():
    data, overflow = cuda_layout.pack_w12(gaussian(4096, 1024).to(torch.bfloat16))
    assert 8 * (data.nbytes + overflow.nbytes) / (4096 * 1024) < 12.2


def rounds(groups, row_warps):
    """Of blocks, as many at once as the plan is made for."""
    return -(-groups // row_warps // BLOCKS)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 200_000), st.integers(1, 30_000))
def test_a_plan_fits_the_weight_and_a_block(n, k):
    groups, steps, tiles, segments, row_warps = _C.linear_cuda_plan(n, k)
    assert tiles in (2, 3)
    assert groups == -(-n // (16 * tiles)) and steps == -(-k // 64)
    assert 1 <= segments <= steps and 1 <= row_warps * segments <= WARPS
    assert segments == 1 or rounds(groups, row_warps) == 1  # sums of segments are added at a block's end


def test_shapes_of_linear_are_cut_in_every_way():
    plans = [_C.linear_cuda_plan(*shape) for shape in LINEAR_SHAPES]
    kinds = {(tiles, segments > 1, rounds(groups, rw) > 1) for groups, _, tiles, segments, rw in plans}
    assert kinds == {
        (tiles, *cut) for tiles in (2, 3) for cut in ((False, False), (True, False), (False, True))
    }
    shared = {(tiles, segments, rw) for _, _, tiles, segments, rw in plans if segments > 1}
    assert {s for _, s, _ in shared} >= {2, 3, 4, 6, 8} and {rw for *_, rw in shared} >= {1, 2, 4}
    assert {tiles for tiles, segments, rw in shared if segments == 2 and rw > 1} == {2, 3}
    assert any(steps % segments for _, steps, _, segments, _ in plans)  # segments of unlike length
