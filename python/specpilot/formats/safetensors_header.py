"""The header of a safetensors file, checked against the file's size before anything is read through it."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from .errors import CheckpointError

MAX_HEADER = 100_000_000  # the limit of the safetensors library
MAX_RANK = 8

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class TensorInfo(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int  # offsets into the data that follows the header
    end: int


class Header(NamedTuple):
    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]
    text: bytes  # the JSON as it lies in the file, padding included

    @property
    def data_begin(self) -> int:
        """Where the tensors' data starts in the file."""
        return 8 + len(self.text)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from an untrusted file."""
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for a writer
            raise CheckpointError(f"{path}: is no regular file")
        size = path.stat().st_size
        if size > MAX_HEADER:
            raise CheckpointError(f"{path}: has {size} bytes; the limit is {MAX_HEADER}")
        return parse_json(path.read_bytes(), str(path))
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror}") from e


def parse_json(text: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise CheckpointError(f"{what}: the key {twice!r} appears twice")
        return found

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as e:
        raise CheckpointError(f"{what}: not valid JSON: {e}") from e
    if not isinstance(value, dict):
        raise CheckpointError(f"{what}: expected a JSON object, found {type(value).__name__}")
    return value


def read_header(path: Path) -> Header:
    """Reads and checks the header: each tensor's bytes lie in the file, without holes or overlaps."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise CheckpointError(f"{path}: {size} bytes are too few for a safetensors file")
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_HEADER:
                raise CheckpointError(
                    f"{path}: declares a header of {length} bytes; the limit is {MAX_HEADER}"
                )
            if length > size - 8:
                raise CheckpointError(
                    f"{path}: cut short in its header ({length} bytes declared, {size - 8} there)"
                )
            text = file.read(length)
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror}") from e
    return parse_header(text, str(path), size - 8 - length)


def parse_header(text: bytes, path: str, data: int | None = None) -> Header:
    """The header of a file with ``data`` bytes of tensors; as many as the tensors take when None."""
    entries = parse_json(text, f"{path}: header")
    metadata = entries.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{path}: __metadata__ must map names to strings")
    tensors = {name: _tensor_info(path, name, entry) for name, entry in entries.items()}
    if data is None:
        data = max((info.end for info in tensors.values()), default=0)

    position = 0
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if info.begin != position:
            fault = "overlaps the tensor before it" if info.begin < position else "leaves a hole before it"
            raise CheckpointError(f"{path}: tensor {name} at bytes {info.begin}…{info.end} {fault}")
        if info.end > data:
            raise CheckpointError(
                f"{path}: cut short: tensor {name} ends at byte {info.end} of the data, {data} there"
            )
        position = info.end
    if position != data:
        raise CheckpointError(f"{path}: {data - position} bytes after the last tensor belong to none")
    return Header(tensors, metadata, text)


def _tensor_info(path: str, name: str, entry: Any) -> TensorInfo:
    def fail(what: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {name}: {what}")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise fail("its header entry must hold dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise fail(f"unknown dtype {dtype!r}")
    if not _naturals(shape) or len(shape) > MAX_RANK:
        raise fail(f"shape {shape!r} is not a list of at most {MAX_RANK} sizes")
    if math.prod(max(size, 1) for size in shape) >= 2**60:  # torch computes strides of empty tensors too
        raise fail(f"shape {shape!r} is too large")
    if not _naturals(offsets) or len(offsets) != 2:
        raise fail(f"data_offsets {offsets!r} are not two positions")
    begin, end = offsets
    nbytes = math.prod(shape) * bits // 8
    if end - begin != nbytes:
        raise fail(f"{dtype} {shape} takes {nbytes} bytes, its offsets {begin}…{end} span {end - begin}")
    return TensorInfo(dtype, tuple(shape), begin, end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 2**63 for v in value)
