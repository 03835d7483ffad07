"""capture(): nothing runs while recording, everything runs on replay, and recording ends whatever happens."""

from __future__ import annotations

import pytest
import torch

from specpilot import _C, ops


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
