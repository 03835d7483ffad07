"""CUDA run layouts: bit for bit there and back on either device, and word for word as csrc/formats/w12_cuda.h says."""

import pytest
import torch
from gpu import DEVICES
from w12_model import adversarial, gaussian, tensor_of

from specpilot import _C
from specpilot.formats import cuda_layout

CASES = adversarial()
SHAPES = [(1, 1), (16, 64), (33, 70), (600, 129), (2050, 64), (4100, 65)]


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
    w = weight(4100, 130)
    whole = cuda_layout.pack_w12(w)
    monkeypatch.setattr(cuda_layout, "_AT_ONCE", 1)
    for a, b in zip(whole, cuda_layout.pack_w12(w), strict=True):
        assert torch.equal(a, b)


def test_bases_are_those_of_the_file_format():
    w = torch.cat([weight(64, 70), torch.zeros(16, 70), gaussian(16, 70) * 1e-30]).to(torch.bfloat16)
    base, begin = torch.empty(6, dtype=torch.uint8), torch.empty(7, dtype=torch.int64)
    _C.w12_scan(w, base, begin)
    assert torch.equal(cuda_layout.bases(w), base.int())


def test_words_lie_where_the_kernels_look():
    """One weight at a time, by the formulas of the header."""
    n, k = 600, 129
    w = weight(n, k)
    data, overflow = cuda_layout.pack_w12(w)
    tiles = data.shape[2]
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
