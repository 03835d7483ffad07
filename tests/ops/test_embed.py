import torch

from specpilot import ops


def test_bf16_rows():
    w = torch.randn(20, 40).bfloat16()
    padded = torch.zeros(32, 64).bfloat16()
    padded[:20, :40] = w
    data = padded.view(2, 16, 2, 16, 2).permute(0, 2, 3, 1, 4).reshape(2, 2, 16, 32).contiguous()
    out = torch.empty(3, 40).bfloat16()
    ops.embed(torch.tensor([19, 0, 7], dtype=torch.int32), data, None, None, None, None, 20, out)
    assert torch.equal(out, w[[19, 0, 7]])
