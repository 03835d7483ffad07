"""Inflation leaves the function as it is: fp32 logits of tiny models, and of the default model text and acceptance."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tiny_drafters
import tiny_targets
import torch
from dflash.model import extract_context_feature
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specpilot.drafters.dflash import DFlashDraftModel
from specpilot.formats import open_checkpoint
from specpilot.models import MODELS
from specpilot.ref import dflash as draft_oracle
from specpilot.ref import model as oracle

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from subjects.inflate import Size, inflate_drafter, inflate_target  # noqa: E402

# Tiny: hidden 64, MLP 96, heads 4/2 of 16, vocabulary 160; the target has 6 layers, the drafter 2 with 3 taps.
SIZES = {
    "everything": Size(160, 256, 8, 9, 3, 32, 200, 3, 4),
    "heads-alone": Size(64, 96, 6, 12, 3, 64, 160, 2, 3),
    "widths-alone": Size(128, 160, 6, 4, 2, 16, 160, 2, 3),
}


class Pair:
    """A tiny target and drafter as stock has them, and ours inflated."""

    def __init__(self, tmp_path, size: Size, tied: bool) -> None:
        self.stock = tiny_targets.stock(
            "llama", num_hidden_layers=tiny_drafters.TARGET_LAYERS, tie_word_embeddings=tied
        )
        self.stock_drafter = tiny_drafters.stock()
        target = open_checkpoint(tiny_targets.save(self.stock, tmp_path / "target"))
        drafter = open_checkpoint(tiny_drafters.save(self.stock_drafter, tmp_path / "drafter"))
        self.target_config, self.target_source = inflate_target(target, size)
        self.draft_config, self.drafter_source = inflate_drafter(drafter, size)
        self.target = MODELS["LlamaForCausalLM"](self.target_config, self.target_source, "w12")
        self.drafter = DFlashDraftModel(
            self.draft_config, self.drafter_source, tiny_drafters.parts_of(self.target), "w12"
        )
        # The large head's frequencies, of which the small head's are some.
        rope = LlamaRotaryEmbedding(tiny_targets.config_of("llama", head_dim=size.head_dim))
        cos, sin = rope(torch.zeros(1), torch.arange(200)[None])
        self.cos, self.sin = (t[0, :, : size.head_dim // 2] for t in (cos, sin))


@pytest.fixture(params=SIZES)
def pair(request, tmp_path):
    return Pair(tmp_path, SIZES[request.param], tied=request.param == "everything")


IDS = torch.randint(tiny_targets.VOCAB, (150,), generator=torch.Generator().manual_seed(1)).tolist()


@torch.no_grad()
def test_fp32_logits_and_taps_are_those_of_the_small_model(pair):
    want = pair.stock(torch.tensor([IDS]), output_hidden_states=True)
    got, outputs = oracle.forward(pair.target, IDS, pair.cos, pair.sin)
    size = float(want.logits.abs().max())
    assert (got[:, : tiny_targets.VOCAB] - want.logits[0]).abs().max() <= 1e-5 * size

    stock_taps = extract_context_feature(want.hidden_states, pair.stock_drafter.target_layer_ids)[0]
    taps = torch.cat([outputs[j] for j in pair.drafter.tap_layers], dim=1)
    small = pair.stock.config.hidden_size
    live = torch.arange(small) * pair.target.shape.hidden // small
    for t, tap in enumerate(stock_taps.split(small, dim=1)):
        ours = outputs[pair.drafter.tap_layers[t]]
        assert (ours[:, live] - tap).abs().max() <= 1e-5 * float(tap.abs().max())
        ours[:, live] = 0
        assert not ours.any(), "a dead dim of the residual stream is not zero"

    block = torch.tensor([[11] + [tiny_drafters.MASK] * (pair.stock_drafter.block_size - 1)])
    hidden = pair.stock_drafter(
        position_ids=torch.arange(len(IDS) + block.shape[1])[None],
        noise_embedding=pair.stock.get_input_embeddings()(block),
        target_hidden=stock_taps[None],
    )
    want_drafts = pair.stock_drafter.compute_logits(hidden[:, 1:], pair.stock.lm_head)[0]
    taps = torch.cat(
        [oracle.forward(pair.target, IDS, pair.cos, pair.sin)[1][j] for j in pair.drafter.tap_layers], 1
    )
    drafts = draft_oracle.draft_logits(pair.drafter, taps, 11, pair.cos, pair.sin)[:, : tiny_targets.VOCAB]
    assert (drafts - want_drafts).abs().max() <= 2e-5 * float(want_drafts.abs().max())


def test_tensors_do_not_depend_on_the_order_in_which_they_are_asked_for(pair):
    name = pair.target_source.names()[3]
    first = pair.target_source.tensor(name)
    pair.target_source.tensor(pair.target_source.names()[1])
    assert torch.equal(pair.target_source.tensor(name), first)
    assert all(
        pair.target_source.tensor(n).shape == pair.target_source.shape(n) for n in pair.target_source.names()
    )


def test_what_cannot_be_inflated_is_refused_by_name(tmp_path):
    target = open_checkpoint(tiny_targets.save(tiny_targets.stock("llama"), tmp_path / "llama"))
    good = Size(128, 128, 4, 4, 2, 16, 160, 2, 3)
    for change, word in (
        ({"hidden": 32}, "hidden size"),
        ({"head_dim": 24}, "a divisor"),
        ({"heads": 2}, "heads a group"),
        ({"layers": 3}, "3 layers"),
        ({"vocab": 100}, "100 ids"),
    ):
        with pytest.raises(ValueError, match=word):
            inflate_target(target, Size(**(good.__dict__ | change)))
    qwen = open_checkpoint(tiny_targets.save(tiny_targets.stock("qwen3"), tmp_path / "qwen"))
    with pytest.raises(ValueError, match="Qwen3ForCausalLM, expected LlamaForCausalLM"):
        inflate_target(qwen, good)
