"""rope_kv: every variant against the order's model, torch and transformers; a row sees only itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import variants
from paged import int32
from rope_call import BF16, DIMS, POSITIONS, SLOTS, Call
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm, apply_rotary_pos_emb

from specpilot import _C, ops
from specpilot.ref import rope_kv as ref
from specpilot.ref.rmsnorm import rmsnorm_lanes16

VARIANTS = variants("rope_kv")


@pytest.fixture
def same(assert_bits_equal):
    """Bits of all three outputs; which NaN a NaN is, is nobody's business."""

    def check(got, want, what=""):
        for name, a, b in zip(("q_out", "k_cache", "v_cache"), got, want, strict=True):
            a, b = (torch.where(t.isnan(), torch.nan, t) for t in (a, b))
            assert_bits_equal(a, b, f"{name} {what}")

    return check


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("shape", DIMS)
def test_bits_of_the_reference(variant, norm, shape, same):
    for rows in (0, 1, 2, 3, 16, 65, 200):
        for name, slots in SLOTS.items():
            call = Call.random(shape, rows, slots(rows), norm)
            same(call.run(variant), call.run("cpu_ref"), f"{rows} rows, slots {name}")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("shape", DIMS)
def test_against_torch(variant, norm, shape, same):
    call = Call.random(shape, 33, norm=norm)
    q, k, _ = call.split()
    if call.norms:
        q, k = (
            rmsnorm_lanes16(x.flatten(0, 1), w, call.eps, x.shape[2]).view(x.shape)
            for x, w in zip((q, k), call.norms, strict=True)
        )
    q, k = (ref.rotate(x, call.cos, call.sin, call.positions) for x in (q, k))
    same(call.run(variant), call.expected(q, k))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
def test_against_transformers(variant, norm, same):
    """Bits without norms; theirs sums the squares in another order, so that an ulp before the rotation may differ."""
    call = Call.random("32x8x128", 20, norm=norm)
    q, k, _ = call.split()
    if call.norms:
        q, k = (theirs_normed(x, w, call.eps) for x, w in zip((q, k), call.norms, strict=True))
    cos, sin = (t[call.positions.long()].repeat(1, 2) for t in (call.cos, call.sin))
    q, k = apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1)
    got, want = call.run(variant), call.expected(q, k)
    if not norm:
        return same(got, want)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2**-6, atol=2**-6, equal_nan=True)
        assert (a.nan_to_num() != b.nan_to_num()).double().mean() < 1e-3


def theirs_normed(x, weight, eps):
    norm = Qwen3RMSNorm(x.shape[-1], eps).to(BF16)
    with torch.no_grad():
        norm.weight.copy_(weight)
        return norm(x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", ["9x3x64", "6x2x80"])
@pytest.mark.parametrize("slots", SLOTS)
def test_a_row_does_not_see_its_neighbours(variant, shape, slots, same):
    call = Call.random(shape, 1024, SLOTS[slots](1024), norm=shape == "6x2x80")
    q_out, *caches = call.outputs()
    for r in range(1024):
        call.rows(slice(r, r + 1)).run(variant, [q_out[r : r + 1], *caches])
    keys, values = ref.keys(caches[0]), ref.values(caches[1])
    for count in [*range(1, 65), 65, 200, 1024]:
        first = call.rows(slice(count))
        stale = torch.ones(len(keys), 1, 1, dtype=torch.bool)
        stale[first.slots[first.slots >= 0].long()] = False
        k, v = (t.masked_fill(stale, torch.nan) for t in (keys, values))
        want = [q_out[:count], ref.pack_keys(k), ref.pack_values(v)]
        same(first.run(variant), want, f"the first {count} rows")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
def test_threads_do_not_matter(variant, threads_used, threads, same):
    threads(threads_used)
    for shape, slots in (
        ("9x3x64", "in order"),
        ("9x3x64", "shuffled"),
        ("32x8x128", "in order from an odd one"),
    ):
        call = Call.random(shape, 500, SLOTS[slots](500), norm=shape == "32x8x128")
        want = call.run("cpu_ref")
        for _ in range(3):
            same(call.run(variant), want, f"{shape}, slots {slots}, {threads_used} threads")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_without_a_slot_writes_nothing(variant):
    call = Call.random("6x2x80", 9)
    call.slots.fill_(-1)
    _, k_cache, v_cache = call.run(variant)
    assert k_cache.isnan().all() and v_cache.isnan().all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_a_wider_buffer(variant, same):
    call = Call.random("9x3x64", 9)
    wide = torch.full((9, call.qkv.shape[1] + 50), 3.0).to(BF16)
    wide[:, 11:-39] = call.qkv
    same(replace(call, qkv=wide[:, 11:-39]).run(variant), call.run(variant))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
def test_any_bits_as_in_the_reference(variant, norm, same):
    """Every kind of number: NaN, infinities, subnormals (zero in arithmetic, kept in values), both zeros."""
    for shape in DIMS:
        call = Call.random(shape, 40, norm=norm)
        for x in (call.qkv, call.cos, call.sin, *(call.norms or ())):
            x.copy_(torch.randint(-32768, 32768, x.shape).to(torch.int16).view(BF16))
        same(call.run(variant), call.run("cpu_ref"), shape)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
def test_special_values_stay_where_they_are(variant, norm, same):
    clean = Call.random("4x4x16", 12, torch.arange(12).int(), norm)
    spoiled = replace(clean, qkv=clean.qkv.clone())
    for row, head, value in ((2, 1, torch.nan), (5, 4, torch.inf), (8, 9, torch.nan), (9, 3, 1e-39)):
        spoiled.split()[0 if head < 4 else 1 if head < 8 else 2][row, head % 4] = value
    (q, *caches), (want_q, *want_caches) = spoiled.run(variant), clean.run(variant)
    k, v, want_k, want_v = (
        f(t[i]) for t in (caches, want_caches) for i, f in enumerate((ref.keys, ref.values))
    )
    assert q[2, 1, :16].isnan().all() and k[5, 0, :16].isnan().any() and v[8, 1, :16].isnan().all()
    assert not q[9, 3].any()
    for got, want, at in ((q, want_q, [(2, 1), (9, 3)]), (k, want_k, [(5, 0)]), (v, want_v, [(8, 1)])):
        for i in at:
            got[i] = want[i]
    same([q, k, v], [want_q, want_k, want_v])


@pytest.mark.parametrize("variant", variants("rope_kv", "cuda"))
def test_cuda_writes_nothing_for_what_is_out_of_range(variant, same):
    call = Call.random("9x3x64", 6, int32([4, 64, -2, 5, 6, 2**31 - 1]))
    call.blocks = 2
    call.positions[3:5] = int32([POSITIONS, -1])
    want_q = replace(call, positions=call.positions.clamp(0, POSITIONS - 1), slots=call.slots * 0 - 1).run()[
        0
    ]
    want_q[3:5] = torch.nan
    caches = call.rows(slice(1)).run()[1:]
    same(call.run(variant), [want_q, *caches])


INDEX_ERRORS = [
    ("positions", [0, POSITIONS, 2], r"positions\[1\] is 300; expected 0 to 299"),
    ("positions", [-1, 1, 2], r"positions\[0\] is -1"),
    ("slots", [0, 1, 64], r"slots\[2\] is 64; expected -1 \(none\) to 63"),
    ("slots", [0, -2, 1], r"slots\[1\] is -2"),
    ("slots", [9, 1, 9], "slots holds slot 9 twice"),
    ("slots", [-1, 5, 5], "slots holds slot 5 twice"),
]


def test_a_replayed_program_checks_what_it_reads(same):
    call = Call.random("9x3x64", 3, int32([4, 5, 6]))
    out = call.outputs()
    with ops.capture() as graph:
        call.run(out=out)
    call.positions.copy_(int32([299, 0, 7]))
    call.slots.copy_(int32([-1, 63, 0]))
    graph.run()
    want = call.run("cpu_ref")
    same(out, want)
    for name, bad, message in INDEX_ERRORS:
        tensor = getattr(call, name)
        good = tensor.clone()
        tensor.copy_(int32(bad))
        with pytest.raises(_C.KernelError, match=f"rope_kv: {message}"):
            graph.run()
        tensor.copy_(good)
        same(out, want, "written in spite of the error")
    call.slots.fill_(-1)
    graph.run()


def test_contract_is_checked():
    call = Call.random("9x3x64", 3, int32([4, 5, 6]), norm=True)
    q_out, k_cache, v_cache = call.outputs()
    names = "qkv cos sin positions slots q_norm k_norm eps norm_denom dim q_out k_cache v_cache".split()
    inputs = call.qkv, call.cos, call.sin, call.positions, call.slots, *call.norms
    good = dict(zip(names, (*inputs, 1e-6, 64.0, 64, q_out, k_cache, v_cache), strict=True))
    for name, bad, message in [
        ("qkv", call.qkv.float(), "qkv is float32"),
        ("qkv", call.qkv[:, :-64], r"qkv has 896 columns; expected 9 \+ 2 \* 3 heads of 64"),
        ("qkv", call.qkv.repeat(1, 2)[:, ::2], "qkv is bf16.*unit column stride"),
        ("cos", call.cos[:, :31].contiguous(), r"cos is bf16 \[300, 31\]"),
        ("sin", call.sin[:299], r"sin is bf16 \[299, 32\].*\[300, 32\]"),
        ("positions", call.positions.long(), "positions is int64"),
        ("slots", call.slots[:2], r"slots is int32 \[2\].*\[3\]"),
        ("q_norm", None, "only one of q_norm and k_norm is given"),
        ("k_norm", call.norms[1][:63], r"k_norm is bf16 \[63\].*\[64\]"),
        ("eps", -1.0, "eps is -1"),
        ("norm_denom", 0.0, "norm_denom is 0"),
        ("dim", 63, "dim is 63; expected an even number from 2 to 512"),
        ("dim", 0, "dim is 0"),
        ("dim", 514, "dim is 514"),
        ("q_out", q_out[:2], r"q_out is bf16 \[2, 9, 64\].*\[3, "),
        ("k_cache", k_cache[:, :, :, :16].contiguous(), "k_cache is bf16"),
        ("v_cache", v_cache[:1], r"v_cache is bf16 \[1, 3, 16, 128\].*\[2, 3, 16, 128\]"),
    ]:
        with pytest.raises(_C.KernelError, match=f"rope_kv: {message}"):
            ops.rope_kv(*(good | {name: bad}).values())


def test_operator_registration():
    call = Call.random("4x4x16", 2, int32([4, 5]))
    out = [torch.zeros_like(t) for t in call.outputs()]
    args = call.qkv, call.cos, call.sin, call.positions, call.slots, None, None, 0.0, 16.0, 16, *out
    torch.library.opcheck(torch.ops.specpilot.rope_kv.default, args)
