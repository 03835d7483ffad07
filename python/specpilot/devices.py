"""From "cpu", "cuda", "cuda:1" or "auto" to a device that an engine can live on, or the reason why it cannot."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import _C

log = logging.getLogger("specpilot")
OLDEST = 8  # compute capability 8.0: csrc/core/cuda_info.h
_NAME = re.compile(r"cpu|auto|cuda(?::(\d{1,3}))?")


class DeviceError(RuntimeError):
    """The device is named well, but cannot be used here; the message says why, and what to do."""


class Gpu(NamedTuple):
    """A GPU that this process sees; ``runs``: the build has code for it."""

    name: str
    major: int
    minor: int
    memory: int  # bytes
    sms: int
    runs: bool

    @property
    def capability(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True)
class Facts:
    """What decides whether a GPU can be used. CUDA versions are 1000 major + 10 minor, 0 for none.

    ``archs`` and ``runtime`` are the build's, ``driver`` is what the driver supports; ``problem`` is why the CUDA runtime sees no
    GPU; ``torch_cuda`` is the CUDA that torch was built with, ``torch_gpus`` how many it sees.
    """

    archs: str
    runtime: int
    driver: int
    problem: str
    gpus: tuple[Gpu, ...]
    torch_cuda: str | None
    torch_gpus: int


def facts() -> Facts:
    """Those of this process. Asks torch only where there is a GPU: it would warn."""
    problem, driver, runtime = _C.cuda_status()
    gpus = tuple(Gpu(*gpu) for gpu in _C.gpus())
    seen = torch.cuda.device_count() if gpus and torch.cuda.is_available() else 0
    return Facts(_C.cuda_archs, runtime, driver, problem, gpus, torch.version.cuda, seen)


def cuda_version(number: int) -> str:
    """13000 → "13.0"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def obstacle(index: int, known: Facts) -> str | None:
    """Why the GPU of this index cannot be used, and the remedy; None if it can."""
    if not known.runtime:
        return "this build of specpilot has no CUDA: build it where nvcc is on PATH: SPECPILOT_CUDA=ON pip install ."
    if not known.gpus:
        return _no_gpu(known)
    if index >= len(known.gpus):
        seen = ", ".join(f"cuda:{i} {gpu.name}" for i, gpu in enumerate(known.gpus))
        return f"this process sees no cuda:{index}, only {seen}{_hidden()}"
    gpu = known.gpus[index]
    is_a = f"cuda:{index} is a {gpu.name} of compute capability {gpu.capability}"
    if gpu.major < OLDEST:
        return f"{is_a}: {OLDEST}.0 or newer is needed; use another GPU, or device='cpu'"
    if not gpu.runs:
        return (
            f"{is_a}, and this build has code for {known.archs} alone: build it on this machine, which compiles for its "
            "GPUs: SPECPILOT_CUDA=ON pip install ."
        )
    if known.torch_cuda is None:
        return f"torch {torch.__version__} was built without CUDA: install one with CUDA (PyPI's wheels for Linux have it)"
    if index >= known.torch_gpus:
        return (
            f"torch {torch.__version__} with CUDA {known.torch_cuda} sees {known.torch_gpus} GPUs, so not cuda:{index}: "
            "install a torch that fits the driver, and try python -c 'import torch; torch.cuda.init()'"
        )
    return None


def _no_gpu(known: Facts) -> str:
    if not known.driver:
        return (
            f"no NVIDIA driver was found ({known.problem}): install one for CUDA {cuda_version(known.runtime)}; in a container, "
            "pass the GPU through (docker run --gpus all)"
        )
    if known.driver // 1000 < known.runtime // 1000:
        return (
            f"the NVIDIA driver supports CUDA {cuda_version(known.driver)} at most, and this build needs CUDA "
            f"{known.runtime // 1000}: update the driver (CUDA 13 needs 580 or newer), or use device='cpu'"
        )
    return f"the driver shows no GPU ({known.problem or 'none found'}){_hidden()}"


def _hidden() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else f"; CUDA_VISIBLE_DEVICES={visible!r} may hide others"


def resolve(device: str) -> torch.device:
    """The device of a name; "auto" is the first GPU that can be used, else the CPU.

    Raises ValueError for another name, DeviceError for a GPU that cannot be used.
    """
    match = _NAME.fullmatch(device) if isinstance(device, str) else None
    if match is None:
        raise ValueError(
            f"device={device!r}, expected 'cpu', 'cuda', 'cuda:N' (the GPU of index N, from 0) or 'auto'"
        )
    if device == "cpu":
        return torch.device("cpu")
    known = facts()
    if device == "auto":
        return _auto(known)
    index = int(match[1] or 0)
    reason = obstacle(index, known)
    if reason:
        raise DeviceError(f"device={device!r} cannot be used: {reason}")
    return torch.device("cuda", index)


def _auto(known: Facts) -> torch.device:
    reasons = [obstacle(i, known) for i in range(max(1, len(known.gpus)))]
    if None in reasons:
        return torch.device("cuda", reasons.index(None))
    # Nobody expects a GPU of a build without CUDA, or of a machine without a driver.
    log.log(
        logging.WARNING if known.driver else logging.DEBUG, "device='auto': using the CPU: %s", reasons[0]
    )
    return torch.device("cpu")
