"""The memory plan: what an engine will take, compared with what there is, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

# Bits a weight in memory. w12: measured 12.01 to 12.05 on usual models; q8: its 12-bit `fc` counted.
BITS = {"bf16": 16.0, "w12": 12.1, "q8": 8.5}
CGROUP = Path("/sys/fs/cgroup")
CPU = torch.device("cpu")
KERNELS = (
    512 << 20
)  # bytes on a GPU: code, workspaces of kernels (80 MiB for attention, 8 for linear_q8), captured graphs


def weight_bytes(bf16_bytes: int, weights: str) -> int:
    """Memory of a checkpoint's tensors in a format of memory."""
    return int(bf16_bytes * BITS[weights] / 16)


def available(device: torch.device) -> int:
    """Bytes that this process may still take of a device's memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # blocks that torch keeps for later are free, though the driver does not know
        return torch.cuda.mem_get_info(device)[0]
    return _host_available()


def _host_available() -> int:
    """Free memory of the machine, or of the process's control group if that is less."""
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
    """Bytes by purpose, in the memory of one device, and what to do where it has less."""

    device: torch.device
    parts: Mapping[str, int]
    remedies: str

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def check(self, source: str) -> None:
        """Raises MemoryError, with the numbers and the remedies, unless it fits."""
        free = available(self.device)
        if self.total <= free:
            return
        parts = ", ".join(f"{name} {_gb(n)}" for name, n in self.parts.items() if n)
        raise MemoryError(
            f"{source} needs {_gb(self.total)} ({parts}), {_gb(free)} of memory are free on {self.device}: {self.remedies}"
        )


def plans(
    device: torch.device, lasting: Mapping[str, int], buffers: Mapping[str, int], tensor: int
) -> list[MemoryPlan]:
    """What each memory must hold for an engine on a device.

    ``lasting``: weights by purpose; ``buffers``: what is allocated once they are in place; ``tensor``: bytes of the largest
    tensor as bf16. While weights are laid out, two such tensors live beside them, in the room that the buffers take later.
    """
    loading = 2 * tensor
    parts = {**lasting, **buffers, "loading": max(0, loading - sum(buffers.values()))}
    smaller = "use a smaller max_context, weights='w12', a smaller model"
    if device == CPU:
        return [MemoryPlan(CPU, parts, f"{smaller}, or a machine with more memory")]
    return [
        MemoryPlan(
            device,
            {**parts, "kernels": KERNELS},
            f"{smaller}, another GPU (device='cuda:N'), or device='cpu'",
        ),
        MemoryPlan(CPU, {"loading": loading}, "free some: tensors pass through it one at a time"),
    ]


def _gb(n: int) -> str:
    return f"{n / 1e9:.2f} GB"
