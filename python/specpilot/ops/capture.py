"""Records op calls for replay: a captured step runs by one call, as a CUDA graph does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import _C


class Graph:
    """Op calls in the order they were made, with their buffers' addresses: the caller keeps those buffers alive."""

    def __init__(self) -> None:
        self._program = _C.Program()

    def run(self) -> None:
        """Executes the calls on what the buffers hold now."""
        self._program.run()

    def __len__(self) -> int:
        return len(self._program)


@contextmanager
def capture() -> Iterator[Graph]:
    """``with capture() as graph: …`` records this thread's op calls; arguments are checked, nothing is executed.

    Recording ends with the block, also by an exception. Captures do not nest.
    """
    graph = Graph()
    graph._program.begin()
    try:
        yield graph
    finally:
        graph._program.end()
