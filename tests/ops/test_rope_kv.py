import pytest
import torch
from conftest import cpu_variants

from specpilot import ops
from specpilot.ref import rope_kv as ref


@pytest.mark.parametrize("variant", cpu_variants("rope_kv"))
def test_against_torch(variant, assert_bits_equal):
    rows, hq, hkv, dim, padded = 5, 4, 2, 80, 96
    qkv = torch.randn(rows, (hq + 2 * hkv) * dim).bfloat16()
    cos, sin = torch.randn(50, dim // 2).bfloat16(), torch.randn(50, dim // 2).bfloat16()
    positions = torch.tensor([3, 49, 0, 7, 8], dtype=torch.int32)
    slots = torch.tensor([0, 17, -1, 95, 32], dtype=torch.int32)
    q_out = torch.full((rows, hq, padded), torch.nan, dtype=torch.bfloat16)
    k_cache = torch.full((3, hkv, 2, padded // 2, 32), torch.nan, dtype=torch.bfloat16)
    v_cache = torch.full((3, hkv, 16, 2 * padded), torch.nan, dtype=torch.bfloat16)
    ops.rope_kv(
        qkv,
        cos,
        sin,
        positions,
        slots,
        None,
        None,
        0.0,
        float(dim),
        dim,
        q_out,
        k_cache,
        v_cache,
        variant=variant,
    )
    q, k, v = qkv.view(rows, -1, dim).split([hq, hkv, hkv], dim=1)
    pad = (0, padded - dim)
    assert_bits_equal(q_out, torch.nn.functional.pad(ref.rotate(q, cos, sin, positions), pad), "q")
    keys, values = (torch.full((96, hkv, padded), torch.nan, dtype=torch.bfloat16) for _ in range(2))
    keep = slots >= 0
    keys[slots[keep].long()] = torch.nn.functional.pad(ref.rotate(k, cos, sin, positions), pad)[keep]
    values[slots[keep].long()] = torch.nn.functional.pad(v, pad)[keep]
    assert_bits_equal(ref.keys(k_cache), keys, "k")
    assert_bits_equal(ref.values(v_cache), values, "v")
