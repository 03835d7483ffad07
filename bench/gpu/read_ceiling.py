"""How fast a buffer can be read or copied at all, in the same kind of graph as everything else: the ceilings of the tables."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import median

import torch
from timing import Recorded
from torch import Tensor

from specpilot.fetch import cache_dir

SOURCE = Path(__file__).with_name("read.cu")
DIRECT, BULK = 0, 1
BLOCKS_PER_SM = {DIRECT: (1, 2, 4), BULK: (1, 2)}  # as many as fit at most


def reader(buffers: Sequence[Tensor], device: str) -> Recorded:
    """The fastest of our kernels for one read of each of ``buffers`` (contiguous, of one size, a multiple of 16 bytes)."""
    if device != "cuda":
        return Recorded(lambda i: _sum(buffers[i]), len(buffers), device)
    properties = torch.cuda.get_device_properties(0)
    kinds = (DIRECT, BULK) if properties.major >= 9 else (DIRECT,)
    tries = [
        Recorded(_read(buffers, kind, per_sm * properties.multi_processor_count), len(buffers), device)
        for kind in kinds
        for per_sm in BLOCKS_PER_SM[kind]
    ]
    return min(tries, key=lambda recorded: median(recorded.us() for _ in range(5)))


def copier(buffers: Sequence[Tensor], device: str) -> Recorded:
    """torch's copy of the first half of each buffer to its second half: as many bytes moved as ``reader`` reads."""
    halves = [b.view(torch.uint8).view(2, -1) for b in buffers]
    return Recorded(lambda i: halves[i][1].copy_(halves[i][0]), len(buffers), device)


def _sum(buffer: Tensor) -> Tensor:
    return buffer.view(torch.uint8).sum(dtype=torch.int64)


def _read(buffers: Sequence[Tensor], kind: int, blocks: int) -> Callable[[int], None]:
    read, sink = _library().sp_read, torch.zeros(1, dtype=torch.int32, device="cuda")
    for b in buffers:
        if not b.is_contiguous() or b.nbytes % 16 or b.data_ptr() % 16:
            raise ValueError(
                f"reader: a buffer of {b.nbytes} bytes, expected a contiguous one of a multiple of 16 bytes"
            )

    def call(i: int) -> None:
        b, stream = buffers[i], torch.cuda.current_stream().cuda_stream
        error = read(b.data_ptr(), b.nbytes, sink.data_ptr(), kind, blocks, stream)
        if error:
            raise RuntimeError(f"sp_read of {b.nbytes} bytes with {blocks} blocks: CUDA error {error}")

    return call


@cache
def _library() -> ctypes.CDLL:
    """``read.cu`` compiled for the GPU at hand; kept in the cache directory under a name of source and architecture."""
    major, minor = torch.cuda.get_device_capability(0)
    arch = f"{major}{minor}" + "a" * (major >= 9)
    library = ctypes.CDLL(str(build(arch)))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.sp_read.argtypes = [pointer, size, pointer, ctypes.c_int, ctypes.c_int, pointer]
    library.sp_read.restype = ctypes.c_int
    return library


def build(arch: str) -> Path:
    """The shared library of ``read.cu`` for an architecture ("90a"), compiled by nvcc unless it is in the cache."""
    name = hashlib.sha256(SOURCE.read_bytes() + arch.encode()).hexdigest()[:16]
    path = cache_dir() / f"bench-read-{name}.so"
    if path.exists():
        return path
    nvcc = shutil.which("nvcc")
    if not nvcc:
        raise RuntimeError(
            "the read ceiling is measured by bench/gpu/read.cu, which needs nvcc: put it on PATH"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    options = [
        "-std=c++20",
        "-O3",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        f"-gencode=arch=compute_{arch},code=sm_{arch}",
    ]
    done = subprocess.run([nvcc, *options, "-o", str(part), str(SOURCE)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvcc could not compile {SOURCE}:\n{done.stderr}")
    part.replace(path)
    return path
