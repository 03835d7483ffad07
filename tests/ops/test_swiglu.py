import torch

from specpilot import ops


def test_close_to_float64():
    x = torch.randn(3, 66).bfloat16()
    y = torch.empty(3, 33, dtype=torch.bfloat16)
    ops.swiglu(x, y)
    want = torch.nn.functional.silu(x[:, :33].double()) * x[:, 33:].double()
    torch.testing.assert_close(y.double(), want, rtol=2**-7, atol=0)
