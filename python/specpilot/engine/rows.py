"""The int32 inputs of a ragged call: one entry a row, at fixed addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .kv_cache import PAGE, PagePool


def _ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


class SlotTable:
    """Which slot each position of a request lies in; pages are taken as positions come into use."""

    def __init__(self, pool: PagePool, requests: int, max_len: int) -> None:
        self.tensor = _ints(requests, -(-max_len // PAGE) * PAGE)
        self.numpy = self.tensor.numpy()
        self._pool = pool
        self._pages: list[list[int]] = [[] for _ in range(requests)]
        self._lanes = np.arange(PAGE, dtype=np.int32)

    def reserve(self, request: int, length: int) -> None:
        """Makes positions [0, length) of a request writable."""
        pages = self._pages[request]
        while len(pages) * PAGE < length:
            page, at = self._pool.take(), len(pages) * PAGE
            np.add(self._lanes, page * PAGE, out=self.numpy[request, at : at + PAGE])
            pages.append(page)

    def release(self, request: int) -> None:
        """Gives all pages of a request back."""
        self._pool.give(self._pages[request])
        self._pages[request].clear()


@dataclass(frozen=True)
class _Host:
    """The same memory as numpy arrays: filling those costs a fifth of a torch call."""

    ids: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    request: np.ndarray
    prefix: np.ndarray


class Rows:
    """Rows of one call.

    ``ids``, ``positions``, ``slots``, ``request``, ``prefix``: int32 [capacity].  ``slot_table``: int32 [requests, positions].
    Row i sees positions [0, prefix[i]) of its request; ``tail_begin`` [capacity + 1] and ``tail_slots`` follow where they are
    given (trees), and are None for chains.
    """

    def __init__(self, capacity: int, table: SlotTable, tail: int = 0) -> None:
        self.table = table
        self.slot_table = table.tensor
        self.ids, self.positions, self.slots = _ints(capacity), _ints(capacity), _ints(capacity)
        self.request, self.prefix = _ints(capacity), _ints(capacity)
        self.tail_begin = _ints(capacity + 1) if tail else None
        self.tail_slots = _ints(tail) if tail else None
        self.host = _Host(
            *(t.numpy() for t in (self.ids, self.positions, self.slots, self.request, self.prefix))
        )
        self._count = np.arange(self.slot_table.shape[1] + 1, dtype=np.int32)

    @property
    def capacity(self) -> int:
        return self.ids.shape[0]

    def put(self, ids: Sequence[int]) -> None:
        """Token ids of the first rows."""
        self.host.ids[: len(ids)] = ids

    def chain(self, start: int, n: int, request: int = 0) -> None:
        """n consecutive positions from ``start``, each seeing everything up to itself. Does not touch ``ids``."""
        self.place(start, n, request)
        self.host.prefix[:n] = self._count[start + 1 : start + n + 1]

    def block(self, start: int, n: int, request: int = 0) -> None:
        """n consecutive positions from ``start``, all seeing each other and everything before. Does not touch ``ids``."""
        self.place(start, n, request)
        self.host.prefix[:n] = start + n

    def place(self, start: int, n: int, request: int = 0) -> None:
        """Positions, slots and request of n consecutive positions: all that a call without attention needs."""
        self.table.reserve(request, start + n)
        self.host.positions[:n] = self._count[start : start + n]
        self.host.slots[:n] = self.table.numpy[request, start : start + n]
        self.host.request[:n] = request
