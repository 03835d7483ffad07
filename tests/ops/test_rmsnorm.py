import torch

from specpilot import ops


def test_close_to_float64():
    x, w = torch.randn(3, 100).bfloat16(), torch.randn(100).bfloat16()
    y = torch.empty_like(x)
    ops.rmsnorm(x, w, 1e-5, 100.0, y)
    want = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * w.double()
    torch.testing.assert_close(y.double(), want, rtol=2**-7, atol=0)
