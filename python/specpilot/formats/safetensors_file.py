"""One safetensors file, read and written tensor by tensor: memory is bounded by the largest tensor, not by the file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from .errors import CheckpointError
from .safetensors_header import DTYPE_BITS, MAX_HEADER, Header, TensorInfo, read_header

TORCH_DTYPE = {
    "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32,
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32,
}  # fmt: skip
_CHUNK = 1 << 28  # one system call moves less than 2 GiB


class SafetensorsReader:
    """Reads by position instead of mapping the file, so that a file that shrinks under it is an error and not a signal."""

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, read_header(path)
        with _reading(path):
            self._file = open(path, "rb", buffering=0)

    def bytes(self, name: str) -> torch.Tensor:
        """The bytes of a tensor as uint8."""
        info = self.header.tensors[name]
        data = torch.empty(info.end - info.begin, dtype=torch.uint8)
        view, done = data.numpy().data, 0
        while done < len(view):
            with _reading(self.path):
                at = self.header.data_begin + info.begin + done
                count = os.preadv(self._file.fileno(), [view[done : done + _CHUNK]], at)
            if count == 0:
                raise CheckpointError(f"{self.path}: cut short in tensor {name}")
            done += count
        return data

    def get_tensor(self, name: str) -> torch.Tensor:
        """A tensor of one of the types in ``TORCH_DTYPE``, in memory of its own."""
        info = self.header.tensors[name]
        return self.bytes(name).view(TORCH_DTYPE[info.dtype]).view(info.shape)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SafetensorsReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SafetensorsWriter:
    """Writes the tensors of a file in any order, each into its place; the header last, once its metadata is known.

    ``tensors`` maps names to (safetensors dtype, shape). ``metadata`` are values as long in JSON as those that ``finish``
    will write. An OSError of the system passes through.
    """

    def __init__(
        self, path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
    ) -> None:
        self._entries: dict[str, object] = {}
        # largest types first, as the safetensors library does: every tensor is aligned to its type
        order = sorted(tensors, key=lambda name: (-DTYPE_BITS[tensors[name][0]], name))
        end = 0
        self._places: dict[str, tuple[int, int]] = {}
        for name in order:
            dtype, shape = tensors[name]
            begin, end = end, end + math.prod(shape) * DTYPE_BITS[dtype] // 8
            self._places[name] = begin, end
            self._entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        header = self._header(metadata)
        if len(header) > MAX_HEADER:
            raise CheckpointError(
                f"{path.name}: its header would take {len(header)} bytes; the limit is {MAX_HEADER}"
            )
        self._data_begin = len(header)
        self.nbytes = len(header) + end
        self._file = open(path, "xb", buffering=0)
        self._file.truncate(self.nbytes)
        write_all(self._file.fileno(), header, 0)

    def write(self, name: str, tensor: torch.Tensor) -> None:
        begin, end = self._places[name]
        data = as_bytes(tensor)
        if len(data) != end - begin:
            raise ValueError(f"{name}: {len(data)} bytes for a place of {end - begin}")
        write_all(self._file.fileno(), data, self._data_begin + begin)

    def finish(self, metadata: dict[str, str]) -> None:
        header = self._header(metadata)
        if len(header) != self._data_begin:
            raise ValueError(f"header of {len(header)} bytes for a place of {self._data_begin}")
        write_all(self._file.fileno(), header, 0)
        os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SafetensorsWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _header(self, metadata: dict[str, str]) -> bytes:
        text = json.dumps({"__metadata__": metadata, **self._entries}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text


def in_file_order(header: Header) -> list[tuple[str, TensorInfo]]:
    """Names and places of the tensors by their position in the file."""
    return sorted(header.tensors.items(), key=lambda item: (item[1].begin, item[1].end))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor."""
    return byte_view(tensor).numpy().data


def byte_view(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes as uint8 [n]."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(fd, view[done : done + _CHUNK], at + done)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror}") from e
