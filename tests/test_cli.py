"""The command line on tiny models: what it prints where, exit codes, and failures that are one line."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest
import tiny_engines
from safetensors.torch import load_file, save_file

from specpilot import cli, load


@pytest.fixture(scope="module")
def answer(target):
    """What the engine makes of "hello" in 20 tokens."""
    return load(target, None).decode("hello", max_new_tokens=20)


@pytest.fixture
def decode(run, target, drafter):
    return lambda prompt, *more: run(
        "decode", prompt, "--target", target, "--drafter", drafter, "--max-new-tokens", 20, *more
    )


@pytest.mark.parametrize(
    "mode", [(), ("--verify", "chain"), ("--verify", "ar"), ("--ar",), ("--weights", "bf16")]
)
def test_decode_prints_the_text_and_one_line_of_statistics(decode, answer, mode):
    code, out, err = decode("hello", *mode)
    assert code == 0 and out == answer.text + "\n"
    assert "tok/s" in err and "τ" in err and err.strip().endswith("length")
    assert len(err.splitlines()) == 1


def test_decode_reads_a_prompt_from_standard_input(decode, answer, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello"))
    assert decode("-")[1] == answer.text + "\n"


def test_decode_prints_json(decode, answer):
    code, out, err = decode("hello", "--json", "--verify", "chain")
    found = json.loads(out)
    assert code == 0 and err == ""
    assert found["tokens"] == answer.tokens and found["text"] == answer.text
    assert found["prompt_tokens"] == answer.prompt_tokens and found["finish_reason"] == "length"
    assert sum(found["stats"]["accepted"].values()) == found["stats"]["passes"]


def test_decode_takes_stops_and_a_system_message(decode, answer):
    stop = answer.text[5:7]
    want = answer.text[: answer.text.index(stop)]
    found = json.loads(decode("hello", "--json", "--stop", "never!", "--stop", stop)[1])
    assert found["text"] == want and found["finish_reason"] == "stop"
    told = json.loads(decode("hello", "--json", "--system", "be brief")[1])
    assert len(told["prompt_tokens"]) > len(answer.prompt_tokens)


def test_a_missing_drafter_is_said_once(run, target, answer, caplog):
    code, out, _ = run("decode", "hello", "--target", target, "--max-new-tokens", 20)
    assert code == 0 and out == answer.text + "\n"
    assert caplog.text.count("no drafter is known for") == 1


@pytest.mark.parametrize("mode", ["--ar", "--verify=ar"])
def test_one_token_at_a_time_opens_no_drafter(decode, answer, mode):
    code, out, _ = decode("hello", "--drafter", "absent", mode)
    assert code == 0 and out == answer.text + "\n"


def test_info(run, threads):
    code, out, _ = run("info", "--threads", 1)
    assert code == 0 and "x86-pairs32" in out and "GB/s read, measured, 1 threads" in out
    facts = json.loads(run("info", "--json", "--threads", 1)[1])
    assert facts["threads"] == 1 and facts["memory_bandwidth_gbps"] > 0.1
    assert {"linear", "attention", "accept"} <= facts["variants"].keys()


def test_bench_writes_its_report(run, target, drafter, tmp_path):
    prompts = tmp_path / "two.jsonl"
    prompts.write_text('{"turns": ["hello there"]}\n{"turns": ["how are you?"]}\n')
    code, out, err = run(
        "bench", "--prompts", prompts, "--target", target, "--drafter", drafter, "--max-new-tokens", 8,
        "--arms", "ar-bf16,ar-w12,chain-w12", "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["ok"] and report["mismatches"] == []
    row = next(r for r in report["rows"] if (r["set"], r["arm"]) == ("two", "chain-w12"))
    assert row["prompts"] == row["equal"] == 2
    assert (tmp_path / "out/report.png").read_bytes()[1:4] == b"PNG"
    assert "chain-w12" in (tmp_path / "out/report.md").read_text() and "chain-w12" in out


def broken(root, target, name, config=None, tensors=None):
    """A copy of the target with something wrong."""
    copy = shutil.copytree(target, root / name, dirs_exist_ok=True)
    tiny_engines.edit(copy, **(config or {}))
    if tensors:
        held = load_file(copy / "model.safetensors")
        tensors(held)
        save_file(held, copy / "model.safetensors", {"format": "pt"})
    return copy


BAD = {  # case → (what is passed as target, what the line must say)
    "unknown architecture": (
        lambda r, t: broken(r, t, "arch", {"architectures": ["MambaForCausalLM"]}),
        "architecture 'MambaForCausalLM' is not supported; known: LlamaForCausalLM, Qwen3ForCausalLM",
    ),
    "unknown config key": (
        lambda r, t: broken(r, t, "key", {"attn_logit_scale": 2.0}),
        "unknown key attn_logit_scale = 2.0",
    ),
    "missing tensor": (
        lambda r, t: broken(r, t, "tensor", tensors=lambda held: held.pop("model.norm.weight")),
        "tensor model.norm.weight is missing",
    ),
    "wrong shape": (
        lambda r, t: broken(r, t, "shape", {"intermediate_size": 112}),
        "is [64, 96], by the config it is [64, 112]",
    ),
    "no such directory": (lambda r, t: r / "none", "is neither an existing path, nor a known name"),
    "a file": (lambda r, t: t / "config.json", "not a directory of safetensors and not a .gguf file"),
    "an empty directory": (lambda r, t: (r / "empty").mkdir(exist_ok=True) or r / "empty", "no config.json"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_target_that_cannot_be_used_is_one_line(run, root, target, case):
    make, message = BAD[case]
    path = make(root, target)
    code, out, err = run("decode", "hello", "--target", path, "--drafter", "none")
    line = err.splitlines()[-1]
    assert code == 1 and out == ""
    assert line.startswith("error: ") and message in line and str(path) in line
    assert "Traceback" not in err and len(err.splitlines()) == 1, err


BAD_OPTIONS = {
    "the prompt has 79 tokens, which leaves no room in a context of 64": ["x" * 60, "--max-context", 64],
    "verify='fast', expected 'auto' or one of ar, chain": ["hello", "--verify", "fast"],
    "verify='tree' is not in this release": ["hello", "--verify", "tree"],
    "weights='w8', expected 'w12' or 'bf16'": ["hello", "--weights", "w8"],
    "max_context=4096, expected 1 to 512": ["hello", "--max-context", 4096],
    "stop is [''], expected strings that are not empty": ["hello", "--stop", ""],
    "architecture 'LlamaForCausalLM' is not a drafter": ["hello", "--drafter", "TARGET"],
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
def test_an_option_that_cannot_be_used_is_one_line(decode, target, message):
    arguments = [target if a == "TARGET" else a for a in BAD_OPTIONS[message]]
    code, out, err = decode(*arguments)
    assert code == 1 and message in err and "Traceback" not in err
    assert len(err.splitlines()) == 1, err


def test_usage_errors_are_typers(run):
    code, _, err = run("decode", "hello", "--max-new-tokens", 0)
    assert code == 2 and "max-new-tokens" in err
    assert run("no-such-command")[0] == 2


def test_tracebacks_are_for_those_who_ask(run, root, monkeypatch):
    monkeypatch.setenv("SPECPILOT_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["specpilot", "decode", "hello", "--target", str(root / "none")])
    with pytest.raises(ValueError, match="neither an existing path"):
        cli.main()


def test_ctrl_c_outside_of_a_generation(run, monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("specpilot.load", interrupted)
    code, out, err = run("decode", "hello")
    assert code == 130 and out == "" and "Traceback" not in err


def test_ctrl_c_within_a_generation(decode, monkeypatch, answer):
    from specpilot.verify.ar import AR

    step, calls = AR._run, iter(range(100))
    monkeypatch.setattr(AR, "_run", lambda *a: interrupt() if next(calls) == 6 else step(*a))

    def interrupt():
        raise KeyboardInterrupt

    code, out, err = decode("hello", "--ar", "--json")
    found = json.loads(out)
    assert code == 130 and found["finish_reason"] == "interrupted"
    assert found["tokens"] == answer.tokens[:7]


def test_the_default_model_answers(smollm2, run):
    """Real weights: a sentence that makes sense, whatever the drafter."""
    code, out, err = run("decode", "What is the capital of France?", "--target", smollm2, "--drafter", "none",
                         "--max-new-tokens", 24)  # fmt: skip
    assert code == 0 and "Paris" in out, (out, err)
