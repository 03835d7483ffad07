"""`specpilot pack` and `unpack`: a Hugging Face directory to w12 and back, one tensor in memory at a time."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..progress import ProgressCallback
from .errors import CheckpointError
from .pack_file import Step, TensorReport, pack_file
from .safetensors_dir import SafetensorsDir, read_config, shards
from .safetensors_file import as_bytes, in_file_order, write_all
from .safetensors_header import Header, read_header
from .staging import copy_others, staged, write_file
from .w12_config import check_config, is_w12, marked, unmarked
from .w12_file import REMEDY, W12File


@dataclass(frozen=True)
class PackReport:
    """``bytes_in`` and ``bytes_out`` are the sizes of the safetensors files, headers included."""

    tensors: tuple[TensorReport, ...]
    bytes_in: int
    bytes_out: int

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of all bf16 tensors, packed or not, by their number of elements; 0 where there are none."""
        rows = [row for row in self.tensors if row.is_weight]
        return 8 * sum(row.nbytes for row in rows) / max(1, sum(math.prod(row.shape) for row in rows))


@dataclass(frozen=True)
class UnpackReport:
    """``bytes_out`` is the size of the safetensors files."""

    bytes_out: int


def pack_directory(
    src: str | Path,
    dst: str | Path,
    to_bf16: bool = False,
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> PackReport:
    """Packs the bf16 weights of a model directory into a new directory and verifies every tensor.

    ``src``       config.json and safetensors, one file or shards with their index; links are followed
    ``dst``       must not exist or be empty; ``force`` replaces the model directory that is there
    ``to_bf16``   permits fp16 and fp32 tensors and rounds them; what comes back later is the rounded model

    Everything else is copied, hidden files excepted. Raises :class:`CheckpointError` and leaves nothing at ``dst`` that
    was not there before; the same after an interrupt.
    """
    src, dst = Path(src), Path(dst)
    with staged(src, dst, force) as stage:
        config = read_config(src)
        if is_w12(config):
            raise CheckpointError(f"{src}: is packed already; `specpilot unpack` gives the original back")
        with SafetensorsDir(src, to_bf16):  # says what is missing, and which types it refuses or rounds
            files = list(shards(src))
        step = _stepper(sum(_data_bytes(read_header(path)) for path in files), progress)
        rows, rounded, size = [], False, 0
        for path in files:
            done = pack_file(path, stage / path.name, to_bf16, step)
            rows += done.tensors
            rounded |= done.rounded
            size += done.nbytes
        _copy_rest(src, stage, files, lambda text: marked(text, rounded))
    return PackReport(tuple(rows), sum(path.stat().st_size for path in files), size)


def unpack_directory(
    src: str | Path, dst: str | Path, force: bool = False, progress: ProgressCallback | None = None
) -> UnpackReport:
    """Gives the safetensors files that were packed back, byte for byte, checked by the SHA-256 of the originals.

    Arguments and failures as in :func:`pack_directory`.
    """
    src, dst = Path(src), Path(dst)
    with staged(src, dst, force) as stage:
        config = read_config(src)
        if not is_w12(config):
            raise CheckpointError(f"{src}: was not written by `specpilot pack` (no w12 in its config.json)")
        check_config(config, str(src))
        files = list(shards(src))
        with ExitStack() as stack:
            opened = [stack.enter_context(W12File(path)) for path in files]
            step = _stepper(sum(_data_bytes(file.original) for file in opened), progress)
            size = sum(_unpack_file(file, stage / file.path.name, step) for file in opened)
        _copy_rest(src, stage, files, unmarked)
    return UnpackReport(size)


def _unpack_file(packed: W12File, target: Path, step: Step) -> int:
    header = packed.original
    start = len(header.text).to_bytes(8, "little") + header.text
    digest = hashlib.sha256(start)
    with open(target, "xb", buffering=0) as out:
        write_all(out.fileno(), start, 0)
        for name, info in in_file_order(header):
            data = as_bytes(packed.tensor(name))
            digest.update(data)
            write_all(out.fileno(), data, len(start) + info.begin)
            step(len(data), name)
        if digest.hexdigest() != packed.sha256:
            raise CheckpointError(
                f"{packed.path}: what it unpacks to does not have the SHA-256 of the original file; {REMEDY}"
            )
        os.fsync(out.fileno())
        return out.seek(0, os.SEEK_END)


def _copy_rest(src: Path, stage: Path, files: list[Path], config: Callable[[bytes], bytes]) -> None:
    written = {"config.json", *(path.name for path in files)}
    copy_others(src, stage, lambda name: name in written)
    write_file(stage / "config.json", config((src / "config.json").read_bytes()))


def _data_bytes(header: Header) -> int:
    return sum(info.end - info.begin for info in header.tensors.values())


def _stepper(total: int, progress: ProgressCallback | None) -> Step:
    done = 0

    def step(count: int, item: str) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total, item)

    return step
