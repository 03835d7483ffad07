"""Captured parts of a step, by what varies between steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from .. import ops


class Graphs:
    """Runs op calls that are the same whenever their key is: the first time as they are, from then on as a captured graph."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[Hashable, ops.Graph] = {}

    def run(self, key: Hashable, calls: Callable[[], None]) -> bool:
        """False the first time, which takes longer than the others will."""
        graph = self._graphs.get(key)
        if graph is not None:
            graph.run()
            return True
        calls()  # also what a capture needs: a kernel's first call may load it
        with ops.capture(self._device) as graph:
            calls()
        self._graphs[key] = graph
        return False

    def clear(self) -> None:
        self._graphs.clear()
