"""A safetensors file with w12 weights, read as the file that was packed: docs/format.md."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import torch

from . import w12
from .errors import CheckpointError
from .safetensors_file import TORCH_DTYPE, SafetensorsReader, as_bytes
from .safetensors_header import Header, TensorInfo, parse_header, parse_json
from .w12_config import VERSION, VERSION_KEY, check_version

HEADER_KEY, SHA256_KEY, CRC32_KEY = "w12_header", "w12_sha256", "w12_crc32"
REMEDY = "pack the original again, or get a fresh copy of the file"
_ARRAY = re.compile(rf"\.w12_({'|'.join(w12.FIELDS)})\Z")


def array_name(name: str, field: str) -> str:
    return f"{name}.w12_{field}"


def is_array_name(name: str) -> bool:
    return _ARRAY.search(name) is not None


def checksum(data: torch.Tensor) -> str:
    """CRC-32 of a tensor's bytes, as metadata holds it."""
    return f"{zlib.crc32(as_bytes(data)):08x}"


class W12File:
    """Names, shapes and values are those of the original file, ``original`` is its header, ``sha256`` that of its bytes.

    Opening checks every array's type and shape; reading a tensor checks its contents.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = SafetensorsReader(path)
        except CheckpointError as e:
            raise CheckpointError(f"{e}; {REMEDY}") from e
        metadata = self._file.header.metadata
        version = metadata.get(VERSION_KEY)
        if version is None:
            raise CheckpointError(
                f"{path}: config.json says w12, but the file holds no {VERSION_KEY} in its metadata; {REMEDY}"
            )
        check_version(VERSION if version == str(VERSION) else version, str(path))
        missing = next((key for key in (HEADER_KEY, SHA256_KEY, CRC32_KEY) if key not in metadata), None)
        if missing:
            raise self._broken(f"no {missing} in its metadata")
        self.sha256, self._crc32 = metadata[SHA256_KEY], parse_json(*_utf8(path, metadata, CRC32_KEY))
        self.original: Header = parse_header(*_utf8(path, metadata, HEADER_KEY))
        self._packed = {name for name, info in self.original.tensors.items() if self._check(name, info)}
        self._check_left_over()

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor of the original file: typed as there, or its bytes where it is of no type of a weight."""
        info = self.original.tensors[name]
        if name in self._packed:
            try:
                value = w12.unpack(w12.read_packed(self._file, name, info.shape))
            except CheckpointError as e:
                raise CheckpointError(f"{self.path}: {e}; {REMEDY}") from e
        else:
            value = self._file.get_tensor(name) if info.dtype in TORCH_DTYPE else self._file.bytes(name)
        if checksum(value) != self._crc32.get(name):
            raise self._broken(f"tensor {name}: its values do not have the checksum that was stored")
        return value

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> W12File:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check(self, name: str, original: TensorInfo) -> bool:
        """Whether the tensor is packed; raises unless its place or all of its arrays are there, as they must be."""
        stored = self._file.header.tensors
        if name in stored:
            if stored[name][:2] != original[:2]:
                raise self._broken(f"tensor {name}: {_said(stored[name])}, expected {_said(original)}")
            return False
        if original.dtype != "BF16" or not w12.can_pack(original.shape):
            raise self._broken(f"tensor {name} is missing")
        count = stored.get(array_name(name, "exc_pos"))
        exceptions = count.shape[0] if count and len(count.shape) == 1 else 0
        for field, (dtype, shape) in w12.layout(original.shape, exceptions).items():
            found = stored.get(array_name(name, field))
            if found is None:
                raise self._broken(f"tensor {name}: array w12_{field} is missing")
            if found[:2] != (dtype, shape):
                raise self._broken(
                    f"tensor {name}: array w12_{field} is {_said(found)}, expected {dtype} {list(shape)}"
                )
        return True

    def _check_left_over(self) -> None:
        known = set(self.original.tensors) - self._packed
        known |= {array_name(name, field) for name in self._packed for field in w12.FIELDS}
        extra = next((name for name in self._file.header.tensors if name not in known), None)
        if extra is not None:
            raise self._broken(f"{extra} belongs to no tensor of the original file")

    def _broken(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}; {REMEDY}")


def _utf8(path: Path, metadata: dict[str, str], key: str) -> tuple[bytes, str]:
    try:
        return metadata[key].encode(), f"{path}: {key}"
    except UnicodeEncodeError as e:
        raise CheckpointError(f"{path}: {key} is no text; {REMEDY}") from e


def _said(info: TensorInfo) -> str:
    return f"{info.dtype} {list(info.shape)}"
