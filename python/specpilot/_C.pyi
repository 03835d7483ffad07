"""
SpecPilot's engine: kernels over borrowed torch tensors. Use specpilot.ops, which documents each call.
"""

from __future__ import annotations
import torch
import typing

__all__: list[str] = [
    "KernelError",
    "Program",
    "accept",
    "active_tier",
    "advance",
    "advise_huge_pages",
    "archs_cover",
    "argmax",
    "attention",
    "build_flags",
    "built_with_cuda",
    "cuda_archs",
    "cuda_order_id",
    "cuda_status",
    "embed",
    "gather_rows",
    "gpus",
    "kv_move",
    "linear",
    "linear_cuda_plan",
    "linear_q8",
    "machine_tier",
    "memory_bandwidth",
    "ops",
    "order_id",
    "rmsnorm",
    "rope_kv",
    "run_pack_bf16",
    "run_pack_w12",
    "run_unpack",
    "set_threads",
    "swiglu",
    "threads",
    "variants",
    "w12_first_difference",
    "w12_pack",
    "w12_scan",
    "w12_unpack",
]

class KernelError(RuntimeError):
    pass

class Program:
    """
    A captured sequence of op calls; run() replays it on the same buffers.
    """
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def run(self) -> None: ...

def accept(
    cu_rows: torch.Tensor,
    tokens: torch.Tensor,
    parents: torch.Tensor,
    choice: torch.Tensor,
    path: torch.Tensor,
    emitted: torch.Tensor,
    length: torch.Tensor,
    variant: str = "",
) -> None: ...
def active_tier() -> str:
    """
    Best CPU tier in use: the machine's, or SPECPILOT_FORCE's.
    """

def advance(
    state: torch.Tensor,
    emitted: torch.Tensor,
    length: torch.Tensor,
    margins: torch.Tensor | None,
    stop_ids: torch.Tensor,
    slot_table: torch.Tensor,
    chain: torch.Tensor,
    block: torch.Tensor | None,
    causal: torch.Tensor | None,
    context: torch.Tensor | None,
    ring: torch.Tensor,
    variant: str = "",
) -> None: ...
def advise_huge_pages(tensor: torch.Tensor) -> None:
    """
    Asks the system for huge pages under a CPU tensor that has not been written yet.
    """

def archs_cover(
    archs: str,
    major: typing.SupportsInt | typing.SupportsIndex,
    minor: typing.SupportsInt | typing.SupportsIndex,
) -> bool:
    """
    Whether code for these architectures ("80-real,90a-real") runs on a GPU of this compute capability.
    """

def argmax(
    logits: torch.Tensor,
    valid_vocab: typing.SupportsInt | typing.SupportsIndex,
    ids: torch.Tensor,
    margin: torch.Tensor | None = None,
    variant: str = "",
) -> None: ...
def attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_table: torch.Tensor,
    request: torch.Tensor,
    prefix: torch.Tensor,
    tail_begin: torch.Tensor | None,
    tail_slots: torch.Tensor | None,
    scale: typing.SupportsFloat | typing.SupportsIndex,
    dim: typing.SupportsInt | typing.SupportsIndex,
    out: torch.Tensor,
    variant: str = "",
) -> None: ...
def cuda_status() -> tuple[str, int, int]:
    """
    (why no GPU is seen, in the CUDA runtime's words, or ""; newest CUDA of the driver, 1000 major + 10 minor, 0 without a driver; CUDA of the build, 0 without).
    """

def embed(
    ids: torch.Tensor,
    data: torch.Tensor,
    base: torch.Tensor | None,
    exc_begin: torch.Tensor | None,
    exc_pos: torch.Tensor | None,
    exc_val: torch.Tensor | None,
    n: typing.SupportsInt | typing.SupportsIndex,
    out: torch.Tensor,
    variant: str = "",
) -> None: ...
def gather_rows(
    x: torch.Tensor, index: torch.Tensor | None, out: torch.Tensor, variant: str = ""
) -> None: ...
def gpus() -> list[tuple[str, int, int, int, int, bool]]:
    """
    (name, compute capability major, minor, memory bytes, SMs, whether this build has code for it) of each GPU; empty without CUDA in the build.
    """

def kv_move(
    from_slots: torch.Tensor,
    to_slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    variant: str = "",
) -> None: ...
def linear(
    x: torch.Tensor,
    data: torch.Tensor,
    base: torch.Tensor | None,
    exc_begin: torch.Tensor | None,
    exc_pos: torch.Tensor | None,
    exc_val: torch.Tensor | None,
    n: typing.SupportsInt | typing.SupportsIndex,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    y: torch.Tensor,
    variant: str = "",
) -> None: ...
def linear_cuda_plan(
    n: typing.SupportsInt | typing.SupportsIndex, k: typing.SupportsInt | typing.SupportsIndex
) -> tuple[int, int, int, int, int]:
    """
    How CUDA cuts a weight: row groups, k steps, tiles of a row group, segments of k, row groups of a block.
    """

def linear_q8(
    x: torch.Tensor,
    data: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    y: torch.Tensor,
    variant: str = "",
) -> None: ...
def machine_tier() -> str:
    """
    Best CPU tier of this machine.
    """

def memory_bandwidth(
    mebibytes: typing.SupportsInt | typing.SupportsIndex = 256,
    repeats: typing.SupportsInt | typing.SupportsIndex = 3,
) -> float:
    """
    Measured read bandwidth of all threads together, bytes per second.
    """

def ops() -> list[str]:
    """
    Names of all ops.
    """

def rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: typing.SupportsFloat | typing.SupportsIndex,
    denom: typing.SupportsFloat | typing.SupportsIndex,
    y: torch.Tensor,
    variant: str = "",
) -> None: ...
def rope_kv(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: typing.SupportsFloat | typing.SupportsIndex,
    norm_denom: typing.SupportsFloat | typing.SupportsIndex,
    dim: typing.SupportsInt | typing.SupportsIndex,
    q_out: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    variant: str = "",
) -> None: ...
def run_pack_bf16(weight: torch.Tensor, data: torch.Tensor) -> None:
    """
    bf16 [N, K] to the bf16 run layout.
    """

def run_pack_w12(
    weight: torch.Tensor,
    base: torch.Tensor,
    exc_begin: torch.Tensor,
    data: torch.Tensor,
    exc_pos: torch.Tensor,
    exc_val: torch.Tensor,
) -> None:
    """
    bf16 [N, K], scanned, to the w12 run layout.
    """

def run_unpack(
    data: torch.Tensor,
    base: torch.Tensor | None,
    exc_begin: torch.Tensor | None,
    exc_pos: torch.Tensor | None,
    exc_val: torch.Tensor | None,
    weight: torch.Tensor,
) -> None:
    """
    Either run layout to bf16 [N, K].
    """

def set_threads(n: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Threads of the CPU backend, 1 to 1024.
    """

def swiglu(gate_up: torch.Tensor, y: torch.Tensor, variant: str = "") -> None: ...
def threads() -> int:
    """
    Threads of the CPU backend.
    """

def variants(op: str) -> list[tuple[str, str, bool]]:
    """
    (name, order id, runs on this machine) of each variant of an op, best first.
    """

def w12_first_difference(
    low: torch.Tensor,
    high: torch.Tensor,
    base: torch.Tensor,
    exc_pos: torch.Tensor,
    exc_val: torch.Tensor,
    weight: torch.Tensor,
) -> int:
    """
    Position of the first weight that the w12 arrays do not give back; -1 when there is none.
    """

def w12_pack(
    weight: torch.Tensor,
    base: torch.Tensor,
    begin: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    exc_pos: torch.Tensor,
    exc_val: torch.Tensor,
) -> None:
    """
    A scanned bf16 weight to the w12 arrays of a file.
    """

def w12_scan(weight: torch.Tensor, base: torch.Tensor, begin: torch.Tensor) -> int:
    """
    Fills the base of each band and the running number of exceptions; returns their total.
    """

def w12_unpack(
    low: torch.Tensor,
    high: torch.Tensor,
    base: torch.Tensor,
    exc_pos: torch.Tensor,
    exc_val: torch.Tensor,
    weight: torch.Tensor,
) -> None:
    """
    The w12 arrays of a file to bf16.
    """

build_flags: str = "GNU 12.2.0 Release "
built_with_cuda: bool = False
cuda_archs: str = ""
cuda_order_id: str = "cuda-mma16"
order_id: str = "x86-pairs32"
