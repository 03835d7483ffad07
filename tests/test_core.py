"""Thread pool and programs: what every op relies on."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from gpu import DEVICES

from specpilot import _C, ops

BF16 = torch.bfloat16


def swiglu(x):
    y = torch.empty(x.shape[0], x.shape[1] // 2, dtype=BF16)
    ops.swiglu(x, y)
    return y


def test_the_pool_works_in_a_forked_child(threads):
    threads(3)
    x = torch.randn(512, 2048).to(BF16)
    got, want = torch.empty(512, 1024, dtype=BF16), swiglu(x)
    got_bits, want_bits = (t.view(torch.int16).numpy() for t in (got, want))
    pid = os.fork()
    if pid == 0:  # torch's own thread pool does not survive a fork: only our op and numpy here
        ops.swiglu(x, got)
        os._exit(0 if (got_bits == want_bits).all() and _C.threads() == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_calls_from_several_python_threads(threads):
    threads(3)
    inputs = [torch.randn(300, 1024).to(BF16) for _ in range(4)]
    want = [swiglu(x) for x in inputs]
    same = []

    def work(i):
        same.append(all(torch.equal(swiglu(inputs[i]), want[i]) for _ in range(20)))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert same == [True] * 4


def test_the_callers_threads_keep_their_subnormals(threads):
    threads(2)
    tiny = torch.tensor([2.0**-140])
    swiglu(torch.randn(512, 2048).to(BF16))
    assert (tiny * 0.5).item() == 2.0**-141


def test_thread_counts_are_checked():
    for n in (0, -1, 1025):
        with pytest.raises(_C.KernelError, match=f"threads = {n}: expected 1 to 1024"):
            _C.set_threads(n)


def test_a_program_records_and_replays():
    x, y = torch.randn(2, 64).to(BF16), torch.zeros(2, 32, dtype=BF16)
    program = _C.Program()
    program.begin()
    ops.swiglu(x, y)
    program.end()
    assert len(program) == 1 and not y.any()  # recorded, not executed
    for seed in range(3):
        x.copy_(torch.randn(2, 64, generator=torch.Generator().manual_seed(seed)))
        program.run()
        assert torch.equal(y, swiglu(x))


def test_only_one_program_is_recorded_at_a_time():
    program = _C.Program()
    program.begin()
    try:
        with pytest.raises(_C.KernelError, match="another program is being recorded"):
            _C.Program().begin()
    finally:
        program.end()
    with pytest.raises(_C.KernelError, match="not being recorded"):
        program.end()


def test_bandwidth_is_measured():
    assert 1e8 < _C.memory_bandwidth(16, 1) < 1e13


def test_tensors_without_storage_are_refused():
    with pytest.raises((TypeError, RuntimeError), match="no storage|meta"):
        _C.swiglu(torch.empty(2, 64, dtype=BF16, device="meta"), torch.empty(2, 32, dtype=BF16))


CALL = """
import torch
from specpilot import ops
x = torch.ones(2, 64, dtype=torch.bfloat16, device=torch.device({device!r}))
ops.swiglu(x, torch.empty(2, 32, dtype=torch.bfloat16, device=x.device))
"""


def forced(value, device="cpu"):
    """Exit code and the last line on standard error of a process that runs an op under SPECPILOT_FORCE."""
    paths = [p for p in sys.path if p]
    env = {**os.environ, "SPECPILOT_FORCE": value, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", CALL.format(device=device)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.returncode, (done.stderr.splitlines() or [""])[-1]


@pytest.mark.parametrize("value", ["x86-pairs32", "cuda-mma16", "cpu_ref"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_forced_order_leaves_the_other_backend_alone(value, device):
    assert forced(value, device) == (0, "")


def test_an_unknown_order_is_refused_with_those_that_are_known():
    code, said = forced("cuda-mma32")
    assert code == 1 and "SPECPILOT_FORCE=cuda-mma32 is not known" in said
    assert "cpu_avx512_vnni" in said and "x86-pairs32 on the CPU, cuda-mma16 on CUDA" in said
