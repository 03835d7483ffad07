"""One safetensors file to w12: a first pass over the weights counts exceptions, a second one packs, writes and verifies."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from . import w12
from .errors import CheckpointError
from .safetensors_dir import ROUNDED, is_derived
from .safetensors_file import SafetensorsReader, SafetensorsWriter, as_bytes, byte_view, in_file_order
from .safetensors_header import DTYPE_BITS, Header, TensorInfo
from .w12_config import VERSION, VERSION_KEY
from .w12_file import CRC32_KEY, HEADER_KEY, SHA256_KEY, array_name, checksum, is_array_name

Step = Callable[[int, str], None]  # bytes done since the last call, what they belong to


@dataclass(frozen=True)
class TensorReport:
    """``stored`` is "w12" or a safetensors dtype; ``nbytes`` are those of the arrays in the packed file."""

    name: str
    shape: tuple[int, ...]
    stored: str
    nbytes: int
    exceptions: int

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / max(1, math.prod(self.shape))

    @property
    def is_weight(self) -> bool:
        return self.stored in ("w12", "BF16")


@dataclass(frozen=True)
class PackedFile:
    tensors: list[TensorReport]
    rounded: bool
    nbytes: int


def pack_file(path: Path, target: Path, to_bf16: bool, step: Step) -> PackedFile:
    """Writes ``target``; with ``to_bf16``, fp16 and fp32 tensors are rounded as they are read."""
    with SafetensorsReader(path) as source:
        rounded = to_bf16 and any(_is_rounded(name, info) for name, info in source.header.tensors.items())
        original = _rounded_header(source.header) if rounded else source.header
        reports = [_plan(source, name, info, step) for name, info in original.tensors.items()]
        metadata = {
            VERSION_KEY: str(VERSION),
            HEADER_KEY: original.text.decode(),
            SHA256_KEY: "0" * 64,
            CRC32_KEY: json.dumps(dict.fromkeys(original.tensors, "0" * 8)),
        }
        arrays = {key: value for report in reports for key, value in _arrays(report).items()}
        with SafetensorsWriter(target, arrays, metadata) as writer, SafetensorsReader(target) as written:
            planned = {report.name: report for report in reports}
            digest = hashlib.sha256(len(original.text).to_bytes(8, "little") + original.text)
            crc32 = dict.fromkeys(original.tensors, "")
            for name, info in in_file_order(original):
                value = _read(source, name, info)
                try:
                    _write(writer, written, planned[name], value)
                except CheckpointError as e:
                    raise CheckpointError(f"{path}: {e}") from e
                digest.update(as_bytes(value))
                crc32[name] = checksum(value)
                del value
                step(_second_half(source.header.tensors[name]), name)
            writer.finish(metadata | {SHA256_KEY: digest.hexdigest(), CRC32_KEY: json.dumps(crc32)})
            return PackedFile(reports, rounded, writer.nbytes)


def _plan(source: SafetensorsReader, name: str, info: TensorInfo, step: Step) -> TensorReport:
    """How the tensor will be stored: as w12 where that is smaller."""
    if is_array_name(name):
        raise CheckpointError(
            f"{source.path}: tensor {name}: names that end so are kept for the arrays of w12"
        )
    nbytes = math.prod(info.shape) * DTYPE_BITS[info.dtype] // 8
    report = TensorReport(name, info.shape, info.dtype, nbytes, 0)
    if info.dtype == "BF16" and w12.can_pack(info.shape):
        exceptions = w12.count_exceptions(_read(source, name, info))
        packed = TensorReport(name, info.shape, "w12", _packed_bytes(info.shape, exceptions), exceptions)
        if packed.nbytes < nbytes:
            report = packed
    on_disk = source.header.tensors[name]
    step(on_disk.end - on_disk.begin - _second_half(on_disk), name)
    return report


def _second_half(info: TensorInfo) -> int:
    return (info.end - info.begin) // 2


def _packed_bytes(shape: tuple[int, ...], exceptions: int) -> int:
    arrays = w12.layout(shape, exceptions).values()
    return sum(math.prod(size) * DTYPE_BITS[dtype] // 8 for dtype, size in arrays)


def _arrays(report: TensorReport) -> dict[str, tuple[str, tuple[int, ...]]]:
    if report.stored != "w12":
        return {report.name: (report.stored, report.shape)}
    arrays = w12.layout(report.shape, report.exceptions)
    return {array_name(report.name, field): array for field, array in arrays.items()}


def _write(
    writer: SafetensorsWriter, written: SafetensorsReader, planned: TensorReport, value: torch.Tensor
) -> None:
    """Writes a tensor and compares it with what the file then holds."""
    name = planned.name
    if planned.stored != "w12":
        writer.write(name, value)
        if not torch.equal(byte_view(value), written.bytes(name)):
            raise CheckpointError(f"tensor {name}: the written file holds other values")
        return
    packed = w12.pack(value)
    if packed.exc_pos.numel() != planned.exceptions:
        raise CheckpointError(f"tensor {name}: the file changed while it was being packed")
    for field in w12.FIELDS:
        writer.write(array_name(name, field), getattr(packed, field))
    del packed  # only what was written is looked at
    w12.verify(w12.read_packed(written, name, planned.shape), value)


def _is_rounded(name: str, info: TensorInfo) -> bool:
    return info.dtype in ROUNDED and not is_derived(name)


def _read(source: SafetensorsReader, name: str, wanted: TensorInfo) -> torch.Tensor:
    """The tensor as it will come back; bytes where it is not bf16."""
    if wanted.dtype != "BF16":
        return source.bytes(name)
    return source.get_tensor(name).to(torch.bfloat16)


def _rounded_header(header: Header) -> Header:
    """That of the same file with its weights as bf16."""
    tensors: dict[str, TensorInfo] = {}
    end = 0
    for name, info in in_file_order(header):
        dtype = "BF16" if _is_rounded(name, info) else info.dtype
        begin, end = end, end + math.prod(info.shape) * DTYPE_BITS[dtype] // 8
        tensors[name] = TensorInfo(dtype, info.shape, begin, end)
    entries: dict[str, object] = {"__metadata__": header.metadata} if header.metadata else {}
    for name, info in tensors.items():
        entries[name] = {
            "dtype": info.dtype,
            "shape": list(info.shape),
            "data_offsets": [info.begin, info.end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    return Header(tensors, header.metadata, text + b" " * (-len(text) % 8))
