"""The map of the house, enforced: every op has all of its files, none outgrows its budget, the layers do not know each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPS = sorted(p.name for p in (ROOT / "csrc/ops").iterdir() if p.is_dir())
FILES = [
    "csrc/ops/{op}/{op}.h",
    "csrc/ops/{op}/{op}.cpp",
    "csrc/ops/{op}/{op}_ref.cpp",
    "csrc/bind/bind_{op}.cpp",
    "python/specpilot/ops/{op}.py",
    "python/specpilot/ref/{op}.py",
    "tests/ops/test_{op}.py",
    "bench/ops/bench_{op}.cpp",
]
BUDGET = {".py": 300, ".h": 300, ".cpp": 400, ".cu": 600, ".cuh": 600}


def sources(*folders: str) -> list[Path]:
    return [
        p
        for f in folders
        for p in sorted((ROOT / f).rglob("*"))
        if p.suffix in BUDGET and "build" not in p.parts
    ]


@pytest.mark.parametrize("op", OPS)
def test_an_op_is_one_obvious_set_of_files(op):
    assert not [f.format(op=op) for f in FILES if not (ROOT / f.format(op=op)).exists()]
    twin = ROOT / f"csrc/ops/{op}/{op}_cpu_x86.cpp"
    assert twin.exists() or "// no vector twin: " in (ROOT / f"csrc/ops/{op}/{op}.cpp").read_text()


@pytest.mark.parametrize("op", OPS)
def test_a_contract_says_what_it_promises(op):
    text = (ROOT / f"csrc/ops/{op}/{op}.h").read_text()
    assert re.search(r"Determinism: (bit_exact|order_fixed)", text) and "Roofline:" in text


def test_files_stay_small():
    sizes = {
        str(p.relative_to(ROOT)): len(p.read_text().splitlines())
        for p in sources("csrc", "python", "bench", "tests", "examples")
    }
    assert not {p: n for p, n in sizes.items() if n > BUDGET[Path(p).suffix]}


def test_the_engine_knows_neither_python_nor_torch():
    bad = re.compile(r'#include [<"](pybind11|torch/|ATen/|Python\.h|c10/)')
    assert not [str(p) for p in sources("csrc") if "bind" not in p.parts and bad.search(p.read_text())]


LAYERS = {  # folder → packages it must not import
    "models": ("drafters", "verify", "engine"),
    "drafters": ("models", "verify", "engine"),
    "verify": ("models",),
    "formats": ("models", "drafters", "verify", "engine"),
    "ops": ("models", "drafters", "verify", "engine", "formats"),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_do_not_know_each_other(layer):
    pattern = re.compile(rf"^\s*(?:from|import) (?:specpilot\.|\.\.)({'|'.join(LAYERS[layer])})\b", re.M)
    found = [
        f"{p.relative_to(ROOT)}: {m[0].strip()}"
        for p in sources(f"python/specpilot/{layer}")
        for m in pattern.finditer(p.read_text())
    ]
    assert not found


def test_order_fixed_files_fear_no_contraction():
    """One rounding per written operation: the build may not fuse, and no file may ask for fast-math."""
    assert "-ffp-contract=off" in (ROOT / "CMakeLists.txt").read_text()
    fast = re.compile(r"-ffast-math|-Ofast|-ffp-contract=fast")
    assert not [str(p) for p in [*sources("csrc"), ROOT / "CMakeLists.txt"] if fast.search(p.read_text())]


def test_simd_headers_come_before_the_first_target_region():
    """A header compiled inside a region would leave wide copies of its inline functions for the linker to pick."""
    late = []
    for p in sources("csrc"):
        text = p.read_text()
        region = text.find("#pragma GCC target")
        if region >= 0 and "#include" in text[region:]:
            late.append(str(p))
    assert not late
