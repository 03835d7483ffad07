"""DFlash against the `dflash` package: fp32 slot by slot, bf16 up to near-ties; and what is refused, by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny_drafters as tiny
import tiny_targets
import torch
from dflash.model import build_target_layer_ids, extract_context_feature
from safetensors.torch import load_file, save_file
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from specpilot.drafters.dflash_config import default_tap_layers
from specpilot.engine.engine import DrafterMemory
from specpilot.engine.kv_cache import PagePool
from specpilot.engine.rows import SlotTable
from specpilot.ref import dflash as oracle

SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "use_sliding_window": True,
    "sliding_window": 500,
}
CASES = {
    "full": {},
    "default-taps": {"dflash_config": {"mask_token_id": tiny.MASK}, "num_hidden_layers": 3},
    "values-on-top": {"dflash_config": {}, "mask_token_id": tiny.MASK, "target_layer_ids": [1, 3]},
    "block-inside": {"dflash_config": {"mask_token_id": tiny.MASK, "target_layer_ids": [1], "block_size": 5}},
    "mha-32": {"num_key_value_heads": 4, "head_dim": 32},
    "biases": {"attention_bias": True},
    "causal": {"is_causal": True},
    "sliding": SLIDING,
    "sliding-both-ways": {**SLIDING, "is_causal": False},
}
MAX_CONTEXT = 320


class Pair:
    """A target and a drafter, ours and stock's, with the same weights."""

    def __init__(self, tmp_path, changes: dict, weights: str = "w12") -> None:
        self.stock_target = tiny_targets.stock("qwen3", num_hidden_layers=tiny.TARGET_LAYERS)
        self.stock = tiny.stock(**changes)
        target = tiny_targets.target_of(tiny_targets.save(self.stock_target, tmp_path / "target"))
        self.drafter = tiny.drafter_of(
            tiny.save(self.stock, tmp_path / "drafter"), tiny.parts_of(target), weights
        )

    @torch.no_grad()
    def taps(self, ids: list[int]) -> torch.Tensor:
        """Stock's context feature of all positions."""
        out = self.stock_target(torch.tensor([ids]), output_hidden_states=True)
        return extract_context_feature(out.hidden_states, self.stock.target_layer_ids)[0]

    @torch.no_grad()
    def stock_logits(self, taps: torch.Tensor, anchor: int) -> torch.Tensor:
        """The package's logits of the slots after the anchor, without a cache."""
        n = self.stock.block_size
        block = torch.tensor([[anchor] + [tiny.MASK] * (n - 1)])
        hidden = self.stock(
            position_ids=torch.arange(taps.shape[0] + n)[None],
            noise_embedding=self.stock_target.get_input_embeddings()(block),
            target_hidden=taps[None],
        )
        return self.stock.compute_logits(hidden[:, 1:], self.stock_target.lm_head)[0].float()

    def allocate(self, order=None, context_rows: int = 64) -> None:
        slots = MAX_CONTEXT + self.drafter.block_size
        pool = PagePool(order) if order else PagePool.of(-(-slots // 32))
        table = SlotTable(pool, 1, slots)
        self.drafter.allocate(DrafterMemory(table, slots, MAX_CONTEXT, context_rows))

    def both(self, taps: torch.Tensor, cuts: list[int], anchor: int, wanted: int | None = None):
        """Our drafts and margins, the context taken in by pieces that end at ``cuts``; a draft follows each piece."""
        ids = torch.full((self.drafter.block_size - 1,), -1, dtype=torch.int32)
        margins = torch.full((len(ids),), -1.0)
        for begin, end in zip([0, *cuts[:-1]], cuts, strict=True):
            self.drafter.place_context(begin, end - begin)
            self.drafter.extend(taps[begin:end].to(torch.bfloat16), end - begin)
            self.drafter.place_block(end, anchor)
            self.drafter.draft(ids[:wanted], margins[:wanted])
        return ids.tolist(), margins

    def draft(self, *args, **options) -> list[int]:
        return self.both(*args, **options)[0]


@pytest.fixture(params=CASES)
def pair(request, tmp_path):
    return Pair(tmp_path, CASES[request.param])


def prompt(n: int, seed: int = 3) -> list[int]:
    return torch.randint(tiny_targets.VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def test_fp32_logits_are_those_of_the_package(pair):
    drafter = pair.drafter
    assert tuple(pair.stock.target_layer_ids) == drafter.tap_layers
    assert pair.stock.block_size == drafter.block_size
    cos, sin = Qwen3RotaryEmbedding(pair.stock.config)(torch.zeros(1), torch.arange(200)[None])
    half = drafter.shape.head_dim // 2
    for n in (1, 40, 129):
        taps = pair.taps(prompt(n))
        want = pair.stock_logits(taps, anchor=11)
        got = oracle.draft_logits(drafter, taps, 11, cos[0, :, :half], sin[0, :, :half])
        assert (got - want).abs().max() <= 1e-4
        assert torch.equal(got.argmax(-1), want.argmax(-1))


def test_bf16_drafts_are_those_of_the_package_up_to_near_ties(pair):
    contexts = [(n, anchor) for n in (1, 33, 129, 290) for anchor in (0, 11, 90, 150)]
    taps = {n: pair.taps(prompt(n)) for n in (1, 33, 129, 290)}
    want = [pair.stock_logits(taps[n], anchor) for n, anchor in contexts]
    pair.stock.to(torch.bfloat16)
    pair.stock_target.to(torch.bfloat16)
    noise = [pair.stock_logits(taps[n].bfloat16(), a) - w for (n, a), w in zip(contexts, want, strict=True)]
    # Stock's own bf16 against its fp32: a logit moves by up to this, a gap of two by twice as much.
    eps = 2 * max(d.abs().max().item() for d in noise)
    pair.allocate(context_rows=512)
    same = total = 0
    for (n, anchor), logits in zip(contexts, want, strict=True):
        got = torch.tensor(pair.draft(taps[n], [n], anchor))
        deficit = logits.max(-1).values - logits.gather(1, got[:, None])[:, 0]
        assert (deficit <= eps).all(), (n, anchor, deficit, eps)
        same, total = same + int((deficit == 0).sum()), total + len(got)
    assert same >= 0.8 * total, (same, total, eps)


@pytest.mark.parametrize("weights", ["w12", "q8"])
def test_drafts_do_not_depend_on_how_the_context_came_in(tmp_path, weights, assert_bits_equal):
    """Pieces of any size with drafts between them (whose K and V the context overwrites), any page order, any width."""
    pair = Pair(tmp_path, {}, weights)
    taps = pair.taps(prompt(200))
    pair.allocate(context_rows=256)
    pair.draft(taps, [200], 11)
    logits = pair.drafter._logits  # drafts of a random drafter are often one token: its logits tell more
    whole = logits.clone()
    assert whole.unique().numel() > 100
    for cuts in ([64, 128, 200], list(range(1, 201)), [3, 5, 13, 20, 127, 129, 199, 200]):
        pair.allocate(order=[7, 3, 9, 1, 0, 10, 5, 2, 8, 4, 6], context_rows=256)
        pair.draft(taps, cuts, 11)
        assert_bits_equal(pair.drafter._logits, whole, f"context in {len(cuts)} pieces")
    ids, margins = pair.both(taps, [200], 11)
    first, second = pair.drafter._logits[:, : pair.drafter.target.vocab].float().topk(2).values.T
    assert_bits_equal(margins, first - second, "margins")
    for wanted in range(1, len(whole)):
        assert pair.draft(taps, [200], 11, wanted) == ids[:wanted] + [-1] * (len(ids) - wanted)
        assert_bits_equal(pair.drafter._logits[:wanted], whole[:wanted], f"{wanted} wanted")


def test_logits_in_8_bits_are_near_those_of_the_package(tmp_path):
    """Nearer than a twentieth of their spread; and the weights alone, in fp32, are nearer still."""
    pair = Pair(tmp_path, {}, "q8")
    drafter, taps = pair.drafter, pair.taps(prompt(129))
    assert drafter.head.weight.n == drafter.target.vocab and drafter.fc.weight.format == "w12"
    want = pair.stock_logits(taps, anchor=11)
    cos, sin = Qwen3RotaryEmbedding(pair.stock.config)(torch.zeros(1), torch.arange(200)[None])
    half = drafter.shape.head_dim // 2
    rounded = oracle.draft_logits(drafter, taps, 11, cos[0, :, :half], sin[0, :, :half])
    pair.allocate(context_rows=256)
    pair.draft(taps, [129], 11)
    got = drafter._logits[:, : drafter.target.vocab].float()
    error, of_weights = (got - want).std() / want.std(), (rounded - want).std() / want.std()
    assert 0 < of_weights < error < 0.05, (of_weights, error)


def test_weights_that_8_bits_cannot_hold_are_refused_by_name(saved):
    directory, parts = saved
    path = directory / "model.safetensors"
    tensors = load_file(path)
    tensors["layers.1.mlp.down_proj.weight"][3, 5] = float("inf")
    save_file(tensors, path)
    message = "layers.1.mlp.down_proj: row 3 has an infinity or NaN; use drafter_weights='w12'"
    with pytest.raises(ValueError, match=message) as e:
        tiny.drafter_of(directory, parts, "q8")
    assert str(directory) in str(e.value)
    tiny.drafter_of(directory, parts, "w12")


def test_the_last_block_of_a_context_fits(tmp_path):
    pair = Pair(tmp_path, {})
    pair.allocate(context_rows=MAX_CONTEXT)
    assert min(pair.draft(pair.taps(prompt(MAX_CONTEXT)), [MAX_CONTEXT], 11)) >= 0


def test_default_taps_are_stocks():
    for target in (5, 28, 30, 32, 36, 40, 64):
        for layers in (1, 2, 4, 5, 8):
            assert default_tap_layers(target, layers) == build_target_layer_ids(target, layers)


@pytest.fixture
def saved(tmp_path):
    """(drafter directory, parts of a target it fits)."""
    model = tiny_targets.stock("llama", num_hidden_layers=tiny.TARGET_LAYERS)
    target = tiny_targets.target_of(tiny_targets.save(model, tmp_path / "target"))
    return tiny.save(tiny.stock(), tmp_path / "drafter"), tiny.parts_of(target)


def own(**values) -> dict:
    return {"dflash_config": {"mask_token_id": 1, **values}}


REFUSED = {  # message → (changes of the drafter's config, changes of the target)
    "hidden size 64 in the drafter, 96 in the target": ({}, {"hidden": 96}),
    "target layers 6 in the drafter, 8 in the target": ({}, {"layers": 8}),
    "vocabulary 160 in the drafter, 192 in the target": ({}, {"vocab": 192}),
    "mask token 160, the target has ids 0 to 159": (own(mask_token_id=160), {}),
    r"taps layers \[0, 5\], the target offers layers 0 to 4": (own(target_layer_ids=[0, 5]), {}),
    "mask_token_id is '<mask>', expected an integer": (own(mask_token_id="<mask>"), {}),
    "conv_kernel_size, selector_rank": (own(conv_kernel_size=2, selector_rank=4), {}),
    "attention_sink_bias": ({"attention_sink_bias": True}, {}),
    "hidden_act is 'gelu'": ({"hidden_act": "gelu"}, {}),
    "input_embedding_scale is 8.0": ({"input_embedding_scale": 8.0}, {}),
    "layer_types .*chunked": ({"layer_types": ["full_attention", "chunked"]}, {}),
    "sliding_window is None": ({"layer_types": ["full_attention", "sliding_attention"]}, {}),
    "block_size is 1": ({"block_size": 1}, {}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_by_name(saved, message):
    directory, parts = saved
    config, target = REFUSED[message]
    tiny.edit(directory, **config)
    with pytest.raises(ValueError, match=message) as e:
        tiny.drafter_of(directory, replace(parts, **target))
    assert str(directory) in str(e.value)


@pytest.mark.parametrize(
    "name", ["embed_tokens.weight", "lm_head.weight", "layers.0.attention_conv.base_kernel"]
)
def test_unknown_tensors_are_refused_by_name(saved, name):
    directory, parts = saved
    path = directory / "model.safetensors"
    save_file({**load_file(path), name: torch.zeros(2, 2, dtype=torch.bfloat16)}, path)
    with pytest.raises(ValueError, match=name):
        tiny.drafter_of(directory, parts)


@pytest.mark.parametrize(
    "name", ["fc.weight", "layers.1.self_attn.k_proj.weight", "layers.0.self_attn.q_norm.weight"]
)
def test_missing_tensors_are_refused_by_name(saved, name):
    directory, parts = saved
    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path)
    with pytest.raises(ValueError, match=f"{name} is missing"):
        tiny.drafter_of(directory, parts)


def test_a_window_that_would_slide_is_refused_with_the_way_out(tmp_path):
    pair = Pair(tmp_path, {**SLIDING, "sliding_window": 100})
    with pytest.raises(ValueError, match=r"sliding window of 100.*max_context <= 92, not 320"):
        pair.allocate()
