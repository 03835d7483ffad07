"""The default model on a GPU: every mode has the tokens of one-token decoding, and stock transformers could have emitted them."""

from __future__ import annotations

import pytest
from gpu import needs_gpu

from specpilot import devices, load
from specpilot.benchmark.prompts import BUILT_IN
from specpilot.forcing import Answer, calibrate, stock_model, verdict
from specpilot.formats import open_checkpoint

pytestmark = [needs_gpu, pytest.mark.slow]
PROMPTS, NEW = BUILT_IN[:4], 128


@pytest.fixture(scope="module")
def engine(smollm2):
    return load(smollm2, device="cuda", max_context=1024)


@pytest.fixture(scope="module")
def answers(engine):
    found = [engine.decode(p, max_new_tokens=NEW, verify="ar") for p in PROMPTS]
    return [Answer(tuple(r.prompt_tokens), tuple(r.tokens)) for r in found]


@pytest.mark.parametrize("sync_free", [True, False])
@pytest.mark.parametrize("verify", ["ar", "chain", "auto"])
def test_every_mode_has_the_tokens_of_one_token_decoding(engine, answers, verify, sync_free, monkeypatch):
    monkeypatch.setattr(engine, "sync_free", sync_free)
    for answer in answers:
        got = engine.decode(list(answer.prompt), max_new_tokens=NEW, verify=verify)
        assert tuple(got.tokens) == answer.tokens
        assert verify != "chain" or got.stats.tau > 2


def test_weights_of_12_bits_are_the_weights(smollm2, answers):
    plain = load(smollm2, device="cuda", max_context=1024, weights="bf16")
    for answer in answers:
        for verify in ("ar", "chain"):
            got = plain.decode(list(answer.prompt), max_new_tokens=NEW, verify=verify)
            assert tuple(got.tokens) == answer.tokens


def test_stock_transformers_could_have_emitted_them(engine, smollm2, answers):
    with open_checkpoint(smollm2) as checkpoint:
        model = stock_model(checkpoint, devices.resolve("cuda"))
    calibration = calibrate(model, [(a.prompt, a.tokens) for a in answers])
    found = verdict(model, answers, calibration, max_new_tokens=NEW, stop_ids=sorted(engine.stop_ids))
    assert found.fails == 0 and not found.findings, found.line()
