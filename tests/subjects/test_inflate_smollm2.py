"""The default model and its drafter inflated: what is said and what is accepted stay; and what the weights of full size hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from specpilot import Engine, load, ops, zoo
from specpilot.formats import open_checkpoint

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from subjects.inflate import InflatedSource, Size, inflate_drafter, inflate_target, inflated_subject  # noqa: E402
from subjects.subject import engine  # noqa: E402

SMALL = Size(704, 1792, 31, 16, 4, 128, 49664, 5, 5)
CONTEXT = 512
PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number, and explain how it works.",
    "A train leaves at 9:40 and arrives at 13:05. How long does the journey take? Think step by step.",
    "Summarise the water cycle in one paragraph.",
)
NEW = 160


class Forced:
    """What an engine's target and drafter make of a text that is given.

    ``right``: tokens that the target would emit; ``deficits``: by how many logits it prefers another one, for each token;
    ``accepted``: tokens of a pass after some of the anchors.
    """

    def __init__(self, engine: Engine, prompt: list[int], text: list[int]) -> None:
        ids, first = [*prompt, *text], len(prompt)
        rows, work, valid = engine._rows, engine._work, engine.target.config.valid_vocab
        engine.acquire()
        rows.put(ids)
        rows.chain(0, len(ids))
        engine.target.forward(rows, len(ids), engine._kv, work, engine._taps)
        chosen = torch.zeros(1, dtype=torch.int32)
        self.right, self.deficits = 0, []
        for i in range(first, len(ids)):
            engine.target.logits(work, 1, torch.tensor([i - 1], dtype=torch.int32))
            ops.argmax(work.logits[:1], valid, chosen)
            self.right += int(chosen[0]) == ids[i]
            self.deficits.append(float(work.logits[0, chosen[0]] - work.logits[0, ids[i]]))
        drafter, block = engine.drafter, engine.drafter.block_size
        drafts, margins = torch.zeros(block - 1, dtype=torch.int32), torch.zeros(block - 1)
        self.accepted, done = [], 0
        for start in range(first, len(ids) - block, 3):
            drafter.place_context(done, start - done)
            drafter.extend(engine._taps.buffer[done:start], start - done)
            drafter.place_block(start, ids[start])
            drafter.draft(drafts, margins)
            same = drafts == torch.tensor(ids[start + 1 : start + block])
            self.accepted.append(1 + int(same.int().cumprod(0).sum()))
            done = start
        engine.release()


@pytest.mark.slow
@pytest.mark.parametrize("drafter_weights", ["w12", "q8"])
def test_text_and_acceptance_of_the_default_pair(smollm2, drafter_weights):
    with open_checkpoint(smollm2) as target, open_checkpoint(zoo.SHIPPED["smollm2-135m-dflash"]) as drafter:
        large = engine(
            inflated_subject(target, drafter, SMALL), max_context=CONTEXT, drafter_weights=drafter_weights
        )
    small = load(smollm2, max_context=CONTEXT, drafter_weights=drafter_weights)
    deficits, right, before_all, after_all = [], 0, [], []
    for text in PROMPTS:
        prompt = small.encode(text)
        tokens = small.decode(prompt, max_new_tokens=NEW, verify="ar", ignore_stop_ids=True).tokens
        before, after = Forced(small, prompt, tokens), Forced(large, prompt, tokens)
        assert before.right == len(tokens) and not any(before.deficits)
        right, deficits = right + after.right, deficits + after.deficits
        before_all, after_all = before_all + before.accepted, after_all + after.accepted
        chain = large.decode(prompt, max_new_tokens=40, verify="chain", ignore_stop_ids=True)
        assert (
            chain.tokens == large.decode(prompt, max_new_tokens=40, verify="ar", ignore_stop_ids=True).tokens
        )
    # Sums of the same terms in another order: near-ties fall otherwise. A logit here has a last place of 0.125.
    assert right >= 0.985 * len(deficits) and max(deficits) <= 0.25
    assert sum(d <= 0.125 for d in deficits) >= 0.99 * len(deficits)
    tau = sum(before_all) / len(before_all)
    assert tau > 3 and abs(sum(after_all) / len(after_all) / tau - 1) <= 0.02


def zeros(source: InflatedSource, prefix: str) -> float:
    """The share of zeros in all linear weights of a name that begins so; no tile of them may be all zeros."""
    total = count = 0
    for name in source.names():
        if name.startswith(prefix) and len(source.shape(name)) == 2:
            filled = source.tensor(name) != 0
            n, k = filled.shape
            tiles = filled.view(n // 16, 16, k // 64, 64)
            assert tiles.any(3).any(1).all(), f"{name}: an empty tile"
            total, count = total + filled.numel(), count + int((~filled).sum())
    return count / total


@pytest.mark.slow
def test_weights_of_full_size_are_filled(smollm2):
    with (
        open_checkpoint(smollm2) as checkpoint,
        open_checkpoint(zoo.SHIPPED["smollm2-135m-dflash"]) as drafts,
    ):
        config, target = inflate_target(checkpoint)
        draft_config, drafter = inflate_drafter(drafts)
        assert (config.hidden_size, config.vocab_size, config.valid_vocab) == (4096, 151936, 49152)
        assert (config.norm_denom, config.softmax_scale, config.qk_norm) == (576, 0.125, False)
        assert draft_config.tap_layers[:4] == (1, 10, 18, 27) and len(set(draft_config.tap_layers)) == 5
        assert draft_config.shape.head_norm_denom == 64 and draft_config.shape.norm_denom == 576
        assert 0.07 < zeros(target, "model.layers.7.") < 0.09
        assert zeros(target, "model.layers.33.") < 0.09
        assert 0.07 < zeros(drafter, "layers.0.") < 0.09
        assert zeros(drafter, "layers.4.") < 0.09 and zeros(drafter, "fc.") < 0.15
