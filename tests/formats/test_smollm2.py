"""The default model's GGUF against transformers' own reading of it: every tensor, the config, the tokens."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from specpilot.formats import open_checkpoint
from specpilot.models import ModelConfig

TEXTS = [
    "",
    "hello world",
    "in 1984, 3.14159 and 007",
    "  two  spaces\n\n\ttab \r\n \r\n end ",
    "it's don't I'LL we've",
    "Grüße aus 東京, e\u0301 \u00a0\u2003😀👩‍👩‍👧",
    "def f(x):\n    return x**2 != {'a': [1, 2]}\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "a<|endoftext|>b <repo_name>c<empty_output>",
    "x" * 100,
]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 12 + 34?"},
    {"role": "assistant", "content": "46"},
    {"role": "user", "content": "Thanks!"},
]


@pytest.fixture(scope="module")
def checkpoint(smollm2):
    with open_checkpoint(smollm2) as opened:
        yield opened


@pytest.fixture(scope="module")
def stock_tokenizer(smollm2):
    return AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name, local_files_only=True)


@pytest.mark.slow
def test_weights_are_those_transformers_dequantises(smollm2, checkpoint, assert_bits_equal):
    with torch.device("meta"):
        empty = LlamaForCausalLM(LlamaConfig(**checkpoint.config))
    stock = load_gguf_checkpoint(str(smollm2), return_tensors=True, model_to_load=empty)
    assert set(checkpoint.names()) == set(stock["tensors"]) == {name for name, _ in empty.named_parameters()}
    for name, value in stock["tensors"].items():
        assert checkpoint.shape(name) == tuple(value.shape), name
        assert_bits_equal(checkpoint.tensor(name), value.to(torch.bfloat16), name)

    ours, theirs = ModelConfig.from_dict(checkpoint.config), LlamaConfig(**stock["config"])
    for key in (
        "hidden_size",
        "intermediate_size",
        "head_dim",
        "vocab_size",
        "max_position_embeddings",
        "tie_word_embeddings",
    ):
        assert getattr(ours, key) == getattr(theirs, key), key
    assert ours.num_layers == theirs.num_hidden_layers
    assert (ours.num_heads, ours.num_kv_heads) == (theirs.num_attention_heads, theirs.num_key_value_heads)
    assert torch.tensor(ours.rms_norm_eps) == torch.tensor(
        theirs.rms_norm_eps
    )  # as fp32: the file holds no more
    assert ours.rope_parameters == theirs.rope_parameters and ours.eos_token_ids == (theirs.eos_token_id,)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:20]))
def test_tokens_are_transformers(checkpoint, stock_tokenizer, text):
    ours = checkpoint.tokenizer()
    ids = ours(text).input_ids
    assert ids == stock_tokenizer(text).input_ids
    assert ours.decode(ids) == stock_tokenizer.decode(ids) == text
    assert ours.decode(ids, skip_special_tokens=True) == stock_tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.slow
def test_special_tokens_and_chat_template_are_transformers(checkpoint, stock_tokenizer):
    ours = checkpoint.tokenizer()
    assert ours.special_tokens_map == stock_tokenizer.special_tokens_map
    assert ours.get_vocab() == stock_tokenizer.get_vocab()
    assert ours.get_added_vocab() == stock_tokenizer.get_added_vocab()
    for add in (False, True):
        chats = [
            t.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=add)
            for t in (ours, stock_tokenizer)
        ]
        assert chats[0] == chats[1] and "What is 12 + 34?" in chats[0]


def test_every_digit_is_a_token_of_its_own(checkpoint):
    """In any script, as the model was trained: transformers' conversion of GGUF files merges the rarer ones."""
    tokenizer = checkpoint.tokenizer()

    def ids(text: str) -> list[int]:
        return tokenizer(text).input_ids

    assert len(ids("1234567890")) == 10
    for text in ("1234", "12½", "٣٤", "a٣b"):
        assert ids(text) == [i for character in text for i in ids(character)]
        assert tokenizer.decode(ids(text)) == text


def test_its_generation_ends_at_im_end(checkpoint):
    assert checkpoint.eos_token_ids() == [checkpoint.tokenizer().convert_tokens_to_ids("<|im_end|>")] == [2]
