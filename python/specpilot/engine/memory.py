"""The memory plan: what an engine will take, compared with what there is, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

# Bits a weight in memory. w12: measured 12.01 to 12.05 on usual models; q8: its 12-bit `fc` counted.
BITS = {"bf16": 16.0, "w12": 12.1, "q8": 8.5}
CGROUP = Path("/sys/fs/cgroup")


def weight_bytes(bf16_bytes: int, weights: str) -> int:
    """Memory of a checkpoint's tensors in a format of memory."""
    return int(bf16_bytes * BITS[weights] / 16)


def available() -> int:
    """Bytes that this process may still take: free memory of the machine, or of its control group if that is less."""
    free = psutil.virtual_memory().available
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text()))
        except (OSError, ValueError):
            continue  # no such hierarchy here, or "max": no limit
    return max(free, 0)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose."""

    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def check(self, source: str, free: int | None = None) -> None:
        """Raises MemoryError, with the numbers and the remedies, unless it fits."""
        free = available() if free is None else free
        if self.total <= free:
            return
        parts = ", ".join(f"{name} {_gb(n)}" for name, n in self.parts.items())
        raise MemoryError(
            f"{source} needs {_gb(self.total)} ({parts}), {_gb(free)} are free: use a smaller max_context, weights='w12', "
            "a smaller model, or a machine with more memory"
        )


def _gb(n: int) -> str:
    return f"{n / 1e9:.2f} GB"
