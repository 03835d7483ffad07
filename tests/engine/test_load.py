"""From names to an engine: pairs that do not fit, values that are refused, weights by device, and what a generation reports."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
import tiny_engines
import torch
from gpu import needs_gpu

from specpilot import _C, load
from specpilot.formats import Q8Weight


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path))


MISFITS = {  # message → changes of the drafter
    "hidden size 96 in the drafter, 64 in the target": {"hidden_size": 96},
    "vocabulary 352 in the drafter, 320 in the target": {"vocab_size": 352},
    "target layers 8 in the drafter, 6 in the target": {"num_target_layers": 8},
}


@pytest.mark.parametrize("message", MISFITS)
def test_a_drafter_of_another_target_is_refused(target, tmp_path, message):
    wrong = tiny_engines.save_drafter(tmp_path / "wrong", **MISFITS[message])
    with pytest.raises(ValueError, match=message) as e:
        load(target, wrong)
    assert str(wrong) in str(e.value) and str(target) in str(e.value)


def test_a_config_that_is_not_understood_names_its_checkpoint(target, tmp_path):
    copy = tiny_engines.edit(shutil.copytree(target, tmp_path / "copy"), attn_logit_scale=2.0)
    with pytest.raises(ValueError, match="unknown key attn_logit_scale = 2.0") as e:
        load(copy, None)
    assert str(e.value).startswith(str(copy))


def test_roles_taken_for_each_other_are_refused(target, drafter):
    with pytest.raises(
        ValueError, match="architecture 'LlamaForCausalLM' is not a drafter; known: DFlashDraftModel"
    ):
        load(target, target)
    with pytest.raises(ValueError, match="DFlashDraftModel.*is a drafter"):
        load(drafter, None)
    with pytest.raises(ValueError, match="DFlashDraftModel.*is a drafter"):
        load(drafter, target)


BAD_VALUES = {
    "weights='w8', expected 'w12' or 'bf16'": {"weights": "w8"},
    "drafter_weights='q4', expected 'q8', 'w12' or 'bf16'": {"drafter_weights": "q4"},
    "device='gpu', expected 'cpu', 'cuda', 'cuda:N'": {"device": "gpu"},
    "max_context=0, expected 1 to 512": {"max_context": 0},
    "max_context=513, expected 1 to 512: .* was trained for 512 positions": {"max_context": 513},
    "max_context='64', expected": {"max_context": "64"},
    "max_context=64.5, expected": {"max_context": 64.5},
    "threads = 0: expected 1 to 1024": {"threads": 0},
    "'no-such-model' is neither an existing path, nor a known name": {"drafter": "no-such-model"},
}


@pytest.mark.parametrize("message", BAD_VALUES)
def test_values_are_checked(target, message):
    with pytest.raises((ValueError, _C.KernelError), match=message):
        load(target, **{"drafter": None, **BAD_VALUES[message]})


def test_threads_are_set(target, threads):
    load(target, None, threads=1)
    assert _C.threads() == 1
    load(target, None)
    assert _C.threads() == 1  # left as they are


def test_an_unknown_target_decodes_without_a_drafter_and_says_so(target, caplog):
    with caplog.at_level(logging.WARNING, logger="specpilot"):
        engine = load(target, max_context=64)
    assert engine.drafter is None
    assert (
        f"no drafter is known for {target}: decoding one token at a time (name one: drafter=…)" in caplog.text
    )
    assert set(engine.decode([1, 2], max_new_tokens=5).stats.widths) == {1}


def test_without_a_tokenizer_ids_are_decoded(root, target):
    bare = tiny_engines.save_target(root / "bare", text=False)
    engine = load(bare, None, max_context=64)
    result = engine.decode([1, 2, 3], max_new_tokens=8)
    assert result.text == "" and len(result.tokens) == 8
    assert result.tokens == load(target, None, max_context=64).decode([1, 2, 3], max_new_tokens=8).tokens
    with pytest.raises(ValueError, match="no tokenizer: pass token ids"):
        engine.decode("hello")
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        engine.decode([1, 2], stop="x")
    assert list(engine.stream([1, 2, 3], max_new_tokens=8)) == []


def test_stop_ids_are_those_of_the_checkpoint(root):
    engine = load(tiny_engines.save_target(root / "stops", eos_token_id=7), None, max_context=64)
    assert engine.stop_ids == {7, tiny_engines.tokenizer().eos_token_id}


def test_step_times_are_kept_apart_for_whatever_differs_between_models(root, target, drafter):
    targets = [target, tiny_engines.save_target(root / "heads", head_dim=24)]
    changes = (
        {"block_size": 5},
        {"dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3]}},
        {"head_dim": 24},
    )
    drafters = [drafter, *(tiny_engines.save_drafter(root / f"d{i}", **c) for i, c in enumerate(changes))]
    pairs = [(t, d) for t in targets for d in (*drafters, None)]
    keys = [json.dumps(load(t, d, max_context=64).cost_facts, sort_keys=True) for t, d in pairs]
    assert len(set(keys)) == len(pairs)
    again = load(shutil.copytree(target, root / "same"), drafter, max_context=64)
    assert json.dumps(again.cost_facts, sort_keys=True) == keys[0]


def test_two_engines_in_one_process_do_not_mix(root, target, drafter):
    other = tiny_engines.save_target(root / "other", "qwen3")
    engines = [load(target, drafter, max_context=100), load(other, drafter, max_context=64, weights="bf16")]
    want = [e.decode([1, 2, 3], max_new_tokens=40, verify="ar").tokens for e in engines]
    assert want[0] != want[1]
    streams = [e.stream([1, 2, 3], max_new_tokens=40, verify="chain") for e in engines]
    for pieces in zip(*streams, strict=False):  # in turns
        assert len(pieces) == 2
    for stream, tokens in zip(streams, want, strict=True):
        list(stream)
        assert stream.result.tokens == tokens


@pytest.mark.parametrize("context", [2, 3, 9])
def test_a_context_smaller_than_a_block(target, drafter, context):
    engine = load(target, drafter, max_context=context)
    want = load(target, None, max_context=context).decode([1], max_new_tokens=50)
    assert len(want.tokens) == context - 1 and want.finish_reason == "length"
    for verify in ("chain", "auto"):
        assert engine.decode([1], max_new_tokens=50, verify=verify).tokens == want.tokens
    with pytest.raises(ValueError, match=f"leaves no room in a context of {context}"):
        engine.decode([1] * context)


@pytest.mark.parametrize("verify", ["ar", "chain", "auto"])
def test_statistics_add_up(target, drafter, verify):
    s = load(target, drafter, max_context=200).decode([1, 2, 3], max_new_tokens=50, verify=verify).stats
    assert (s.prompt_tokens, s.new_tokens) == (3, 50)
    assert s.passes == sum(s.accepted.values()) == sum(s.widths.values())
    assert sum(n * k for n, k in s.accepted.items()) == s.new_tokens - 1  # the first is the prefill's
    assert s.tau == pytest.approx((s.new_tokens - 1) / s.passes)
    assert all(w <= 8 for w in s.widths) and max(s.accepted) <= max(s.widths)
    assert 0 < s.prefill_seconds and 0 < s.verify_seconds and (s.draft_seconds > 0) == (verify != "ar")
    assert s.draft_seconds + s.verify_seconds + s.overhead_seconds == pytest.approx(s.decode_seconds)
    assert s.overhead_seconds > 0 and s.tokens_per_second == pytest.approx(49 / s.decode_seconds)
    line = s.line()
    assert f"{s.tokens_per_second:.1f} tok/s" in line and f"τ {s.tau:.2f}" in line and "50 new tokens" in line
    assert s.to_dict()["accepted"] == dict(sorted(s.accepted.items()))


def test_weights_of_the_drafter_change_no_token(target, drafter):
    engines = [load(target, drafter, max_context=200, drafter_weights=w) for w in ("q8", "w12", "bf16")]
    sizes = [e.drafter.nbytes for e in engines]
    assert engines[0].drafter.head.weight.n == tiny_engines.VOCAB and sizes[1] < sizes[2]
    want = load(target, None, max_context=200).decode([1, 2, 3], max_new_tokens=60).tokens
    for engine in engines:
        for verify in ("chain", "auto"):
            assert engine.decode([1, 2, 3], max_new_tokens=60, verify=verify).tokens == want


def test_a_checkpoint_may_go_away_after_loading(target, tmp_path):
    """Weights lie in memory of their own."""
    copy = shutil.copytree(target, tmp_path / "copy")
    engine = load(copy, None, max_context=64)
    shutil.rmtree(copy)
    assert engine.decode("hello", max_new_tokens=8).stats.new_tokens == 8


@needs_gpu
@pytest.mark.parametrize("weights", ["w12", "bf16"])
@pytest.mark.parametrize("drafter_weights", ["q8", "w12", "bf16"])
def test_on_a_gpu_the_weights_are_those_of_the_cpu(
    target, drafter, weights, drafter_weights, assert_bits_equal
):
    def linears(engine):
        for model in (engine.target, engine.drafter):
            for layer in model.layers:
                yield from (layer.qkv, layer.out, layer.gate_up, layer.down)
        yield from (engine.drafter.fc, engine.drafter.context_kv, engine.drafter.head)

    def values(weight):
        if isinstance(weight, Q8Weight):
            return [weight.data, weight.scale]
        return [weight.to_bf16()]

    options = {"max_context": 64, "weights": weights, "drafter_weights": drafter_weights}
    engines = [load(target, drafter, device=d, **options) for d in ("cuda", "cpu")]
    pairs = [[e.target.embedding, *(linear.weight for linear in linears(e))] for e in engines]
    for on_gpu, on_cpu in zip(*pairs, strict=True):
        for got, want in zip(values(on_gpu), values(on_cpu), strict=True):
            assert got.device == torch.device("cuda", 0)
            assert_bits_equal(got.cpu(), want)
    norms = [[layer.input_norm for layer in e.target.layers] + [e.target.norm] for e in engines]
    for got, want in zip(*norms, strict=True):
        assert got.is_cuda and torch.equal(got.cpu(), want)
