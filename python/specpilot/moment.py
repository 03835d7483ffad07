"""Points in a device's queue of work, to wait for and to take times between."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import torch


class Moment(Protocol):
    def record(self) -> None:
        """It is now: behind the work queued so far."""

    def wait(self) -> None:
        """Returns when that work is done."""

    def since(self, earlier: Moment) -> float:
        """Seconds between two moments that have come."""


class _HostMoment:
    """Work is done when it is queued."""

    _at = 0.0

    def record(self) -> None:
        self._at = perf_counter()

    def wait(self) -> None:
        pass

    def since(self, earlier: Moment) -> float:
        assert isinstance(earlier, _HostMoment)
        return self._at - earlier._at


class _CudaMoment:
    def __init__(self, device: torch.device) -> None:
        self._device, self._event = device, torch.cuda.Event(enable_timing=True)

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        self._event.synchronize()

    def since(self, earlier: Moment) -> float:
        assert isinstance(earlier, _CudaMoment)
        return earlier._event.elapsed_time(self._event) / 1e3


def moment(device: torch.device) -> Moment:
    return _CudaMoment(device) if device.type == "cuda" else _HostMoment()
