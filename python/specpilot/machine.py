"""Facts about the build and the machine: what `specpilot info` and every benchmark report print."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil
import torch

from . import _C, devices

DRIVER = Path("/sys/module/nvidia/version")
SMI = {
    "gpu": "name",
    "driver": "driver_version",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "watts": "power.draw",
    "celsius": "temperature.gpu",
}


def cpu_model() -> str:
    """The CPU's own name, or the architecture where there is none."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def release() -> str:
    """The package's version; "source" when it runs from a source tree without being installed."""
    try:
        return importlib.metadata.version("specpilot")
    except importlib.metadata.PackageNotFoundError:
        return "source"


def machine_identity(device: torch.device) -> dict[str, Any]:
    """What step times depend on, besides build and models: the key of tables of measured costs."""
    if device.type == "cpu":
        return {"cpu": cpu_model(), "tier": _C.active_tier(), "threads": _C.threads()}
    known = devices.facts()
    gpu = known.gpus[device.index or 0]
    return {"gpu": gpu.name, "capability": gpu.capability, "sms": gpu.sms, "driver": _driver(known)}


def _driver(known: devices.Facts) -> str:
    """The driver's version; where that cannot be seen, the CUDA version it supports."""
    try:
        return DRIVER.read_text().strip()
    except OSError:
        return f"CUDA {devices.cuda_version(known.driver)}"


def output(command: list[str]) -> str:
    """What a command prints; "" if it fails, or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def smi(gpu: str = "0") -> dict[str, str]:
    """What nvidia-smi says now about a GPU (index or UUID), by the names of ``SMI``; {} where there is no nvidia-smi."""
    query = f"--query-gpu={','.join(SMI.values())}"
    said = output(["nvidia-smi", query, "--format=csv,noheader,nounits", "-i", gpu])
    values = [v.strip() for v in said.split(",")]
    return dict(zip(SMI, values, strict=True)) if len(values) == len(SMI) else {}


def clocks(device: torch.device) -> dict[str, str]:
    """Clocks now, in MHz: those of a GPU's SMs and memory, or that of the fastest CPU core; {} where nobody tells."""
    if device.type == "cuda":  # by UUID: nvidia-smi numbers GPUs without regard to CUDA_VISIBLE_DEVICES
        said = smi(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        return {k: said[k] for k in ("sm_mhz", "memory_mhz") if k in said}
    try:
        cores = psutil.cpu_freq(percpu=True) or []
    except (NotImplementedError, OSError):
        cores = []
    return {"cpu_mhz": f"{max(core.current for core in cores):.0f}"} if cores else {}


def _cuda(known: devices.Facts) -> str:
    if not known.runtime:
        return "not built (SPECPILOT_CUDA=ON pip install . builds it)"
    built = f"{devices.cuda_version(known.runtime)}, code for {known.archs}"
    return built if known.gpus else f"{built}; {devices.obstacle(0, known)}"


def _gpu(index: int, known: devices.Facts) -> str:
    gpu = known.gpus[index]
    fit = devices.obstacle(index, known)
    return (
        f"cuda:{index} {gpu.name}, compute capability {gpu.capability}, {gpu.sms} SMs, {gpu.memory / 2**30:.0f} GiB, "
        + (f"cannot be used: {fit}" if fit else "can be used")
    )


def describe(bandwidth: bool = False) -> dict[str, Any]:
    """Build, CPU, tiers, threads, GPUs, library versions and variant tables; with ``bandwidth``, measured GB/s (about a second)."""
    known = devices.facts()
    facts: dict[str, Any] = {
        "version": release(),
        "build": _C.build_flags,
        "cuda": _cuda(known),
        "cpu": cpu_model(),
        "tier": _C.active_tier()
        + ("" if _C.active_tier() == _C.machine_tier() else f" (machine: {_C.machine_tier()})"),
        "order_id": _C.order_id,
        "cuda_order_id": _C.cuda_order_id,
        "threads": _C.threads(),
        "torch": importlib.metadata.version("torch"),
        "transformers": importlib.metadata.version("transformers"),
        "gpus": [_gpu(i, known) for i in range(len(known.gpus))],
        "variants": {
            op: [{"name": n, "order_id": o, "runs": r} for n, o, r in _C.variants(op)] for op in _C.ops()
        },
    }
    if bandwidth:
        facts["memory_bandwidth_gbps"] = _C.memory_bandwidth() / 1e9
    return facts
