"""The header of a GGUF file, every length checked against the bytes that are left before it is used.

The ``gguf`` package knows the types and dequantises. Its own reader trusts the file's counts, and takes
seconds on a vocabulary that this one reads in a fraction of one.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from .errors import CheckpointError

MAX_RANK = 4  # ggml's
MAX_ALIGNMENT = 1 << 16
MAX_ITEMS = 1 << 22  # of an array; vocabularies have some 10^5
MAX_STRING = 1 << 24  # bytes; chat templates have some 10^4
_VERSIONS = (2, 3)
_SMALLEST_KV = 8 + 4 + 1  # an empty key, a type, one byte
_SMALLEST_TENSOR = 8 + 4 + 4 + 8  # an empty name, no dims, type and offset

_SCALARS = {
    GGUFValueType.UINT8: "B", GGUFValueType.INT8: "b", GGUFValueType.UINT16: "H", GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I", GGUFValueType.INT32: "i", GGUFValueType.FLOAT32: "f", GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q", GGUFValueType.INT64: "q", GGUFValueType.FLOAT64: "d",
}  # fmt: skip


class GgufTensor(NamedTuple):
    shape: tuple[int, ...]  # as torch would print it: GGUF's dims reversed
    type: GGMLQuantizationType
    begin: int  # byte in the file
    nbytes: int


class GgufHeader(NamedTuple):
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_header(path: Path) -> GgufHeader:
    """Reads metadata and tensor infos; each tensor's bytes lie in the file and belong to it alone."""
    try:
        with open(path, "rb", buffering=1 << 20) as file:
            return _parse(_Cursor(path, file, os.fstat(file.fileno()).st_size))
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror}") from e


class _Cursor:
    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.size, self.position, self._file = path, size, 0, file

    def fail(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}")

    def take(self, n: int, what: str) -> bytes:
        if n > self.size - self.position:
            raise self.fail(
                f"cut short in {what}: {n} bytes from byte {self.position} on, the file has {self.size}"
            )
        data = self._file.read(n)
        if len(data) != n:
            raise self.fail(f"cut short in {what} while it was read")
        self.position += n
        return data

    def unpack(self, code: str, what: str, count: int = 1) -> tuple[Any, ...]:
        layout = f"<{count}{code}"
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))

    def number(self, code: str, what: str) -> Any:
        return self.unpack(code, what)[0]

    def string(self, what: str) -> str:
        length = self.number("Q", what)
        if length > MAX_STRING:
            raise self.fail(f"{what} declares {length} bytes; the limit is {MAX_STRING}")
        data = self.take(length, what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.fail(f"{what} is not UTF-8: {e.reason}") from e

    def count(self, n: int, smallest: int, what: str) -> int:
        """A declared number of items that each take at least ``smallest`` bytes."""
        if n > MAX_ITEMS or n * smallest > self.size - self.position:
            raise self.fail(
                f"declares {n} {what}; {self.size - self.position} bytes are left, the limit is {MAX_ITEMS}"
            )
        return n


def _parse(cursor: _Cursor) -> GgufHeader:
    if cursor.take(4, "the magic") != b"GGUF":
        raise cursor.fail("does not begin with GGUF: not a GGUF file")
    version = cursor.number("I", "the version")
    if version not in _VERSIONS:
        big_endian = " (big-endian files are not read)" if version and version & 0xFFFF == 0 else ""
        raise cursor.fail(f"GGUF version {version}{big_endian}, expected one of {_VERSIONS}")
    tensor_count, kv_count = cursor.unpack("Q", "the counts", 2)
    cursor.count(tensor_count, _SMALLEST_TENSOR, "tensors")
    cursor.count(kv_count, _SMALLEST_KV, "metadata entries")

    metadata: dict[str, Any] = {}
    for i in range(kv_count):
        key = cursor.string(f"the key of metadata entry {i}")
        if key in metadata:
            raise cursor.fail(f"metadata {key} appears twice")
        metadata[key] = _value(cursor, cursor.number("I", f"metadata {key}"), f"metadata {key}")
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.fail(
            f"general.alignment is {alignment!r}, expected a power of two up to {MAX_ALIGNMENT}"
        )

    relative: dict[str, GgufTensor] = {}
    for i in range(tensor_count):
        name = cursor.string(f"the name of tensor {i}")
        if name in relative:
            raise cursor.fail(f"tensor {name} appears twice")
        relative[name] = _tensor(cursor, name)
    return GgufHeader(metadata, _placed(cursor, relative, alignment))


def _value(cursor: _Cursor, code: int, what: str) -> Any:
    if code == GGUFValueType.STRING:
        return cursor.string(what)
    if code == GGUFValueType.ARRAY:
        item, length = cursor.number("I", what), cursor.number("Q", what)
        if item == GGUFValueType.STRING:
            return [cursor.string(what) for _ in range(cursor.count(length, 8, f"strings in {what}"))]
        scalar = _SCALARS.get(item)
        if scalar is None:
            raise cursor.fail(f"{what} is an array of unknown type {item}")
        cursor.count(length, struct.calcsize(f"<{scalar}"), f"items in {what}")
        return list(cursor.unpack(scalar, what, length))
    if code not in _SCALARS:
        raise cursor.fail(f"{what} has the unknown type {code}")
    return cursor.number(_SCALARS[GGUFValueType(code)], what)


def _tensor(cursor: _Cursor, name: str) -> GgufTensor:
    what = f"the entry of tensor {name}"
    rank = cursor.number("I", what)
    if not 1 <= rank <= MAX_RANK:
        raise cursor.fail(f"tensor {name} has {rank} dimensions, expected 1 to {MAX_RANK}")
    dims = cursor.unpack("Q", what, rank)
    code, begin = cursor.number("I", what), cursor.number("Q", what)
    try:
        type_ = GGMLQuantizationType(code)
    except ValueError:
        raise cursor.fail(f"tensor {name} has the unknown type {code}") from None
    block, block_bytes = GGML_QUANT_SIZES[type_]
    if dims[0] % block or 0 in dims:
        raise cursor.fail(
            f"tensor {name} has dims {dims}; {type_.name} needs a multiple of {block} in the first"
        )
    return GgufTensor(tuple(reversed(dims)), type_, begin, math.prod(dims) // block * block_bytes)


def _placed(cursor: _Cursor, relative: dict[str, GgufTensor], alignment: int) -> dict[str, GgufTensor]:
    """Absolute positions, once it is sure that the tensors follow each other without holes or overlaps."""

    def aligned(n: int) -> int:
        return -(-n // alignment) * alignment

    start, expected = aligned(cursor.position), 0
    for name, tensor in sorted(relative.items(), key=lambda item: item[1].begin):
        if tensor.begin != expected:
            fault = "overlaps the tensor before it" if tensor.begin < expected else "leaves a hole before it"
            raise cursor.fail(
                f"tensor {name} at byte {tensor.begin} of the data {fault}, expected {expected}"
            )
        end = start + tensor.begin + tensor.nbytes
        if end > cursor.size:
            raise cursor.fail(f"cut short: tensor {name} ends at byte {end}, the file has {cursor.size}")
        expected = aligned(tensor.begin + tensor.nbytes)
    if cursor.size > start + expected:
        raise cursor.fail(f"{cursor.size - start - expected} bytes after the last tensor belong to none")
    return {name: t._replace(begin=start + t.begin) for name, t in relative.items()}
