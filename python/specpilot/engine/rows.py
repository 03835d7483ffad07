"""The int32 inputs of a ragged call: one entry a row, at fixed addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..mirror import Mirror
from .kv_cache import PAGE, PagePool


class SlotTable:
    """Which slot each position of a request lies in; pages are taken as positions come into use."""

    def __init__(
        self, pool: PagePool, requests: int, max_len: int, device: torch.device | str = "cpu"
    ) -> None:
        size = (requests, -(-max_len // PAGE) * PAGE)
        self._mirror = Mirror(torch.zeros(size, dtype=torch.int32, device=device))
        self.tensor, self.numpy = self._mirror.tensor, self._mirror.numpy
        self._pool = pool
        self._pages: list[list[int]] = [[] for _ in range(requests)]
        self._lanes = np.arange(PAGE, dtype=np.int32)

    def reserve(self, request: int, length: int) -> None:
        """Makes positions [0, length) of a request writable."""
        pages = self._pages[request]
        if len(pages) * PAGE >= length:
            return
        table = self._mirror.writable()
        while len(pages) * PAGE < length:
            page, at = self._pool.take(), len(pages) * PAGE
            np.add(self._lanes, page * PAGE, out=table[request, at : at + PAGE])
            pages.append(page)
        self._mirror.upload()

    def release(self, request: int) -> None:
        """Gives all pages of a request back."""
        pages = self._pages[request]
        self._pages[request] = []  # before: an interruption must not leave them in both places
        self._pool.give(pages)


class Rows:
    """Rows of one call.

    ``ids``, ``positions``, ``slots``, ``request``, ``prefix``: int32 [capacity], the planes of ``planes``.  ``slot_table``: int32
    [requests, positions].  Row i sees positions [0, prefix[i]) of its request; ``tail_begin`` [capacity + 1] and ``tail_slots``
    follow where they are given (trees), and are None for chains.

    The calls below fill the first rows from the host and queue their upload; the device may fill them as well (ops.advance).
    """

    def __init__(self, capacity: int, table: SlotTable, tail: int = 0) -> None:
        def ints(*shape: int) -> torch.Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=table.tensor.device)

        self.table = table
        self.slot_table = table.tensor
        self.planes = ints(5, capacity)
        self.ids, self.positions, self.slots, self.request, self.prefix = self.planes
        self.tail_begin = ints(capacity + 1) if tail else None
        self.tail_slots = ints(tail) if tail else None
        # Two mirrors: whoever writes ids need not wait until the places before them are uploaded.
        self._ids, self._places = Mirror(self.planes[0]), Mirror(self.planes[1:])
        self._count = np.arange(self.slot_table.shape[1] + 1, dtype=np.int32)

    @property
    def capacity(self) -> int:
        return self.ids.shape[0]

    def part(self, first: int, n: int) -> torch.Tensor:
        """Rows [first, first + n) of one request, as ``ops.advance`` takes them: int32 [5, 1, n]."""
        return self.planes[:, first : first + n].unsqueeze(1)

    def put(self, ids: Sequence[int]) -> None:
        """Token ids of the first rows."""
        self._ids.writable()[: len(ids)] = ids
        self._ids.upload(len(ids))

    def chain(self, start: int, n: int, request: int = 0) -> None:
        """n consecutive positions from ``start``, each seeing everything up to itself. Does not touch ``ids``."""
        self._place(start, n, request)[3, :n] = self._count[start + 1 : start + n + 1]
        self._places.upload()

    def block(self, start: int, n: int, request: int = 0) -> None:
        """n consecutive positions from ``start``, all seeing each other and everything before. Does not touch ``ids``."""
        self._place(start, n, request)[3, :n] = start + n
        self._places.upload()

    def place(self, start: int, n: int, request: int = 0) -> None:
        """Positions, slots and request of n consecutive positions: all that a call without attention needs."""
        self._place(start, n, request)
        self._places.upload()

    def _place(self, start: int, n: int, request: int) -> np.ndarray:
        """The host's {positions, slots, request, prefix}, all but the last of them set."""
        self.table.reserve(request, start + n)
        places = self._places.writable()
        places[0, :n] = self._count[start : start + n]
        places[1, :n] = self.table.numpy[request, start : start + n]
        places[2, :n] = request
        return places
