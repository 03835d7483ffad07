"""Records op calls for replay: a captured step runs by one call, as a program on the CPU and as a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import torch

from .. import _C


class Graph(Protocol):
    """Op calls in the order they were made, with their buffers' addresses: the caller keeps those buffers alive."""

    def run(self) -> None:
        """Executes the calls on what the buffers hold then; on CUDA it queues them on the current stream."""


class Program:
    """A ``Graph`` of the CPU; its length is the number of calls."""

    def __init__(self) -> None:
        self._program = _C.Program()

    def run(self) -> None:
        self._program.run()

    def __len__(self) -> int:
        return len(self._program)


class CudaGraph:
    """A ``Graph`` of a GPU."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def run(self) -> None:
        self._graph.replay()


@contextmanager
def capture(device: torch.device | str = "cpu") -> Iterator[Graph]:
    """``with capture(device) as graph: …`` records this thread's op calls; arguments are checked, nothing is executed.

    Recording ends with the block, also by an exception. Captures do not nest. The first call of a CUDA kernel may load it, which
    cannot be captured: make each call once before (``Graphs`` does). On CUDA the block may also copy to and from pinned memory, but
    must not allocate.
    """
    device = torch.device(device)
    with _cuda(device) if device.type == "cuda" else _cpu() as graph:
        yield graph


@contextmanager
def _cpu() -> Iterator[Graph]:
    graph = Program()
    graph._program.begin()
    try:
        yield graph
    finally:
        graph._program.end()


@contextmanager
def _cuda(device: torch.device) -> Iterator[Graph]:
    graph, stream = CudaGraph(), torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph._graph.capture_begin(capture_error_mode="thread_local")
        try:
            yield graph
        except BaseException:
            with suppress(
                RuntimeError
            ):  # what is half recorded may be no graph, which is not the error to report
                graph._graph.capture_end()
            raise
        graph._graph.capture_end()
