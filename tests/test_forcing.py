"""Token forcing passes honest tokens, counts ties, and fails what no faithful decoder would have emitted."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from gpu import DEVICES
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from specpilot import forcing, stock
from specpilot.forcing import (
    Answer,
    Calibration,
    binomial_tail,
    calibrate,
    faults,
    score,
    stock_model,
    verdict,
)
from specpilot.formats import open_checkpoint

NEW = 48
VOCAB = 256


def save_model(path, **options):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCAB,
        initializer_range=0.3,
        **options,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The models are too small for torch's threads, which starve on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=DEVICES)
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("stock")
    save_model(path)
    return stock_model(open_checkpoint(path), request.param)


def decode(model, prompt, choose=lambda logits: int(logits.argmax())):
    """Stock decoding without a cache; ``choose`` picks each token from the fp32 logits."""
    tokens = []
    with torch.inference_mode():
        while len(tokens) < NEW:
            z = model(
                torch.tensor([[*prompt, *tokens]], device=model.device), use_cache=False, logits_to_keep=1
            ).logits
            tokens.append(choose(z[0, -1].float()))
    return tokens


@pytest.fixture(scope="module")
def answers(model):
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, VOCAB, (12,), generator=generator).tolist() for _ in range(8)]
    return [Answer(p, decode(model, p)) for p in prompts]


@pytest.fixture(scope="module")
def calibration(model, answers):
    return calibrate(model, [(a.prompt, a.tokens) for a in answers])


def judge(model, answers, calibration, **options):
    return verdict(model, answers, calibration, **{"max_new_tokens": NEW, "stop_ids": [], **options})


@pytest.mark.parametrize("tied", [False, True])
def test_stock_model_is_what_transformers_loads(tmp_path, tied):
    save_model(tmp_path, tie_word_embeddings=tied)
    ours = stock_model(open_checkpoint(tmp_path))
    theirs = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    ids = torch.arange(40)[None]
    with torch.inference_mode():
        assert torch.equal(ours(ids).logits.view(torch.int16), theirs(ids).logits.view(torch.int16))
    assert (ours.lm_head.weight is ours.model.embed_tokens.weight) == tied


def test_stock_model_refuses_missing_and_unknown_tensors(tmp_path):
    save_model(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.wait"] = tensors.pop("model.norm.weight")
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"missing keys .*model\.norm\.weight"):
        stock_model(open_checkpoint(tmp_path))
    tensors["model.norm.weight"] = tensors["model.norm.wait"].clone()
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"unexpected keys .*model\.norm\.wait"):
        stock_model(open_checkpoint(tmp_path))


def test_score_is_the_deficit_of_the_full_logits(model, answers, monkeypatch):
    a = answers[0]
    with torch.inference_mode():
        ids = torch.tensor([[*a.prompt, *a.tokens]], device=model.device)
        z = model(ids).logits[0, len(a.prompt) - 1 : -1].float().cpu()
    monkeypatch.setattr(stock, "LOGIT_ROWS", 7)
    monkeypatch.setattr(forcing, "LOGIT_ROWS", 7)
    wrong = [
        (t + 1) % VOCAB for t in a.tokens[:-1]
    ]  # another answer of the same prefix is scored on its own prefix
    s = score(model, a.prompt, a.tokens)
    noise = 0.2  # the head's rows come in other numbers, so in another order
    torch.testing.assert_close(s.deficit, z.amax(1) - z[range(NEW), a.tokens], atol=noise, rtol=0)
    torch.testing.assert_close(s.gap, -z.topk(2).values.diff()[:, 0], atol=noise, rtol=0)
    other = score(model, a.prompt, wrong)
    assert torch.allclose(other.deficit[0], z[0].max() - z[0, wrong[0]], atol=noise)
    assert not torch.allclose(other.gap[1:], s.gap[1:-1], atol=noise)


@pytest.mark.parametrize("mode", list(stock.MODES))
@pytest.mark.parametrize("prompt", [1, 31, 32, 33])
def test_modes_see_the_same_positions(model, mode, prompt):
    """Off by one position, the logits would differ by far more than noise."""
    ids = torch.randint(0, VOCAB, (prompt + 40,), generator=torch.Generator().manual_seed(prompt)).tolist()
    with torch.inference_mode():
        z = model(torch.tensor([ids], device=model.device)).logits[0, prompt - 1 : -1].float().cpu()
    got = torch.cat(list(stock.stock_logits(model, ids[:prompt], ids[prompt:], mode)))
    assert got.shape == z.shape
    assert (got - z).abs().max() < 0.4 < (z[1:] - z[:-1]).abs().amax(1).min()


def test_calibration_is_positive_and_small(calibration, answers):
    assert 0 < calibration.eps < 0.5
    assert calibration.eps == 2 * calibration.quantiles["1"] >= 2 * calibration.quantiles["0.5"]
    assert calibration.positions == NEW * len(answers)
    assert calibration.p0 == (calibration.stock_ties + 1) / (calibration.positions + 2) < 0.05


def test_calibration_refuses_a_wide_gate_and_an_empty_set(model, answers, calibration):
    with pytest.raises(ValueError, match="above the cap"):
        calibrate(model, [(answers[0].prompt, answers[0].tokens)], cap=1e-6)
    with pytest.raises(ValueError, match="nothing to calibrate"):
        calibrate(model, [])


def test_honest_tokens_pass(model, answers, calibration):
    v = judge(model, answers, calibration)
    assert v.ok and v.fails == 0 and v.passes > 0.97 * v.positions == 0.97 * NEW * len(answers), v.line()
    assert 0 < v.blind < 0.5 * v.positions


def test_planted_wrong_tokens_fail_and_are_named(model, answers, calibration):
    planted = []
    for a in answers[:3]:
        tokens = list(a.tokens)
        at = int(score(model, a.prompt, a.tokens).gap.argmax())
        tokens[at] = (tokens[at] + 1) % VOCAB
        planted.append((at, Answer(a.prompt, tokens)))
    v = judge(model, [a for _, a in planted], calibration)
    assert not v.ok and v.fails >= len(planted)
    for number, (at, a) in enumerate(planted):
        assert any(f"answer {number}, position {at}: token {a.tokens[at]} " in f for f in v.findings), (
            v.findings
        )


def test_relaxed_acceptance_exceeds_the_tie_budget(model, answers, calibration):
    """Takes the runner-up wherever it is close to the best: no single token of it can be called a fail."""

    def relaxed(logits):
        values, ids = logits.topk(2)
        return int(ids[1] if values[0] - values[1] <= calibration.eps / 2 else ids[0])

    cheat = [Answer(a.prompt, decode(model, a.prompt, relaxed)) for a in answers]
    v = judge(model, cheat, calibration)
    assert v.fails == 0 and v.ties > 10 and v.p_value < 1e-3 and not v.ok, v.line()


def test_the_tie_budget_is_one_sided_and_strict(model, answers, calibration):
    assert binomial_tail(0, 100, 0.01) == 1.0
    assert binomial_tail(2, 3, 0.5) == pytest.approx(0.5)
    assert binomial_tail(5, 400, 0.005) == pytest.approx(0.0518, abs=1e-3)
    v = judge(model, answers, calibration)
    budget = next(k for k in range(v.positions) if binomial_tail(k, v.positions, v.p0) < v.alpha)
    assert replace(v, ties=budget - 1, passes=v.positions - budget + 1).ok
    assert not replace(v, ties=budget, passes=v.positions - budget).ok


def test_a_fail_that_a_stock_mode_emits_is_a_tie_and_logged(model, answers, calibration, monkeypatch, caplog):
    a = answers[0]
    tokens = list(a.tokens)
    tokens[3] = (tokens[3] + 1) % VOCAB

    def lenient(model, ids, start):  # a stock mode that would have emitted the planted token
        rows = stock.MODES["prefill"][0](model, ids, start)
        rows[3] = 100 * model.get_output_embeddings().weight[tokens[3]]
        return rows

    strict = judge(model, [replace(a, tokens=tokens[:4])], calibration, max_new_tokens=4)
    assert strict.fails == 1 and strict.findings
    monkeypatch.setitem(stock.MODES, "decode", (lenient, 1))
    with caplog.at_level(logging.WARNING):
        v = judge(model, [replace(a, tokens=tokens[:4])], calibration, max_new_tokens=4)
    assert v.fails == 0 and v.ties == 1 and len(v.reclassified) == 1 and "answer 0, position 3" in caplog.text


def test_ties_that_are_the_drafters_are_counted(model, answers):
    wide = Calibration(eps=1e6, p0=0.5, positions=1, stock_ties=0, quantiles={})
    tokens = [(t + 1) % VOCAB for t in answers[0].tokens]
    proposals = [tokens[0], (tokens[1] + 1) % VOCAB, -1, *tokens[3:]]
    v = judge(model, [Answer(answers[0].prompt, tokens, proposals)], wide)
    assert (v.ties, v.known_ties, v.drafted_ties) == (NEW, NEW - 1, NEW - 2)


def test_ends_of_answers():
    assert not faults([1, 2, 3], 3, [9])
    assert not faults([1, 9], 3, [9]) and not faults([9], 3, [9]) and not faults([1, 2, 9], 3, [8, 9])
    assert "2 tokens after the stop id 9 at position 0" in faults([9, 1, 2], 3, [9])[0]
    assert "2 tokens, expected 3 or a stop id" in faults([1, 2], 3, [9])[0]
    assert "4 tokens, expected 3" in faults([1, 2, 3, 9], 3, [9])[0]


def test_nan_logits_fail(model, answers, calibration, monkeypatch):
    def broken(model, ids, start):
        return torch.full((len(ids) - 1 - start, 64), torch.nan, dtype=torch.bfloat16)

    for mode in stock.MODES:
        monkeypatch.setitem(stock.MODES, mode, (broken, 64))
    assert judge(model, answers[:1], calibration).fails == NEW


def test_bad_ids_are_named(model):
    with pytest.raises(ValueError, match="prompt is empty"):
        score(model, [], [1])
    with pytest.raises(ValueError, match="answer token 1 is 256, expected 0 to 255"):
        score(model, [1], [1, 256])
    with pytest.raises(ValueError, match="prompt token 0 is -1"):
        score(model, [-1], [1])
