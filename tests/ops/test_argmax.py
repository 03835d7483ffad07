import torch

from specpilot import ops


def test_lowest_of_the_largest():
    x = torch.tensor([[1.0, 3.0, 3.0, 9.0], [torch.nan, -1.0, -2.0, 0.0]]).bfloat16()
    ids = torch.empty(2, dtype=torch.int32)
    ops.argmax(x, 3, ids)
    assert ids.tolist() == [1, 1]
