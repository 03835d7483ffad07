"""Device names against what is there: facts are put in, so that every obstacle is met on every machine."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
import torch
from gpu import needs_gpu

from specpilot import _C, DeviceError, devices, load, machine
from specpilot.devices import Facts, Gpu, resolve

H200 = Gpu("NVIDIA H200", 9, 0, 150 << 30, 132, True)
A10 = Gpu("NVIDIA A10", 8, 6, 24 << 30, 72, False)
V100 = Gpu("Tesla V100", 7, 0, 32 << 30, 80, False)
GOOD = Facts("90a-real", 13000, 13000, "", (H200,), "13.0", 1)


@pytest.fixture
def given(monkeypatch):
    return lambda **changes: monkeypatch.setattr(devices, "facts", lambda: replace(GOOD, **changes))


def test_names(given):
    given(gpus=(H200, H200), torch_gpus=2)
    assert resolve("cpu") == torch.device("cpu")
    assert resolve("cuda") == resolve("cuda:0") == resolve("auto") == torch.device("cuda", 0)
    assert resolve("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize(
    "name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0 ", "CUDA", "", "cpu:0", 0, None]
)
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="expected 'cpu', 'cuda', 'cuda:N'.*or 'auto'") as e:
        resolve(name)
    assert f"device={name!r}" in str(e.value)


OBSTACLES = {  # what stands in the way → (changes of the facts, device, what the message says)
    "no CUDA in the build": (
        {"runtime": 0, "archs": "", "gpus": ()},
        "cuda",
        ["this build of specpilot has no CUDA", "SPECPILOT_CUDA=ON pip install ."],
    ),
    "no driver": (
        {"driver": 0, "gpus": (), "problem": "CUDA driver version is insufficient for CUDA runtime version"},
        "cuda",
        ["no NVIDIA driver was found", "insufficient", "install one for CUDA 13.0", "--gpus all"],
    ),
    "an old driver": (
        {"driver": 12080, "gpus": (), "problem": "CUDA driver version is insufficient for CUDA runtime version"},
        "cuda",
        ["the NVIDIA driver supports CUDA 12.8 at most", "needs CUDA 13", "580 or newer"],
    ),
    "no GPU": (
        {"gpus": (), "problem": "no CUDA-capable device is detected"},
        "cuda",
        ["the driver shows no GPU (no CUDA-capable device is detected)", "CUDA_VISIBLE_DEVICES='7' may hide"],
    ),
    "no such GPU": ({}, "cuda:3", ["sees no cuda:3, only cuda:0 NVIDIA H200", "CUDA_VISIBLE_DEVICES='7'"]),
    "too old": ({"gpus": (V100,)}, "cuda", ["Tesla V100 of compute capability 7.0", "8.0 or newer is needed"]),
    "no code for it": (
        {"gpus": (H200, A10), "torch_gpus": 2},
        "cuda:1",
        ["cuda:1 is a NVIDIA A10 of compute capability 8.6", "code for 90a-real alone", "SPECPILOT_CUDA=ON pip install ."],
    ),
    "torch without CUDA": ({"torch_cuda": None, "torch_gpus": 0}, "cuda", ["was built without CUDA", torch.__version__]),
    "torch that sees none": ({"torch_cuda": "13.2", "torch_gpus": 0}, "cuda", ["with CUDA 13.2 sees 0 GPUs"]),
}  # fmt: skip


@pytest.mark.parametrize("case", OBSTACLES)
def test_a_gpu_that_cannot_be_used_is_refused_with_the_remedy(given, monkeypatch, case):
    changes, name, said = OBSTACLES[case]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    given(**changes)
    with pytest.raises(DeviceError) as e:
        resolve(name)
    assert str(e.value).startswith(f"device={name!r} cannot be used: ")
    assert not [s for s in said if s not in str(e.value)], str(e.value)
    assert resolve("cpu") == torch.device("cpu")


@pytest.mark.parametrize("case", OBSTACLES)
def test_auto_is_the_cpu_where_no_gpu_can_be_used(given, case, caplog):
    changes, name, said = OBSTACLES[case]
    given(**changes)
    with caplog.at_level(logging.WARNING, logger="specpilot"):
        found = resolve("auto")
    usable = case in ("no such GPU", "no code for it")  # cuda:0 is fine there
    assert found.type == ("cuda" if usable else "cpu")
    if case == "no driver":
        assert not caplog.text  # an ordinary machine without a GPU
    elif not usable and changes.get("runtime") != 0:
        assert "device='auto': using the CPU: " in caplog.text and said[0] in caplog.text


def test_auto_takes_the_first_gpu_that_can_be_used(given):
    given(gpus=(V100, A10, H200), torch_gpus=3)
    assert resolve("auto") == torch.device("cuda", 2)


def test_this_process_answers():
    """Whatever is here: an importable package, facts that fit together, and a device for auto."""
    known = devices.facts()
    assert bool(known.runtime) == bool(known.archs) == _C.built_with_cuda
    assert known.torch_gpus <= torch.cuda.device_count()
    assert resolve("auto").type == ("cuda" if devices.obstacle(0, known) is None else "cpu")
    for gpu in known.gpus:
        assert gpu.runs == _C.archs_cover(known.archs, gpu.major, gpu.minor)


@needs_gpu
def test_gpus_are_torchs_gpus():
    for i, gpu in enumerate(devices.facts().gpus):
        found = torch.cuda.get_device_properties(i)
        assert (gpu.name, gpu.major, gpu.minor, gpu.memory, gpu.sms) == (
            found.name, found.major, found.minor, found.total_memory, found.multi_processor_count,
        )  # fmt: skip


ALL = "80-real,89-real,90a-real,100f-real,120f-real"
COVERED = [  # architectures, compute capability, whether code runs on it
    (ALL, (8, 0), True), (ALL, (8, 6), True), (ALL, (8, 9), True), (ALL, (9, 0), True), (ALL, (10, 0), True),
    (ALL, (10, 3), True), (ALL, (12, 0), True), (ALL, (12, 1), True), (ALL, (11, 0), False), (ALL, (7, 5), False),
    ("89-real", (8, 6), False), ("90a-real", (8, 0), False), ("90a-real", (10, 0), False), ("100a-real", (10, 3), False),
    ("80", (12, 0), True), ("80-virtual", (9, 0), True), ("90-virtual", (8, 0), False), ("90a-virtual", (10, 0), False),
    ("90", (10, 0), True), ("75", (7, 5), False), ("", (9, 0), False), ("native", (9, 0), False),
]  # fmt: skip


@pytest.mark.parametrize("archs, capability, runs", COVERED)
def test_which_gpus_code_runs_on(archs, capability, runs):
    assert _C.archs_cover(archs, *capability) is runs


def test_info_says_which_gpus_can_be_used(given, run):
    given(gpus=(H200, A10), torch_gpus=2)
    facts = json.loads(run("info", "--json", "--threads", 1)[1])
    assert facts["cuda"] == "13.0, code for 90a-real"
    assert facts["gpus"][0] == "cuda:0 NVIDIA H200, compute capability 9.0, 132 SMs, 150 GiB, can be used"
    assert "cannot be used: cuda:1 is a NVIDIA A10" in facts["gpus"][1]
    given(gpus=(), driver=12080)
    assert "the NVIDIA driver supports CUDA 12.8 at most" in " ".join(run("info", "--threads", 1)[1].split())


def test_a_refused_device_is_one_line_and_the_cpu_works(given, run, target):
    given(gpus=(), driver=12080)
    options = "--target", target, "--drafter", "none", "--max-new-tokens", 4
    code, out, err = run("decode", "hello", *options, "--device", "cuda")
    assert code == 1 and out == "" and len(err.splitlines()) == 1
    assert err.startswith("error: device='cuda' cannot be used: the NVIDIA driver supports CUDA 12.8 at most")
    assert (
        run("decode", "hello", *options)[0] == 0
        and run("decode", "hello", *options, "--device", "auto")[0] == 0
    )


def test_identities_differ_where_times_may(given, monkeypatch, tmp_path, threads):
    cpu = machine.machine_identity(torch.device("cpu"))
    assert cpu["cpu"] == machine.cpu_model() and cpu["tier"] == _C.active_tier()
    threads(1 if _C.threads() > 1 else 2)
    assert machine.machine_identity(torch.device("cpu")) != cpu
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "version")
    given(gpus=(H200, A10))
    first = machine.machine_identity(torch.device("cuda", 0))
    assert first == {"gpu": "NVIDIA H200", "capability": "9.0", "sms": 132, "driver": "CUDA 13.0"}
    (tmp_path / "version").write_text("580.95.05\n")
    assert machine.machine_identity(torch.device("cuda", 1)) == {
        "gpu": "NVIDIA A10", "capability": "8.6", "sms": 72, "driver": "580.95.05",
    }  # fmt: skip


def test_load_asks_before_it_opens_anything(given):
    given(gpus=(V100,))
    with pytest.raises(DeviceError, match="Tesla V100"):
        load("no-such-model", device="cuda")
