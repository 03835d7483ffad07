"""Shared helpers: bit comparison that names the first difference, and variants with a listed reason when they cannot run."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import torch

from specpilot import _C, cli, ops, zoo
from specpilot.formats import CheckpointError

# A suite started in the background inherits an ignored Ctrl-C; tests of interrupts, and their children, need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

INT_VIEW = {2: torch.int16, 4: torch.int32, 1: torch.uint8, 8: torch.int64}


def _assert_bits_equal(got: torch.Tensor, want: torch.Tensor, what: str = "") -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, (
        f"{what}: {got.shape} {got.dtype} against {want.shape} {want.dtype}"
    )
    view = INT_VIEW[got.element_size()]
    a, b = got.contiguous().view(view), want.contiguous().view(view)
    if torch.equal(a, b):
        return
    at = tuple(int(i) for i in (a != b).nonzero()[0])
    count = int((a != b).sum())
    raise AssertionError(
        f"{what}: {count} of {a.numel()} differ, first at {at}: {got[at].item()!r} against {want[at].item()!r}"
    )


@pytest.fixture
def assert_bits_equal():
    return _assert_bits_equal


def bf16_ulps(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Distance of two bf16 tensors in units of the last place; both zeros are one number."""

    def ordinal(t: torch.Tensor) -> torch.Tensor:
        bits = t.contiguous().view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return (ordinal(got) - ordinal(want)).abs()


@pytest.fixture
def threads():
    """``threads(n)`` sets the pool size; restored afterwards."""
    before = _C.threads()
    yield _C.set_threads
    _C.set_threads(before)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model's file, fetched on first use."""
    try:
        return zoo.resolve_target(zoo.DEFAULT_TARGET, progress=False)
    except CheckpointError as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A directory of the test module."""
    return tmp_path_factory.mktemp("module")


@pytest.fixture(scope="module")
def target(root) -> Path:
    """A tiny random target on disk; its tests leave it as it is."""
    import tiny_engines  # needs transformers and dflash, which few tests do

    return tiny_engines.save_target(root / "target")


@pytest.fixture(scope="module")
def drafter(root) -> Path:
    """A tiny random drafter of ``target``."""
    import tiny_engines

    return tiny_engines.save_drafter(root / "drafter")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """``run(*arguments)`` → (exit code, standard output, standard error) of the command line."""
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECPILOT_TRACEBACK", raising=False)

    def call(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specpilot", *map(str, arguments)])
        with pytest.raises(SystemExit) as e:
            cli.main()
        return e.value.code or 0, *capsys.readouterr()

    return call


def variants(op: str, kind: str = "") -> list:
    """pytest parameters for every variant of an op (of a kind: "cpu" or "cuda"); those this machine cannot run are skipped with the
    reason."""
    params = []
    for name, _order, runs in _C.variants(op):
        if name.startswith(kind):
            needs = "a GPU" if name.startswith("cuda") else f"a better CPU than {_C.machine_tier()}"
            mark = () if runs else pytest.mark.skip(reason=f"{op}: {name} needs {needs}")
            params.append(pytest.param(name, marks=mark, id=name))
    missing = pytest.mark.skip(reason=f"{op}: no {kind} variant in this build")
    return params or [pytest.param(kind, marks=missing, id=kind)]


def cpu_variants(op: str) -> list:
    return variants(op, "cpu")


class Anywhere:
    """The ops, on the device of their variant: a CUDA variant gets copies of the CPU tensors' whole memory, which is copied back.

    So strides and overlaps stay as they are, and a write outside of an output shows as it does on the CPU.
    """

    def __getattr__(self, name: str):
        op = getattr(ops, name)

        def call(*args, variant: str = "") -> None:
            if not variant.startswith("cuda"):
                return op(*args, variant=variant)
            memory = {}  # of a CPU storage → (the storage as bytes, its copy)

            def moved(x):
                if not isinstance(x, torch.Tensor):
                    return x
                storage = x.untyped_storage()
                if storage.data_ptr() not in memory:
                    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
                    memory[storage.data_ptr()] = whole, whole.cuda()
                copy = memory[storage.data_ptr()][1].untyped_storage()
                empty = torch.empty(0, dtype=x.dtype, device="cuda")
                return empty.set_(copy, x.storage_offset(), x.shape, x.stride())

            op(*map(moved, args), variant=variant)
            for whole, copy in memory.values():
                whole.copy_(copy)

        return call


anywhere = Anywhere()
