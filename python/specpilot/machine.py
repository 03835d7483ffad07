"""Facts about the build and the machine: what `specpilot info` and every benchmark report print."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from . import _C


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


def describe(bandwidth: bool = False) -> dict[str, Any]:
    """Build, CPU, tiers, threads, GPUs, library versions and variant tables; with ``bandwidth``, measured GB/s (about a second)."""
    gpus = [
        f"{name}, sm_{major}{minor}, {memory / 2**30:.0f} GiB" for name, major, minor, memory in _C.gpus()
    ]
    facts: dict[str, Any] = {
        "version": release(),
        "build": _C.build_flags,
        "cuda": "built" if _C.built_with_cuda else "not built (SPECPILOT_CUDA=ON pip install . builds it)",
        "cpu": cpu_model(),
        "tier": _C.active_tier()
        + ("" if _C.active_tier() == _C.machine_tier() else f" (machine: {_C.machine_tier()})"),
        "order_id": _C.order_id,
        "threads": _C.threads(),
        "torch": importlib.metadata.version("torch"),
        "transformers": importlib.metadata.version("transformers"),
        "gpus": gpus,
        "variants": {
            op: [{"name": n, "order_id": o, "runs": r} for n, o, r in _C.variants(op)] for op in _C.ops()
        },
    }
    if bandwidth:
        facts["memory_bandwidth_gbps"] = _C.memory_bandwidth() / 1e9
    return facts
