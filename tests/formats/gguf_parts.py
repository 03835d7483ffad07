"""GGUF files taken to pieces, to be put together wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFReader, GGUFValueType

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = (
    GGUFValueType[n] for n in "UINT8 UINT32 INT32 FLOAT32 BOOL STRING ARRAY UINT64".split()
)
_CODES = {U8: "B", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q"}


def text(value: str | bytes, length: int | None = None) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def number(type_: GGUFValueType, value: float) -> bytes:
    """Type and value of a metadata entry."""
    return struct.pack("<I" + _CODES[type_], type_, value)


def string(value: str | bytes, length: int | None = None) -> bytes:
    return struct.pack("<I", STRING) + text(value, length)


def array(item: int, items: list[bytes], length: int | None = None) -> bytes:
    return struct.pack("<IIQ", ARRAY, item, len(items) if length is None else length) + b"".join(items)


@dataclass
class Parts:
    """A file taken to pieces by the gguf package; ``join`` makes it whole again."""

    metadata: list[tuple[str, bytes]]  # name, and the entry behind the key
    tensors: list[tuple[str, bytes]]  # name, and the entry behind the name
    data: bytes
    magic: bytes = b"GGUF"
    version: int = 3
    counts: tuple[int, int] | None = None
    patch: tuple[int, bytes] | None = None  # bytes of the finished file, and where they come to lie

    @staticmethod
    def of(path: Path) -> Parts:
        reader, content = GGUFReader(path), path.read_bytes()

        def behind(field: Any, name: str) -> bytes:
            size = sum(part.nbytes for part in field.parts)
            return content[field.offset + 8 + len(name.encode()) : field.offset + size]

        keys = [name for name in reader.fields if not name.startswith("GGUF.")]
        return Parts(
            [(key, behind(reader.fields[key], key)) for key in keys],
            [(t.name, behind(t.field, t.name)) for t in reader.tensors],
            content[reader.data_offset :],
        )

    def set(self, key: str, entry: bytes | None) -> None:
        """Replaces or adds a metadata entry; None leaves it out."""
        self.metadata = [item for item in self.metadata if item[0] != key]
        if entry is not None:
            self.metadata.append((key, entry))

    def tensor(
        self, name: str, dims: tuple[int, ...], type_: int, begin: int, rank: int | None = None
    ) -> None:
        entry = struct.pack(f"<I{len(dims)}QIQ", len(dims) if rank is None else rank, *dims, type_, begin)
        self.tensors = [(n, entry if n == name else old) for n, old in self.tensors]

    def info(self, name: str) -> tuple[tuple[int, ...], int, int]:
        """Dims, type and position of a tensor."""
        entry = dict(self.tensors)[name]
        rank = struct.unpack("<I", entry[:4])[0]
        *dims, type_, begin = struct.unpack(f"<{rank}QIQ", entry[4:])
        return tuple(dims), type_, begin

    def head(self) -> bytes:
        tensors, entries = self.counts or (len(self.tensors), len(self.metadata))
        items = b"".join(text(name) + rest for name, rest in [*self.metadata, *self.tensors])
        return self.magic + struct.pack("<IQQ", self.version, tensors, entries) + items

    def join(self) -> bytes:
        head = self.head()
        content = bytearray(head + bytes(-len(head) % 32) + self.data)
        if self.patch:
            content[self.patch[0] : self.patch[0] + len(self.patch[1])] = self.patch[1]
        return bytes(content)


Attack = tuple[Callable[[Parts], Any], tuple[str, ...]]


def kv(key: str, entry: bytes | None) -> Callable[[Parts], Any]:
    return lambda parts: parts.set(key, entry)


def assign(**values: Any) -> Callable[[Parts], Any]:
    return lambda parts: [setattr(parts, key, value) for key, value in values.items()]


def counts(tensors: int = 0, entries: int = 0) -> Callable[[Parts], Any]:
    """Declares so many more than there are."""

    def change(parts: Parts) -> None:
        parts.counts = len(parts.tensors) + tensors, len(parts.metadata) + entries

    return change


def info(name: str, **changes: Any) -> Callable[[Parts], Any]:
    def change(parts: Parts) -> None:
        dims, type_, begin = parts.info(name)
        parts.tensor(name, **{"dims": dims, "type_": type_, "begin": begin, **changes})

    return change


def renamed(old: str, new: str | None) -> Callable[[Parts], Any]:
    """Under another name; None leaves the entry out."""

    def change(parts: Parts) -> None:
        parts.tensors = [(new if n == old else n, rest) for n, rest in parts.tensors if new or n != old]  # type: ignore[misc]

    return change


def tokens(n: int, start: int = 0) -> bytes:
    return array(STRING, [text(f"t{i}") for i in range(start, start + n)])
