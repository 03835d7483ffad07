"""capture(): nothing runs while recording, everything runs on replay, and recording ends whatever happens."""

from __future__ import annotations

import pytest
import torch
from gpu import needs_gpu

from specpilot import _C, ops
from specpilot.mirror import Mirror
from specpilot.moment import moment
from specpilot.verify.graphs import Graphs


def test_a_graph_replays_its_calls_on_what_the_buffers_hold():
    x, y, z = (torch.zeros(2, 4, dtype=torch.bfloat16) for _ in range(3))
    with ops.capture() as graph:
        ops.gather_rows(x, None, y)
        ops.gather_rows(y, None, z)
    x.fill_(3)
    assert len(graph) == 2 and not y.any() and not z.any()
    for value in (3, 5):
        x.fill_(value)
        graph.run()
        assert (z == value).all()


def test_recording_ends_by_an_exception():
    x, y = torch.ones(1, 4, dtype=torch.bfloat16), torch.zeros(1, 4, dtype=torch.bfloat16)
    with pytest.raises(ZeroDivisionError), ops.capture():
        raise ZeroDivisionError
    ops.gather_rows(x, None, y)
    assert y.all()


def test_captures_do_not_nest():
    with ops.capture(), pytest.raises(_C.KernelError, match="another program"), ops.capture():
        pass


def test_arguments_are_checked_at_recording_and_contents_at_replay():
    x, index, y = (
        torch.ones(2, 4, dtype=torch.bfloat16),
        torch.tensor([7]).int(),
        torch.zeros(1, 4, dtype=torch.bfloat16),
    )
    with ops.capture() as graph:
        with pytest.raises(_C.KernelError):
            ops.gather_rows(x, index, y[:, :2])
        ops.gather_rows(x, index, y)
    assert len(graph) == 1
    with pytest.raises(_C.KernelError, match="7"):
        graph.run()
    assert not y.any()


def test_graphs_run_their_calls_once_each_time():
    x, counts = (
        torch.ones(1, 4, dtype=torch.bfloat16),
        [torch.zeros(1, 4, dtype=torch.bfloat16) for _ in "ab"],
    )
    graphs = Graphs(torch.device("cpu"))
    for round_ in range(3):
        for i, y in enumerate(counts):
            x.fill_(1 + round_ + 10 * i)
            assert graphs.run(i, lambda y=y: ops.gather_rows(x, None, y)) == (round_ > 0)
            assert (y == x).all()


@needs_gpu
def test_a_cuda_graph_replays_its_calls_and_copies():
    device = torch.device("cuda")
    x, y = (torch.zeros(2, 4, dtype=torch.bfloat16, device=device) for _ in range(2))
    count = Mirror(torch.zeros(4, dtype=torch.int32, device=device))
    graphs, done = Graphs(device), moment(device)

    def calls() -> None:
        ops.gather_rows(x, None, y)
        count.download()

    for value in range(1, 5):
        x.fill_(value)
        count.writable()[:] = [value, 0, 0, 7]
        count.upload(2)
        count.writable()[:] = -1
        graphs.run("copy", calls)
        done.record()
        done.wait()
        assert (y == value).all() and count.numpy.tolist() == [value, 0, 0, 0]
    with pytest.raises(ZeroDivisionError), ops.capture(device):
        raise ZeroDivisionError
    ops.gather_rows(y, None, x)
    assert (x == 4).all()
