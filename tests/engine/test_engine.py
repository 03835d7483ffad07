"""What may be asked of an engine: prompts and options in every shape, streams left midway, interruptions; refusals by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_engines
import torch
from gpu import needs_gpu

from specpilot import _C, load, ops

CONTEXT = 120
TOKENIZER = tiny_engines.tokenizer()


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    root = tmp_path_factory.mktemp("engine")
    return tiny_engines.save_target(root / "target"), tiny_engines.save_drafter(root / "drafter")


KINDS = [  # device, sync_free
    ("cpu", False),
    ("cpu", True),
    pytest.param(("cuda", False), marks=needs_gpu),
    pytest.param(("cuda", True), marks=needs_gpu),
]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def engine(request, directories, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECPILOT_CACHE", str(tmp_path_factory.mktemp("cache")))
        device, sync_free = request.param
        found = load(*directories, max_context=CONTEXT, device=device)
        found.sync_free = sync_free
        found.decode([1], max_new_tokens=2)  # measures its steps
        yield found


def test_a_string_goes_through_the_chat_template(engine):
    ids = TOKENIZER("<|start|>user: hello there\n<|start|>assistant: ").input_ids
    assert engine.encode("hello there") == ids
    assert engine.encode([{"role": "user", "content": "hello there"}]) == ids
    told = engine.encode("hello there", system="be brief")
    assert TOKENIZER.decode(told).startswith("<|start|>system: be brief\n<|start|>user: hello there\n")
    assert engine.decode("hello there", max_new_tokens=8).prompt_tokens == ids


def test_without_a_chat_template_a_string_is_text(directories):
    engine = load(*directories, max_context=CONTEXT)
    engine.tokenizer.chat_template = None
    assert engine.encode("hello there") == TOKENIZER("hello there").input_ids
    with pytest.raises(ValueError, match="no chat template for messages"):
        engine.encode([{"role": "user", "content": "hello"}])
    with pytest.raises(ValueError, match="need a chat template"):
        engine.encode("hello", system="be brief")


def test_prompts_of_every_kind_and_lists_of_them(engine):
    ids = engine.encode("hello")
    want = engine.decode(ids, max_new_tokens=8)
    assert engine.decode(tuple(ids), max_new_tokens=8).tokens == want.tokens
    assert engine.decode([np.int64(i) for i in ids], max_new_tokens=8).tokens == want.tokens
    results = engine.decode(["hello", ids, [{"role": "user", "content": "hello"}]], max_new_tokens=8)
    assert [r.tokens for r in results] == [want.tokens] * 3
    assert engine.decode([], max_new_tokens=8) == []
    assert want.to_dict()["text"] == want.text and want.to_dict()["stats"]["new_tokens"] == 8


BAD_PROMPTS = {
    "token 1 is 320, expected an id from 0 to 319": [1, tiny_engines.VOCAB],
    "token 0 is -1,": [-1, 2],
    "token 1 is 2.0,": [1, 2.0],
    "token 1 is None,": [1, None],
    "token 2 is 'a'": [1, 2, "a"],
    "leaves no room in a context of 120": [1] * CONTEXT,
    "the prompt has 121 tokens": [1] * (CONTEXT + 1),
    "prompt is int, expected a string, a list of messages, or token ids": 5,
    "prompt is None": None,
    "prompt is bytes": b"hello",
    "prompt is Tensor": torch.tensor([1, 2]),
    "prompt is dict": {"role": "user", "content": "hello"},
    "the prompt is empty": [[]],
}


@pytest.mark.parametrize("message", BAD_PROMPTS)
def test_prompts_that_cannot_be_decoded_are_refused_by_name(engine, message):
    with pytest.raises((ValueError, TypeError), match=message):
        engine.decode(BAD_PROMPTS[message], max_new_tokens=4)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "the prompt is empty"), (["a", "b"], "one prompt"), ([[1, 2], [3]], "one prompt")],
)
def test_a_stream_takes_one_prompt(engine, prompt, message):
    with pytest.raises(ValueError, match=message):
        engine.stream(prompt)


def test_messages_are_checked(engine):
    with pytest.raises(ValueError, match="message 1 is 'b', expected a mapping with role and content"):
        engine.decode([{"role": "user", "content": "a"}, "b"])
    with pytest.raises(ValueError, match="system is given twice"):
        engine.decode([{"role": "system", "content": "a"}], system="b")


def test_messages_that_a_template_refuses(directories):
    engine = load(directories[0], None, max_context=CONTEXT)
    engine.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValueError, match="chat template does not take these messages: roles must alternate"):
        engine.encode("hello")
    engine.tokenizer.chat_template = "{% for %}"
    with pytest.raises(ValueError, match="chat template does not take"):
        engine.encode("hello")


BAD_OPTIONS = {
    "max_new_tokens is 0": {"max_new_tokens": 0},
    "max_new_tokens is 2.5": {"max_new_tokens": 2.5},
    "max_new_tokens is '8'": {"max_new_tokens": "8"},
    "max_new_tokens is True": {"max_new_tokens": True},
    "temperature 0.7 is not supported": {"temperature": 0.7},
    "stop is .*expected strings that are not empty": {"stop": ["a", ""]},
    "stop is 5": {"stop": 5},
    r"stop is \[5\]": {"stop": [5]},
    "verify='tree' is not in this release": {"verify": "tree"},
    "verify='fast', expected 'auto' or one of ar, chain": {"verify": "fast"},
    "verify=None": {"verify": None},
    "a prompt of token ids has none": {"system": "be brief"},
    "unexpected keyword argument 'max_tokens'": {"max_tokens": 5},
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
def test_options_are_checked(engine, message):
    with pytest.raises((ValueError, TypeError), match=message):
        engine.decode([1, 2], **BAD_OPTIONS[message])
    assert engine.decode([1, 2], max_new_tokens=2).stats.new_tokens == 2


def test_a_chain_without_a_drafter_is_refused(directories):
    engine = load(directories[0], None, max_context=CONTEXT)
    with pytest.raises(ValueError, match="verify='chain' needs a drafter"):
        engine.decode([1, 2], verify="chain")
    assert engine.decode([1, 2], max_new_tokens=4).stats.widths == {1: 3}


def test_stop_strings_and_tokens_of_a_real_run(engine):
    """The engine's own output, cut by a string from its middle and by a token of it, in every mode."""
    whole = engine.decode([1, 2, 3], max_new_tokens=60, verify="ar", ignore_stop_ids=True)
    at = next(i for i in range(20, 60) if len(TOKENIZER.decode(whole.tokens[i : i + 2]).strip("\ufffd")) > 1)
    stop = TOKENIZER.decode(whole.tokens[at : at + 2]).strip("\ufffd")
    want = whole.text[: whole.text.index(stop)]
    for verify in ("ar", "chain", "auto"):
        options = {"max_new_tokens": 60, "verify": verify, "stop": stop, "ignore_stop_ids": True}
        result = engine.decode([1, 2, 3], **options)
        assert result.text == want and result.finish_reason == "stop"
        assert result.tokens == whole.tokens[: len(result.tokens)]
        stream = engine.stream([1, 2, 3], **options)
        assert "".join(stream) == want and stream.result.tokens == result.tokens


def test_a_stream_left_midway_leaves_the_engine_usable(engine):
    want = engine.decode([5, 6], max_new_tokens=20).tokens
    for leave in (lambda s: s.close(), lambda s: None):
        for verify in ("ar", "chain"):
            stream = engine.stream([9, 8, 7], max_new_tokens=100, verify=verify)
            next(stream)
            leave(stream)
            del stream
            assert engine.decode([5, 6], max_new_tokens=20).tokens == want


def test_one_generation_at_a_time(engine):
    stream = engine.stream([9, 8, 7], max_new_tokens=100)
    next(stream)
    with pytest.raises(RuntimeError, match=r"busy with another generation: finish its stream, or close\(\)"):
        engine.decode([1, 2])
    rest = list(stream)
    assert rest and engine.decode([1, 2], max_new_tokens=3).stats.new_tokens == 3


def test_an_interruption_anywhere_leaves_the_engine_usable(engine, monkeypatch):
    """In the prefill, in a step, while a step is captured."""
    want = engine.decode([5, 6], max_new_tokens=20).tokens
    for name in ("linear", "argmax"):
        for after in (0, 3, 40, 41, 42, 60):
            calls, real = iter(range(10**6)), getattr(ops, name)

            def interrupted(*args, calls=calls, real=real, after=after, **kwargs):
                if next(calls) == after:
                    raise KeyboardInterrupt
                return real(*args, **kwargs)

            engine._verifier("chain")._graphs.clear()  # so that steps are captured again
            monkeypatch.setattr(ops, name, interrupted)
            result = engine.decode([5, 6], max_new_tokens=20, verify="chain")
            monkeypatch.undo()
            assert result.tokens == want[: len(result.tokens)]
            assert result.finish_reason == ("interrupted" if len(result.tokens) < 20 else "length")
            assert engine.decode([5, 6], max_new_tokens=20, verify="chain").tokens == want


def test_control_c_ends_the_command_with_the_text_so_far(tmp_path):
    """A real signal to a real process: partial text, one line of statistics, exit code 130."""
    target = tiny_engines.save_target(tmp_path / "target", max_position_embeddings=40000)
    program = "from specpilot.cli import main; main()"
    arguments = ["decode", "hello", "--target", str(target), "--max-context", "40000", "--ar"]
    env = {**os.environ, "PYTHONPATH": str(Path(_C.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", program, *arguments, "--max-new-tokens", "1000000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(command, env=env, **pipes) as process:
        first = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors.decode()
    assert first and rest.endswith(b"\n") and b"tok/s" in errors and b"interrupted" in errors
    assert b"Traceback" not in errors
    given = (first + rest)[:-1].decode()
    want = load(target, None).decode("hello", max_new_tokens=2000).text
    assert want.startswith(given.rstrip("\ufffd")[: len(want)])  # it may have ended inside a character
