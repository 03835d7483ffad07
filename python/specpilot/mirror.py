"""Tensors that host and device share: the host's side is pinned memory, or the tensor itself where the device is the CPU."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from .moment import moment


def _host_side(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor
    return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=True)


class Mirror:
    """A contiguous tensor and its twin on the host, copied between at stated points; on the CPU both are one and nothing is copied.

    ``tensor``  the device's side, at a fixed address
    ``numpy``   the host's side
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._host = _host_side(tensor)
        self._apart = self._host is not tensor
        self.numpy: NDArray[Any] = self._host.numpy()
        self._uploaded = moment(tensor.device)

    def writable(self) -> NDArray[Any]:
        """The host's side, once no upload reads it any more."""
        self._uploaded.wait()
        return self.numpy

    def upload(self, n: int | None = None) -> None:
        """Host to device, behind what is queued already; the first n entries of the first dim (None: all)."""
        if self._apart:
            self.tensor[:n].copy_(self._host[:n], non_blocking=True)
            self._uploaded.record()

    def download(self) -> None:
        """Device to host, queued; may be captured. Who reads ``numpy`` knows when it has happened."""
        if self._apart:
            self._host.copy_(self.tensor, non_blocking=True)

    def read(self) -> NDArray[Any]:
        """Device to host, and waits for it."""
        if self._apart:
            self._host.copy_(self.tensor)
        return self.numpy
