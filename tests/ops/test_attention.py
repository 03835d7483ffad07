import torch

from specpilot import ops
from specpilot.ref import attention as ref
from specpilot.ref import rope_kv as layout


def test_close_to_float64():
    hq, hkv, dim, padded, slots = 6, 2, 80, 96, 512
    k, v = (
        torch.nn.functional.pad(torch.randn(slots, hkv, dim), (0, padded - dim)).bfloat16() for _ in range(2)
    )
    q = torch.nn.functional.pad(torch.randn(3, hq, dim), (0, padded - dim)).bfloat16()
    table = torch.randperm(slots, dtype=torch.int32).view(2, 256)
    request, prefix = (
        torch.tensor([1, 0, 1], dtype=torch.int32),
        torch.tensor([150, 0, 256], dtype=torch.int32),
    )
    out = torch.empty(3, hq * dim, dtype=torch.bfloat16)
    ops.attention(
        q, layout.pack_keys(k), layout.pack_values(v), table, request, prefix, None, None, 0.125, dim, out
    )
    for r in range(3):
        seen = table[request[r], : prefix[r]].long()
        want = (
            ref.attention(q[r], k[seen], v[seen], 0.125)[:, :dim].reshape(-1)
            if len(seen)
            else torch.zeros(hq * dim)
        )
        torch.testing.assert_close(out[r].double(), want.double(), rtol=2**-6, atol=2**-8)
