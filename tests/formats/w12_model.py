"""What w12 means, in numpy and one weight at a time where that is clearer: the oracle of tests/formats."""

import numpy as np
import torch


def bits_of(weight: torch.Tensor) -> np.ndarray:
    return weight.contiguous().view(torch.int16).numpy().view(np.uint16)


def tensor_of(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(bits).view(np.int16)).view(torch.bfloat16)


def base_of(band: np.ndarray) -> int:
    """The lowest b of 0…127 for which most non-zero weights have an exponent field in b + 1 … b + 15."""
    weights = band[(band & 0x7FFF) != 0]
    fields = (weights >> 7) & 0xFF
    covered = [int(((fields >= b + 1) & (fields <= b + 15)).sum()) for b in range(128)]
    return covered.index(max(covered))


def word_of(bits: int, base: int) -> tuple[int, int] | None:
    """(low byte, nibble) of a bf16 pattern; None for an exception."""
    sign, field, mantissa = bits >> 15, bits >> 7 & 0xFF, bits & 0x7F
    if field == 0 and mantissa == 0:
        return 0, sign << 3
    code = field - base
    return ((code & 1) << 7 | mantissa, sign << 3 | code >> 1) if 1 <= code <= 15 else None


def run_layout_w12(bits: np.ndarray) -> dict[str, np.ndarray]:
    """The run layout by its description in csrc/formats/w12.h, place by place."""
    n, k = bits.shape
    bands, tiles = -(-n // 16), -(-k // 32)
    data = np.zeros((bands, tiles, 768), np.uint8)
    base, begin, positions, values = np.zeros(bands, np.uint8), [0], [], []
    for band in range(bands):
        rows = bits[16 * band : 16 * band + 16]
        base[band] = base_of(rows)
        for tile in range(tiles):
            for pair_row in range(16):
                for e in range(32):  # column * 2 + parity
                    r, c = e // 2, tile * 32 + pair_row * 2 + e % 2
                    value = int(rows[r, c]) if r < len(rows) and c < k else 0
                    word = word_of(value, int(base[band]))
                    if word is None:
                        positions.append(tile * 512 + pair_row * 32 + e)
                        values.append(value)
                    low, nibble = word or (0, 0)
                    unit = data[band, tile, pair_row // 4 * 192 :]
                    j = e // 8 * 16 + pair_row % 2 * 8 + e % 8
                    half = pair_row % 4 // 2
                    unit[half * 64 + j] = low
                    unit[128 + j] |= nibble << (4 * half)
        begin.append(len(positions))
    return {
        "data": data,
        "base": base,
        "exc_begin": np.array(begin, np.int32),
        "exc_pos": np.array(positions, np.int32),
        "exc_val": np.array(values, np.uint16),
    }


def disk_w12(bits: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of a file by docs/format.md, weight by weight."""
    *leading, n, k = bits.shape
    groups, half = int(np.prod(leading, dtype=int)), -(-k // 2)
    flat = bits.reshape(groups * n, k)
    low, high = np.zeros((groups * n, k), np.uint8), np.zeros((groups * n, half), np.uint8)
    base, positions = [], []
    for group in range(groups):
        for start in range(0, n, 16):
            rows = range(group * n + start, group * n + min(start + 16, n))
            base.append(base_of(flat[rows.start : rows.stop]))
            for r in rows:
                for c in range(k):
                    word = word_of(int(flat[r, c]), base[-1])
                    if word is None:
                        positions.append(r * k + c)
                        continue
                    low[r, c] = word[0]
                    high[r, c // 2] |= word[1] << (4 * (c % 2))
    return {
        "low": low,
        "high": high,
        "base": np.array(base, np.uint8),
        "exc_pos": np.array(positions, np.uint32),
        "exc_val": flat.reshape(-1)[positions] if positions else np.zeros(0, np.uint16),
    }


def gaussian(n: int, k: int, seed: int = 0, scale: float = 0.02) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, k, generator=generator) * scale).to(torch.bfloat16)


def adversarial() -> dict[str, np.ndarray]:
    """bf16 patterns [N, K] that a careless packer gets wrong."""
    rng = np.random.default_rng(0)
    every = np.arange(65536, dtype=np.uint16)
    normal = bits_of(gaussian(48, 96))
    outliers = normal.copy()
    outliers[np.arange(48), rng.integers(0, 96, 48)] = 0x7180
    untrained = normal.copy()
    untrained[:16] = bits_of(gaussian(16, 96, 1, 1e-20))
    tiny = normal.copy()
    tiny[5, 7], tiny[20, 95], tiny[47, 0] = 0x0001, 0x807F, 0x8000  # subnormals and a negative zero
    return {
        "every pattern": every.reshape(256, 256),
        "every pattern, shuffled": rng.permutation(every).reshape(64, 1024),
        "all zero": np.zeros((17, 33), np.uint16),
        "negative zeros": np.full((16, 64), 0x8000, np.uint16),
        "NaN payloads": (0x7F81 + rng.integers(0, 127, (33, 40))).astype(np.uint16),
        "infinities": np.where(rng.random((16, 40)) < 0.5, 0x7F80, 0xFF80).astype(np.uint16),
        "subnormals": rng.integers(1, 128, (18, 34)).astype(np.uint16),
        "random bits": rng.integers(0, 65536, (31, 7)).astype(np.uint16),
        "one outlier a row": outliers,
        "untrained rows": untrained,
        "tiny among normal": tiny,
        "odd K": normal[:32, :95],
        "N not a multiple of 16": normal[:41],
        "1 x 1": normal[:1, :1],
        "1 x 1 infinity": np.full((1, 1), 0x7F80, np.uint16),
        "one column": normal[:, :1],
        "0 rows": normal[:0],
        "largest fields": (0x7F00 - (rng.integers(0, 20, (16, 32)) << 7)).astype(np.uint16),
    }
