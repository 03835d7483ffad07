"""Tokenizers inside GGUF files: how they cut text, against transformers' own; special tokens; what comes first."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode

from specpilot.formats import CheckpointError, gguf_tokenizer

BYTES = sorted(bytes_to_unicode().values())
TOKENS = [*BYTES, "ab", "Ġa", "<s>", "</s>", "<think>", "<|odd: one $A|>"]
KINDS = [1] * len(BYTES) + [1, 1, 3, 3, 4, 3]
TEXT = st.text(st.sampled_from("aBé东½٣3 \t\n\r'sLl.,!-_  e\u0301😀")) | st.text()


def built(pre: str = "gpt-2", **metadata):
    entries = {
        "model": "gpt2",
        "pre": pre,
        "tokens": TOKENS,
        "merges": ["a b", "Ġ a"],
        "token_type": KINDS,
        "bos_token_id": TOKENS.index("<s>"),
        "eos_token_id": TOKENS.index("</s>"),
        **metadata,
    }
    named = {f"tokenizer.ggml.{key}": value for key, value in entries.items() if value is not None}
    named["tokenizer.chat_template"] = "{{ bos_token }}{{ messages[0].content }}"
    return gguf_tokenizer.build_tokenizer("m.gguf", named, len(TOKENS))


def pieces(pre_tokenizer, text: str) -> list[tuple[str, tuple[int, int]]]:
    return pre_tokenizer.pre_tokenize_str(text)


QWEN2 = Qwen2Tokenizer(vocab={token: i for i, token in enumerate(TOKENS)}, merges=[])._tokenizer.pre_tokenizer


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_text_is_cut_as_qwen2_cuts_it(text):
    assert pieces(gguf_tokenizer._PRE_TOKENIZERS["qwen2"], text) == pieces(QWEN2, text)


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_text_is_cut_as_llama3_cuts_it(text):
    stock = gguf_tokenizer._split(TikTokenConverter().pattern)  # the pattern of tiktoken models
    assert pieces(gguf_tokenizer._PRE_TOKENIZERS["llama-bpe"], text) == pieces(stock, text)


@pytest.mark.parametrize("pre", gguf_tokenizer._PRE_TOKENIZERS)
@settings(max_examples=50, deadline=None)
@given(text=TEXT)
def test_text_comes_back(pre, text):
    tokenizer = built(pre, add_bos_token=False)
    if pre == "qwen2":
        text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_special_tokens_are_single_and_can_be_left_out():
    tokenizer = built()
    text = "ab<s><think>ab</s><|odd: one $A|> a"
    ids = tokenizer(text).input_ids
    assert [TOKENS[i] for i in ids] == ["ab", "<s>", "<think>", "ab", "</s>", "<|odd: one $A|>", "Ġa"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab<think>ab a"  # user-defined tokens are text
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "<s>hi"


@pytest.mark.parametrize(
    "pre, add, first",
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_what_comes_first(pre, add, first):
    ids = built(pre, add_bos_token=add)("ab").input_ids
    assert [TOKENS[i] for i in ids] == ["<s>", "ab"][not first :]
    assert [TOKENS[i] for i in built(pre, add_bos_token=add)("ab", add_special_tokens=False).input_ids] == [
        "ab"
    ]


def test_a_first_token_that_cannot_be_one_is_refused():
    """The library's templates have no way to quote a colon."""
    with pytest.raises(
        CheckpointError, match=r"m\.gguf: the text '<\|odd: one \$A\|>' of tokenizer.ggml.bos_token_id"
    ):
        built(bos_token_id=TOKENS.index("<|odd: one $A|>"), add_bos_token=True)
