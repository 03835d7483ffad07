import torch

from specpilot import ops


def test_rows_and_zeros():
    x, out = torch.randn(4, 5).bfloat16(), torch.randn(3, 9).bfloat16()
    ops.gather_rows(x, torch.tensor([2, -1, 0], dtype=torch.int32), out[:, 2:7])
    assert torch.equal(out[0, 2:7], x[2]) and torch.equal(out[2, 2:7], x[0]) and not out[1, 2:7].any()
