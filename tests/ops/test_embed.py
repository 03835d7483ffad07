"""embed: rows of a table packed here, by the words of formats/w12.h, come back bit for bit."""

import functools

import pytest
import torch
from conftest import cpu_variants

from specpilot import _C, ops
from specpilot.ref.embed import embed as embed_ref

VARIANTS = cpu_variants("embed")
FORMATS = ["bf16", "w12"]
BF16 = torch.bfloat16


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


def table(n, k, seed=0):
    """Weights with zeros of both signs and a few values no base can cover."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(n, k, generator=g) * 0.02
    w[torch.rand(n, k, generator=g) < 0.05] = 0.0
    w[torch.rand(n, k, generator=g) < 0.02] = -0.0
    odd = torch.rand(n, k, generator=g) < 0.01
    w[odd] = torch.randn(int(odd.sum()), generator=g) * 1e20
    w[0, k - 1], w[n - 1, 0], w[n - 1, k - 1] = float("nan"), 1e-39, -float("inf")
    return w.to(BF16)


def pack_bf16(w):
    n, k = w.shape
    bands, tiles = -(-n // 16), -(-k // 32)
    padded = torch.zeros(bands * 16, tiles * 32, dtype=BF16)
    padded[:n, :k] = w
    pairs = padded.view(bands, 16, tiles, 16, 2).permute(
        0, 2, 3, 1, 4
    )  # band, tile, pair row, column, parity
    return pairs.reshape(bands, tiles, 16, 32).contiguous()


def pack_w12(w):
    """data, base, exc_begin, exc_pos, exc_val; one weight at a time."""
    pairs = pack_bf16(w).view(torch.int16).int() & 0xFFFF
    bands, tiles = pairs.shape[:2]
    data = torch.zeros(bands, tiles, 768, dtype=torch.uint8)
    base, begin, where, value = [], [0], [], []
    for band in range(bands):
        nonzero = [b for b in pairs[band].flatten().tolist() if b & 0x7FFF]
        fields = torch.tensor([b >> 7 & 255 for b in nonzero] or [1]).bincount(minlength=256)
        base.append(max(range(128), key=lambda b: int(fields[b + 1 : b + 16].sum())))
        for tile in range(tiles):
            for pos, bits in enumerate(pairs[band, tile].flatten().tolist()):
                sign, code, mantissa = bits >> 15, (bits >> 7 & 255) - base[-1], bits & 127
                if bits & 0x7FFF == 0:
                    code = 0
                elif not 1 <= code <= 15:
                    where.append(tile * 512 + pos)
                    value.append(bits)
                    sign = code = mantissa = 0
                pair, column, parity = pos // 32, pos % 32 // 2, pos % 2
                unit, row = divmod(pair, 4)
                byte = 16 * (column // 4) + 8 * (row % 2) + 2 * (column % 4) + parity
                data[band, tile, 192 * unit + 64 * (row // 2) + byte] = (code & 1) << 7 | mantissa
                data[band, tile, 192 * unit + 128 + byte] |= (sign << 3 | code >> 1) << (4 * (row // 2))
        begin.append(len(where))
    values = torch.tensor(value, dtype=torch.int32).to(torch.int16).view(BF16)
    return data, torch.tensor(base, dtype=torch.uint8), i32(begin), i32(where), values


@functools.cache
def packed_table(n, k, fmt):
    w = table(n, k)
    return w, pack_w12(w) if fmt == "w12" else (pack_bf16(w), None, None, None, None)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (17, 33), (40, 7), (31, 100), (33, 192)])
@pytest.mark.parametrize("threads_used", [1, 3])
def test_every_row_comes_back(variant, fmt, shape, threads_used, threads, assert_bits_equal):
    threads(threads_used)
    n, k = shape
    w, packed = packed_table(n, k, fmt)
    assert fmt == "bf16" or n < 2 or len(packed[3]) > 2
    g = torch.Generator().manual_seed(1)
    for ids in (torch.arange(n).int(), torch.randint(0, n, (200,), generator=g).int(), i32([n - 1]), i32([])):
        wide = torch.full((len(ids), k + 8), 3.0).to(BF16)
        ops.embed(ids, *packed, n, wide[:, 5 : 5 + k], variant=variant)
        assert_bits_equal(wide[:, 5 : 5 + k], embed_ref(ids, w), f"{fmt} {shape}")
        assert (wide[:, :5] == 3).all() and (wide[:, 5 + k :] == 3).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_replayed_program_checks_what_it_reads(fmt, assert_bits_equal):
    (w, packed), ids, out = packed_table(20, 40, fmt), i32([0, 1, 2]), torch.empty(3, 40, dtype=BF16)
    program = _C.Program()
    program.begin()
    ops.embed(ids, *packed, 20, out)
    program.end()
    ids.copy_(i32([19, 0, 19]))
    program.run()
    assert_bits_equal(out, embed_ref(ids, w))
    before = out.clone()
    for bad in (-1, 20):
        ids.copy_(i32([3, 4, bad]))
        with pytest.raises(_C.KernelError, match=rf"embed: ids\[2\] is {bad}; expected 0 to 19"):
            program.run()
        assert_bits_equal(out, before, "written in spite of the error")


def test_contract_is_checked():
    w, ids, out = pack_bf16(table(20, 40)), i32([0, 1]), torch.empty(2, 40, dtype=BF16)
    none = (None,) * 4
    for args, message in [
        ((ids.long(), w, *none, 20, out), "ids is int64"),
        ((ids, w, *none, 20, out.float()), "out is float32"),
        ((ids, w, *none, 20, out[:1]), r"out is bf16 \[1, 40\].*\[2, any\]"),
        ((ids, w, *none, 20, torch.empty(2, 65, dtype=BF16)), "bf16 data of a .20, 65. weight"),
        ((ids, w, *none, 33, out), "bf16 data of a .33, 40. weight"),
        ((ids, w.float(), *none, 20, out), "data must be bf16 or uint8"),
        ((ids, w, torch.zeros(2, dtype=torch.uint8), None, None, None, 20, out), "bf16 data takes no base"),
    ]:
        with pytest.raises(_C.KernelError, match=f"embed: {message}"):
            ops.embed(*args)


def test_operator_registration():
    packed = pack_bf16(torch.randn(20, 40).to(BF16))
    args = (i32([3, 4]), packed, None, None, None, None, 20, torch.zeros(2, 40, dtype=BF16))
    torch.library.opcheck(torch.ops.specpilot.embed.default, args)
