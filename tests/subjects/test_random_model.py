"""Random subjects: their tensors, their statistics, and that an engine decodes with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from specpilot import zoo
from specpilot.drafters.replay import Replay, SurvivalLaw
from specpilot.formats import open_checkpoint
from specpilot.formats.run_layout import run_weight

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from subjects import exponents, published, shapes  # noqa: E402
from subjects.draft_log import load_log  # noqa: E402
from subjects.random_model import random_subject  # noqa: E402
from subjects.subject import engine  # noqa: E402

LAW = torch.tensor(exponents.LAW, dtype=torch.float64)


@pytest.mark.slow
def test_the_law_is_that_of_the_shipped_drafter():
    counts = torch.zeros(len(LAW), dtype=torch.int64)
    with open_checkpoint(zoo.SHIPPED["smollm2-135m-dflash"]) as checkpoint:
        for name in checkpoint.names():
            if len(checkpoint.shape(name)) == 2:
                counts += exponents.measure(checkpoint.tensor(name))
    assert torch.allclose(counts.double() / counts.sum(), LAW, rtol=2e-3, atol=2e-7)


def test_random_weights_follow_the_law():
    weight = exponents.random_weight((1024, 4096), torch.Generator().manual_seed(0))
    counts = exponents.measure(weight)
    assert torch.allclose(counts.double() / counts.sum(), LAW, rtol=0.05, atol=5e-6)
    values = weight.float()
    assert abs(values.mean()) < 1e-4 and 0.02 < values.std() < 0.03
    packed = run_weight([weight])
    assert packed.format == "w12" and 1e-4 < packed.exc_pos.numel() / weight.numel() < 4e-4
    assert not torch.equal(weight, exponents.random_weight((1024, 4096), torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    "name, parameters, draft_parameters, block",
    [("qwen3-8b", 8.19e9, 1.049e9, 16), ("llama-3.1-8b", 8.03e9, None, 10)],
)
def test_sizes_are_the_published_ones(name, parameters, draft_parameters, block):
    subject = random_subject(name)

    def count(source) -> int:
        return sum(torch.Size(source.shape(n)).numel() for n in source.names())

    assert abs(count(subject.target) / parameters - 1) < 1e-3
    assert draft_parameters is None or abs(count(subject.drafter) / draft_parameters - 1) < 1e-3
    assert subject.draft_config.block_size == block and len(subject.draft_config.tap_layers) == 5
    assert name != "qwen3-8b" or subject.draft_config.tap_layers == (1, 9, 17, 25, 33)


def test_an_unknown_shape_is_refused():
    with pytest.raises(ValueError, match="no shape 'gpt-2'; known: qwen3-8b, llama-3.1-8b"):
        random_subject("gpt-2")


@pytest.mark.parametrize("name", shapes.TARGETS)
def test_an_engine_decodes_with_a_random_subject(name):
    subject = random_subject(name, layers=6, changes=shapes.TINY)
    law = SurvivalLaw.of(load_log().first(subject.draft_config.block_size - 1), 3.0)
    made = engine(subject, max_context=256, wrap=lambda inner: Replay(inner, law))
    prompt = list(range(3, 40))
    ar = made.decode(prompt, max_new_tokens=80, verify="ar")
    made.drafter.follow(prompt, ar.tokens, request=0)
    chain = made.decode(prompt, max_new_tokens=60, verify="chain")
    assert chain.tokens == ar.tokens[:60] and 1.5 < chain.stats.tau < 5
    assert made._work.logits.isfinite().all() and made._work.hidden.isfinite().all()


def test_published_acceptance_can_be_drawn_from_the_log():
    assert round(published.mean_tau("qwen3-8b"), 2) == 6.24
    log = load_log()
    law = SurvivalLaw.of(log, log.tau)
    assert abs(law.margins.max() / log.margins.max() - 1) < 0.15, (
        "unscaled, the law nearly gives the log's own τ"
    )
    for name in published.BENCHMARKS:
        assert load_log(name).margins.shape == (12, 24, 15)
        for tau in (published.TAU["qwen3-8b"][name], published.LLAMA_TAU):
            assert abs(SurvivalLaw.of(load_log(name), tau).tau - tau) < 1e-4
    with pytest.raises(ValueError, match="no prompt set 'gsm9k'"):
        load_log("gsm9k")
