import torch

from specpilot import ops


def test_swap():
    k, v = torch.randn(2, 2, 1, 2, 16, 32).bfloat16(), torch.randn(2, 2, 1, 16, 64).bfloat16()
    k0, v0 = k.clone(), v.clone()
    a, b = torch.tensor([3, 40, -1], dtype=torch.int32), torch.tensor([40, 3, 5], dtype=torch.int32)
    ops.kv_move(a, b, k, v)
    assert not torch.equal(k, k0)
    assert torch.equal(k[:, 1, :, 0, :, 16:18], k0[:, 0, :, 0, :, 6:8]) and torch.equal(v[:, 0, :, 1, 1::2], v0[:, 1, :, 4, ::2])
    ops.kv_move(a, b, k, v)
    assert torch.equal(k, k0) and torch.equal(v, v0)
