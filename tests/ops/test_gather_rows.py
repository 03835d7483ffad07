"""gather_rows: every bit pattern travels unchanged, out of and into slices of wider buffers."""

import pytest
import torch
from conftest import anywhere as ops
from conftest import variants

from specpilot import _C
from specpilot.ref.gather_rows import gather_rows as gather_ref

VARIANTS = variants("gather_rows")
BF16 = torch.bfloat16


def patterns(rows, cols, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-32768, 32768, (rows, cols), generator=g).to(torch.int16).view(BF16)


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cols", [1, 7, 16, 33, 100, 576, 4096])
@pytest.mark.parametrize("threads_used", [1, 2, 3, 7])
def test_moves(variant, cols, threads_used, threads, assert_bits_equal):
    threads(threads_used)
    g = torch.Generator().manual_seed(cols)
    for rows, count in ((1, 1), (4, 0), (3, 65), (65, 3), (200, 200), (40, 1024)):
        x = patterns(rows, cols)
        for index in (torch.randint(-1, rows, (count,), generator=g).int(), None):
            n = rows if index is None else count
            wide_in, wide_out = patterns(rows, cols + 9, 1), patterns(n, 5 * cols + 3, 2)
            wide_in[:, 4 : 4 + cols] = x
            want = wide_out.clone()
            want[:, cols : 2 * cols] = gather_ref(x, index)
            ops.gather_rows(wide_in[:, 4 : 4 + cols], index, wide_out[:, cols : 2 * cols], variant=variant)
            assert_bits_equal(wide_out, want, f"{rows} rows, {n} taken, index {index is not None}")


@pytest.mark.parametrize("variant", variants("gather_rows", "cuda"))
@pytest.mark.parametrize("cols", [33, 4096])
def test_cuda_gives_nan_for_a_row_that_is_not_there(variant, cols, assert_bits_equal):
    x, out = patterns(4, cols), patterns(5, cols, 1)
    ops.gather_rows(x, i32([3, 4, -2, -1, 2**31 - 1]), out, variant=variant)
    assert_bits_equal(out[::3], torch.stack([x[3], torch.zeros_like(x[0])]))
    assert out[[1, 2, 4]].isnan().all()


def test_no_row_can_be_picked_from_none():
    out = patterns(2, 3)
    ops.gather_rows(patterns(0, 3), i32([-1, -1]), out)
    assert not out.view(torch.int16).any()
    with pytest.raises(_C.KernelError, match=r"index\[0\] is 0; expected -1 to -1"):
        ops.gather_rows(patterns(0, 3), i32([0, -1]), out)


def test_a_replayed_program_checks_what_it_reads(assert_bits_equal):
    x, index, out = patterns(4, 8), i32([0, 1, 2]), patterns(3, 8, 1)
    program = _C.Program()
    program.begin()
    ops.gather_rows(x, index, out)
    program.end()
    index.copy_(i32([3, -1, 0]))
    program.run()
    assert_bits_equal(out, gather_ref(x, index))
    before = out.clone()
    for bad in (4, -2):
        index.copy_(i32([1, 2, bad]))
        with pytest.raises(_C.KernelError, match=rf"gather_rows: index\[2\] is {bad}; expected -1 to 3"):
            program.run()
        assert_bits_equal(out, before, "written in spite of the error")


def test_contract_is_checked():
    x, index, out = patterns(4, 8), i32([0, 1]), patterns(2, 8)
    for args, message in [
        ((x.float(), index, out), "x is float32"),
        ((x, index.long(), out), "index is int64"),
        ((x, index, out[:1]), r"out is bf16 \[1, 8\].*\[2, 8\]"),
        ((x, None, out), r"out is bf16 \[2, 8\].*\[4, 8\]"),
        ((x, index, patterns(2, 7)), r"out is bf16 \[2, 7\].*\[2, 8\]"),
        ((x, index, patterns(8, 2).T), "out is bf16.*unit column stride"),
        ((x, index, out[:1].expand(2, 8)), "out is bf16.*rows overlap"),
    ]:
        with pytest.raises(_C.KernelError, match=f"gather_rows: {message}"):
            ops.gather_rows(*args)


def test_operator_registration():
    for index in (i32([1, -1, 0]), None):
        args = (torch.randn(3, 8).to(BF16), index, torch.zeros(3, 8, dtype=BF16))
        torch.library.opcheck(torch.ops.specpilot.gather_rows.default, args)
