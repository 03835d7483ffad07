import torch

from specpilot import ops


def test_chain():
    def i32(*values):
        return torch.tensor(values, dtype=torch.int32)

    path, emitted, length = (torch.empty(1, 4, dtype=torch.int32) for _ in range(3))
    ops.accept(i32(0, 4), i32(5, 6, 7, 8), i32(-1, 0, 1, 2), i32(6, 7, 9, 1), path, emitted, length[0, :1])
    assert path[0].tolist() == [0, 1, 2, -1] and emitted[0].tolist() == [6, 7, 9, -1] and length[0, 0] == 3
