"""bench/gpu: the scripts run dry on a CPU, the control is the model of transformers, the read kernel compiles."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_engines
import tiny_targets
import torch
from gpu import needs_gpu

GPU = Path(__file__).parents[1] / "bench" / "gpu"
sys.path.insert(0, str(GPU))

import bits  # noqa: E402
import ceilings  # noqa: E402
import decode_arms  # noqa: E402
import faster_linear  # noqa: E402
import gemm  # noqa: E402
import pair  # noqa: E402
import read_ceiling  # noqa: E402
import replay  # noqa: E402
import report  # noqa: E402
import roofline  # noqa: E402
import shapes  # noqa: E402
import step  # noqa: E402
import tables  # noqa: E402
import timing  # noqa: E402
import torch_ar  # noqa: E402

from specpilot.formats.run_layout import run_weight  # noqa: E402
from specpilot.layers import Linear  # noqa: E402
from specpilot.models import ModelConfig  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """The shapes are too small for torch's threads, which starve on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def main(monkeypatch, capsys, tmp_path):
    """``main(script, *arguments)`` → (printed text, JSON lines) of a dry run that must succeed; checks stand in both and are
    left out of the lines."""

    def call(script, *arguments):
        out = tmp_path / f"{script.__name__}.jsonl"
        monkeypatch.setattr(
            sys, "argv", [script.__name__, "--dry-run", "--epochs", "2", "--out", str(out), *arguments]
        )
        assert script.main() == 0
        text, lines = capsys.readouterr().out, tables.read_lines(out)
        for check in (line for line in lines if "what" in line):
            assert f"{'PASS' if check['ok'] else 'FAIL'}  {check['what']}: " in text
        return text, [line for line in lines if "what" not in line]

    return call


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A random checkpoint of ``shapes.TINY``."""
    c = shapes.TINY.config
    return tiny_engines.save_target(
        tmp_path_factory.mktemp("tiny"), "qwen3", text=False, vocab_size=c.vocab_size, hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size, num_hidden_layers=c.num_layers, head_dim=c.head_dim,
    )  # fmt: skip


def test_the_shapes_are_the_models():
    assert [str(m) for m in shapes.QWEN3_8B.layer_matrices] == [
        "6144x4096",
        "4096x4096",
        "24576x4096",
        "4096x12288",
    ]
    assert (
        str(shapes.QWEN3_8B.head) == "151936x4096"
        and str(shapes.LLAMA_31_8B.layer_matrices[2]) == "28672x4096"
    )
    assert [str(m) for m in shapes.SMOLLM2.layer_matrices] == ["960x576", "576x576", "3072x576", "576x1536"]
    assert shapes.QWEN3_8B.kv_bytes(1024) == 2 * 2 * 8 * 128 * 1024


def test_gemm_runs_dry(main):
    text, (facts, *lines) = main(gemm, "--rows", "1,4")
    assert facts["device"] == "cpu" and "PASS  matrices whose bits differ: 0.000" in text
    assert len(lines) == len(gemm.matrices("", dry_run=True)) * 2 * 6
    assert {line["variant"] for line in lines} == {
        "w12",
        "bf16",
        "cublas",
        "cublaslt",
        "read w12",
        "read bf16",
    }
    assert all(line["median_us"] > 0 and line["gbps"] > 0 and line["bits"] for line in lines)
    assert "tiny layer" in text and "cuBLAS / w12 over a tiny layer at 4" in text


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_the_control_is_the_model_of_transformers(kind):
    exact = tiny_targets.stock(kind)
    stock = copy.deepcopy(exact).bfloat16()
    config = ModelConfig.from_dict(stock.config.to_dict() | {"architectures": [type(stock).__name__]})
    control, state = torch_ar.TorchModel(shapes.Model(kind, config), "cpu", 16), stock.state_dict()

    def w(i: int, *names: str) -> torch.Tensor:
        return torch.cat([state[f"model.layers.{i}.{name}.weight"] for name in names])

    attn = "self_attn."
    control.layers = [
        torch_ar.TorchLayer(
            w(i, "input_layernorm"), w(i, attn + "q_proj", attn + "k_proj", attn + "v_proj"),
            w(i, attn + "q_norm") if config.qk_norm else None, w(i, attn + "k_norm") if config.qk_norm else None,
            w(i, attn + "o_proj"), w(i, "post_attention_layernorm"), w(i, "mlp.gate_proj", "mlp.up_proj"),
            w(i, "mlp.down_proj"),
        )
        for i in range(config.num_layers)
    ]  # fmt: skip
    control.norm, control.head = state["model.norm.weight"], state["lm_head.weight"]
    control.embedding = state["model.embed_tokens.weight"]
    ids = torch.arange(16) * 7 % config.vocab_size
    with torch.no_grad():
        want, theirs = exact(ids[None]).logits[0, -2:], stock(ids[None]).logits[0, -2:]
        kv = control.kv(16)
        mine = torch.cat(
            [control.logits(ids[:15], kv, 0), control.logits(ids[15:], kv, 15)]
        )  # a prompt, then a step
    for i in range(2):
        error, usual = ((x[i].float() - want[i]).norm() / want[i].norm() for x in (mine, theirs))
        assert error < 1.5 * usual < 0.1  # both round to bf16 all the way


def test_torch_ar_runs_dry(main):
    text, (_, *lines) = main(torch_ar)
    assert [line["shape"] for line in lines] == ["tiny step at 16", "tiny step at 32", "tiny prefill of 8"]
    assert "| prefill of 8 |" in text


def test_step_runs_dry_and_roofline_reads_its_lines(main, tiny, tmp_path):
    text, (_, *lines) = main(step, "--target", str(tiny))
    assert {line["variant"] for line in lines if line["op"] == "decode"} == {
        "ar-w12",
        "ar-bf16",
        "ar-best",
        "torch",
    }
    passes = [line for line in lines if line["op"] == "pass" and line["shape"] == "tiny ctx=16"]
    assert [p["variant"] for p in passes] == ["w12 1", "w12 4", "bf16 1", "bf16 4", "torch", "read KV"]
    w12, bf16 = (
        next(p["gbps"] * p["median_us"] for p in passes if p["variant"] == v) for v in ("w12 1", "bf16 1")
    )
    c = shapes.TINY.config
    weights = (
        sum(m.bf16_bytes for m in shapes.TINY.layer_matrices) * c.num_layers + shapes.TINY.head.bf16_bytes
    )
    assert bf16 * 1e3 == pytest.approx(weights + c.num_layers * shapes.TINY.kv_bytes(16)) and w12 < 0.8 * bf16
    assert "| tiny, one token at 8" in text and "AR bf16 / AR w12 at 8" in text

    picture = tmp_path / "roofline.png"
    text, (_, *curves) = main(roofline, str(tmp_path / "step.jsonl"), "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG") and "| pass | tiny ctx=16 |" in text
    assert {(c["ceiling"], c["place"]) for c in curves} == {
        (k, p) for k in ceilings.MAKERS for p in ceilings.PLACES
    }


def test_a_random_subject_takes_the_steps(main):
    text, (_, *lines) = main(step, "--parts", "decoding")
    assert {line["variant"] for line in lines} == {"ar-w12", "ar-bf16", "ar-best", "torch"}
    assert "| 256x128 " in text and "taken" in text and "a pass at" not in text


@pytest.fixture
def choices(monkeypatch):
    """Made choices: cuBLAS for one row, ours for more."""

    def measured(self, weight) -> None:
        for m in self.rows:
            self.us[weight.n, weight.k, m] = {"ours": 2.0, "cublas": 1.0 if m == 1 else 3.0, "cublaslt": 2.5}

    monkeypatch.setattr(faster_linear.Choices, "_measure", measured)
    return faster_linear.Choices((1, 16), "cpu")


def test_the_faster_linear_is_taken_by_the_number_of_rows(choices, assert_bits_equal, monkeypatch):
    weight, used = torch.randn(48, 96).bfloat16(), []
    linear = faster_linear.faster(Linear(run_weight([weight], "bf16")), choices)
    for name in ("mm", "addmm"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, r=real, n=name, **k: (used.append(n), r(*a, **k))[1])
    for rows, calls in ((1, ["mm", "addmm"]), (2, []), (16, []), (20, [])):
        x, r = torch.randn(rows, 96).bfloat16(), torch.randn(rows, 48).bfloat16()
        plain, added = torch.empty_like(r), r.clone()
        used.clear()
        linear(x, plain)
        linear(x, added, residual=added)
        assert used == calls, rows
        exact = x.double() @ weight.double().T
        for got, want in ((plain, exact), (added, exact + r.double())):
            assert (got.double() - want).norm() / want.norm() < 0.005
    with pytest.raises(ValueError, match="expected bf16"):
        faster_linear.faster(Linear(run_weight([weight], "w12")), choices)


def test_the_pair_runs_dry(main, target, drafter):
    arguments = ("--target", str(target), "--drafter", str(drafter), "--limit", "2", "--new", "40")
    text, (_, *lines) = main(pair, *arguments, "--context", "500")
    assert [line["variant"] for line in lines] == [*decode_arms.ARMS] * 2
    assert (
        "specpilot = ar-w12, token by token: 2 of 2" in text and "PASS  requests whose tokens differ" in text
    )
    assert "| specpilot / stock " in text and "| linear in bf16" in text


def test_published_acceptance_runs_dry(main):
    text, (_, *lines) = main(replay, "--context", "20", "--requests", "2", "--new", "60")
    assert len(lines) == 5 * 2 * 4 and {line["set"] for line in lines} == set(replay.published.BENCHMARKS)
    taus = [line["tau"] for line in lines if line["variant"] in ("stock", "specpilot")]
    assert min(taus) > 1.5 and 4 < sum(taus) / len(taus) < 8.5
    assert "specpilot = ar-w12, token by token: 10 of 10" in text and "mean of 5 benchmarks" in text


@pytest.mark.slow
def test_the_report_runs_its_parts(monkeypatch, capfd, target, drafter, tmp_path):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    parts, options = ["pair", "smollm2", "bits"], ["--target", target, "--drafter", drafter, "--dry-run"]
    monkeypatch.setattr(sys, "argv", ["report", *parts, *map(str, options), "--out", str(tmp_path / "runs")])
    report.main()
    text = capfd.readouterr().out
    assert (
        "| inflated pair, tok/s (τ) |" in text
        and "auto-w12" in text
        and "prompts whose tokens differ, of 1: 0.000" in text
        and "tokens that fail token forcing" in text
    )
    ends = text.split("\n\n")[-1].splitlines()
    assert [end.split(":")[0] for end in ends] == parts and "stopped" not in text
    with monkeypatch.context() as short:
        short.setattr(
            sys, "argv", [*sys.argv[:2], "--seconds", "0.1", *map(str, options[:4]), "--out", str(tmp_path)]
        )
        assert report.main() == 1 and "pair: stopped after 0 s" in capfd.readouterr().out


def test_bits_says_where_answers_part():
    assert bits.difference([1, 2], [1, 2]) == ""
    assert bits.difference([1, 3, 5], [1, 2]) == "token 1 is [3] of 3, one-token decoding has [2] of 2"
    assert bits.difference([1], [1, 2]).startswith("token 1 is [] of 1, one-token decoding has [2]")


def test_step_refuses_another_shape(monkeypatch, target, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["step", "--dry-run", "--target", str(target), "--out", str(tmp_path / "x")]
    )
    with pytest.raises(
        ValueError, match=r"vocabulary} are .*320\), expected \(128, 192, 4, 2, 32, 2, 512\) as in tiny"
    ):
        step.main()


def test_a_table_needs_a_gpu_or_a_dry_run():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, GPU / "gemm.py"], capture_output=True, text=True)
    assert done.returncode == 1 and "--dry-run" in done.stderr


def test_the_read_kernel_compiles(monkeypatch, tmp_path):
    if not read_ceiling.shutil.which("nvcc"):
        pytest.skip("no nvcc")
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path))
    path = read_ceiling.build("90a")
    assert path.is_relative_to(tmp_path) and read_ceiling.build("90a") == path
    assert read_ceiling.ctypes.CDLL(str(path)).sp_read


@needs_gpu
@pytest.mark.parametrize("kind", read_ceiling.BLOCKS_PER_SM)
def test_the_read_kernel_reads(kind):
    """At about the speed of torch's copy: a kernel that left something out would be faster than the memory."""
    if kind == read_ceiling.BULK and torch.cuda.get_device_capability(0)[0] < 9:
        pytest.skip("bulk copies need sm_90")
    buffers = [torch.randint(256, (1 << 28,), dtype=torch.uint8, device="cuda") for _ in range(4)]
    copy_us = read_ceiling.copier(buffers, "cuda").us()
    blocks = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    read_us = timing.Recorded(read_ceiling._read(buffers, kind, blocks), len(buffers), "cuda").us()
    assert 0.7 < copy_us / read_us < 1.4
