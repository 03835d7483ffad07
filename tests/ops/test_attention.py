"""attention: every variant against the order's model and float64."""

import pytest
import torch
from conftest import cpu_variants
from paged import SHAPES, Batch, Cache, shuffled_table

from specpilot.ref import attention as ref

VARIANTS = cpu_variants("attention")


def ragged(shape, rows=40):
    """Rows of two requests over scattered pages, two in three with a tail."""
    hq, hkv, dim = SHAPES[shape]
    cache = Cache.random(1024, hkv, dim)
    batch = Batch(shuffled_table(2, 384, 16, 1024))
    for r in range(rows):
        tail = torch.randperm(1024)[: int(torch.randint(0, 20, ()))].tolist() if r % 3 else []
        batch.add(r % 2 if r < 30 else 1, int(torch.randint(0, 300, ())), tail)
    return 2 * torch.randn(rows, hq, dim).bfloat16(), cache, batch


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_of_the_reference(variant, shape, assert_bits_equal):
    torch.manual_seed(1)
    q, cache, batch = ragged(shape)
    packed = cache.packed()
    want = batch.attention(q, packed, 0.125, "cpu_ref")
    assert_bits_equal(batch.attention(q, packed, 0.125, variant), want, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_close_to_float64(variant, shape):
    torch.manual_seed(2)
    q, cache, batch = ragged(shape, rows=12)
    out = batch.attention(q, cache.packed(), 0.125, variant)
    for r in range(len(batch)):
        seen = batch.seen(r)
        want = ref.attention(q[r], cache.k[seen], cache.v[seen], 0.125)
        torch.testing.assert_close(out[r].double(), want, rtol=2**-6, atol=2**-8)
