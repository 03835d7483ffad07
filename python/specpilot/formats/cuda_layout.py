"""Weights as the CUDA kernels stream them (csrc/formats/w12_cuda.h), packed by torch on the device where the weight lies."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import _C

TILE_ROWS, TILE_K, HEADER, INLINE, TILE_BYTES = 16, 64, 16, 3, 1552
_LOW = slice(HEADER, HEADER + TILE_ROWS * TILE_K)  # of a tile: low bytes, then nibbles
_HIGH = slice(HEADER + TILE_ROWS * TILE_K, TILE_BYTES)
_LANE = TILE_ROWS * TILE_K // 32  # weights of a lane
_AT_ONCE = 1 << 22  # weights that are packed together: bounds the temporary memory


def pack_bf16(weight: Tensor) -> Tensor:
    """bf16 [n, k] → bf16 [row groups, k steps, tiles, 4, 32, 8]."""
    groups, steps, tiles = _plan(*weight.shape)
    data = weight.new_empty(groups, steps, tiles, 4, 32, 8)
    for part in _parts(groups, weight):
        data[part] = _lanes(_rows(weight, part, tiles), steps, tiles).unflatten(-1, (4, 8)).transpose(3, 4)
    return data


def pack_w12(weight: Tensor) -> tuple[Tensor, Tensor]:
    """bf16 [n, k] → uint8 [row groups, k steps, tiles, 1552] and the overflow list int32 [E]."""
    groups, steps, tiles = _plan(*weight.shape)
    data = torch.empty(groups, steps, tiles, TILE_BYTES, dtype=torch.uint8, device=weight.device)
    overflow, listed = [], 0
    for part in _parts(groups, weight):
        rows = _rows(weight, part, tiles)
        base = bases(rows).view(-1, 1, tiles, 1, 1).expand(-1, steps, -1, 1, 1)
        bits = _lanes(rows, steps, tiles).view(torch.int16).int() & 0xFFFF
        magnitude = bits & 0x7FFF
        code = (magnitude >> 7) - base
        fits = (code >= 1) & (code <= 15)
        kept = fits | (magnitude == 0)
        word = torch.where(fits, code << 7 | magnitude & 127, 0) | torch.where(kept, bits & 0x8000, 0)
        out = data[part]
        low = (word & 255).to(torch.uint8)
        out[..., _LOW] = low.unflatten(-1, (2, 16)).transpose(-3, -2).flatten(-3)
        out[..., _HIGH] = _nibbles(word).flatten(-3)
        header, more = _headers(base, ~kept, bits, listed)
        out[..., :HEADER] = header.view(torch.uint8).view(*out.shape[:3], HEADER)
        overflow.append(more)
        listed += len(more)
    return data, torch.cat(overflow) if overflow else data.new_empty(0, dtype=torch.int32)


def unpack(data: Tensor, overflow: Tensor | None, n: int, k: int) -> Tensor:
    """Either layout → bf16 [n, k]."""
    groups, steps, tiles = _plan(n, k)
    weight = torch.empty(n, k, dtype=torch.bfloat16, device=data.device)
    for part in _parts(groups, weight):
        packed = data[part]
        lanes = packed.transpose(3, 4) if overflow is None else _words(packed, overflow)
        # group, step, tile, g, t, kt, k half, row half, parity → group, tile, row half, g, step, kt, k half, t, parity
        split = lanes.reshape(-1, steps, tiles, 8, 4, 4, 2, 2, 2).permute(0, 2, 7, 3, 1, 5, 6, 4, 8)
        first = part.start * tiles * TILE_ROWS
        rows = split.reshape(-1, steps * TILE_K)[: n - first, :k]
        weight[first : first + len(rows)] = rows
    return weight


def bases(rows: Tensor) -> Tensor:
    """Of each band of 16 rows of bf16 [rows, k], int32 [bands]: the lowest base whose window covers the most non-zero weights."""
    magnitude = rows.view(torch.int16).view(len(rows) // TILE_ROWS, -1).long() & 0x7FFF
    band = torch.arange(len(magnitude), device=rows.device)[:, None]
    field = torch.where(magnitude == 0, 0, magnitude >> 7)  # field 0, the subnormals', is in no window
    count = torch.bincount((band * 256 + field).flatten(), minlength=256 * len(magnitude))
    upto = count.view(-1, 256).cumsum(1)
    covered = upto[:, 15:143] - upto[:, :128]
    return (covered * 128 + torch.arange(127, -1, -1, device=rows.device)).argmax(1).int()


def settle(device: torch.device) -> None:
    """Waits until weights are in place: kernels read theirs before they wait for what is queued ahead of them."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _plan(n: int, k: int) -> tuple[int, int, int]:
    """Row groups, k steps, tiles of a row group."""
    groups, steps, tiles, *_ = _C.linear_cuda_plan(n, k)
    return groups, steps, tiles


def _parts(groups: int, weight: Tensor) -> Iterator[slice]:
    """Row groups that are packed together."""
    count = max(1, _AT_ONCE * groups // max(weight.numel(), 1))
    for first in range(0, groups, count):
        yield slice(first, min(first + count, groups))


def _rows(weight: Tensor, part: slice, tiles: int) -> Tensor:
    """The rows of these row groups, zeros past the weight's end."""
    rows = tiles * TILE_ROWS
    taken = weight[part.start * rows : part.stop * rows]
    return F.pad(taken, (0, 0, 0, (part.stop - part.start) * rows - len(taken))).contiguous()


def _lanes(rows: Tensor, steps: int, tiles: int) -> Tensor:
    """bf16 [row groups * tiles * 16, k] → [row groups, steps, tiles, 32 lanes, 32 weights]."""
    padded = F.pad(rows, (0, steps * TILE_K - rows.shape[1]))
    # group, tile, row half, g, step, kt, k half, t, parity
    split = padded.view(-1, tiles, 2, 8, steps, 4, 2, 4, 2)
    return split.permute(0, 4, 1, 3, 7, 5, 6, 2, 8).reshape(-1, steps, tiles, 32, _LANE)


def _nibbles(word: Tensor) -> Tensor:
    """Words {sign, 0000, code, mantissa} [..., 32] → the bytes of their nibble words, uint8 [..., 4, 4]."""
    sign, upper = word >> 15, word >> 8 & 7
    s, c = sign.unflatten(-1, (4, 2, 4)), upper.unflatten(-1, (4, 2, 4))
    byte = s[..., 0, :] << 7 | c[..., 1, :].roll(-1, -1) << 4 | s[..., 1, :] << 3 | c[..., 0, :]
    return byte.to(torch.uint8)


def _headers(base: Tensor, odd: Tensor, bits: Tensor, listed: int) -> tuple[Tensor, Tensor]:
    """Headers int32 [tiles, 4], and what they leave to the overflow list, which has ``listed`` entries before."""
    odd, bits = odd.flatten(0, 2).flatten(1), bits.flatten(0, 2).flatten(1)
    count = odd.sum(1)
    header = torch.zeros(len(count), 1 + INLINE, dtype=torch.int32, device=bits.device)
    header[:, 0] = base.flatten() | count.int() << 16
    tile, position = odd.nonzero(as_tuple=True)
    entry = (bits[tile, position].long() << 16 | position).to(torch.int32)
    rank = torch.arange(len(tile), device=tile.device) - (count.cumsum(0) - count)[tile]
    few = count[tile] <= INLINE
    header[tile[few], 1 + rank[few]] = entry[few]
    many = torch.where(count > INLINE, count, 0)
    header[:, 1] = torch.where(count > INLINE, (listed + many.cumsum(0) - many).int(), header[:, 1])
    return header, entry[~few]


def _words(data: Tensor, overflow: Tensor) -> Tensor:
    """w12 tiles → bf16 [row groups, steps, tiles, 32 lanes, 32 weights]."""
    shape = data.shape[:3]
    header = data[..., :HEADER].contiguous().view(torch.int32).view(-1, 1 + INLINE)
    low = data[..., _LOW].unflatten(-1, (2, 32, 16)).transpose(-3, -2).flatten(-2).int()
    byte = data[..., _HIGH].unflatten(-1, (32, 4, 4)).int()
    sign = torch.stack((byte >> 7, byte >> 3 & 1), -2).flatten(-3)
    upper = torch.stack((byte & 7, (byte >> 4 & 7).roll(1, -1)), -2).flatten(-3)
    code = upper << 1 | low >> 7
    base = (header[:, 0] & 255).view(*shape, 1, 1)
    bits = sign << 15 | torch.where(code > 0, code + base << 7, 0) | low & 127
    flat = bits.flatten(0, 2).flatten(1)
    count = header[:, 0] >> 16
    for i in range(INLINE):
        tile = ((count > i) & (count <= INLINE)).nonzero()[:, 0]
        _patch(flat, tile, header[tile, 1 + i])
    tile = (count > INLINE).nonzero()[:, 0]
    of = tile.repeat_interleave(count[tile])
    first = count[tile].cumsum(0) - count[tile]
    rank = torch.arange(len(of), device=of.device) - first.repeat_interleave(count[tile])
    _patch(flat, of, overflow[header[of, 1] + rank])
    return flat.to(torch.int16).view(torch.bfloat16).view(*shape, 32, _LANE)


def _patch(bits: Tensor, tile: Tensor, entry: Tensor) -> None:
    bits[tile, entry & 1023] = entry >> 16 & 0xFFFF
