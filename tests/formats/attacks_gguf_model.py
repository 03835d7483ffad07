"""GGUF files that are well formed and say wrong things: of the model, of its tokenizer."""

from __future__ import annotations

import struct

from gguf_parts import BOOL, F32, I32, STRING, U8, U32, Attack, array, kv, number, string, text, tokens

HUGE = 2**31 - 1
_SIZES = (
    "block_count context_length embedding_length feed_forward_length attention.head_count "
    "attention.head_count_kv attention.key_length"
).split()
SETTINGS: dict[str, Attack] = {
    **{
        f"{key} is {what}": (kv(f"llama.{key}", entry), (f"llama.{key}",))
        for key in [*_SIZES, "vocab_size"]
        for what, entry in {
            "0": number(U32, 0),
            "2**32 - 1": number(U32, 2**32 - 1),
            "negative": number(I32, -4),
            "a float": number(F32, 4.0),
            "a text": string("4"),
            "a list": array(U32, [struct.pack("<I", 4)] * 2),
            "a boolean": number(BOOL, 1),
        }.items()
    },
    **{
        f"{key} is huge": (kv(f"llama.{key}", number(U32, HUGE - 1)), ("tensor",))
        for key in _SIZES
        if key not in ("context_length", "attention.head_count_kv", "attention.key_length")
    },
    "head_count_kv is huge": (
        kv("llama.attention.head_count_kv", number(U32, HUGE - 1)),
        ("not a multiple",),
    ),
    "key_length is huge": (kv("llama.attention.key_length", number(U32, HUGE - 1)), ("tensor",)),
    "context_length is huge": (kv("llama.context_length", number(U32, HUGE)), ()),
    **{
        f"{key} is missing": (kv(f"llama.{key}", None), (f"llama.{key} is missing",))
        for key in [*_SIZES[:5], "attention.layer_norm_rms_epsilon"]
    },
    **{
        f"{key} is {value}": (kv(f"llama.{key}", number(F32, value)), (f"llama.{key} is {value}",))
        for key in ("attention.layer_norm_rms_epsilon", "rope.freq_base")
        for value in (0.0, -1.0, float("nan"), float("inf"))
    },
    "epsilon is a boolean": (kv("llama.attention.layer_norm_rms_epsilon", number(BOOL, 1)), ("is True",)),
    **{
        f"architecture is {what}": (
            kv("general.architecture", entry),
            ("general.architecture is", "known: llama"),
        )
        for what, entry in {
            "missing": None,
            "unknown": string("gpt2"),
            "a number": number(U32, 1),
            "a list": array(STRING, [text("llama")]),
        }.items()
    },
    "a part of a model": (kv("split.count", number(U32, 2)), ("split",)),
    "a part of a text of models": (kv("split.count", string("2")), ("split",)),
    "an adapter": (kv("general.type", string("adapter")), ("adapter",)),
    "experts": (kv("llama.expert_count", number(U32, 8)), ("llama.expert_count = 8",)),
    "an unknown key": (kv("llama.attention.clamp_kqv", number(F32, 8)), ("clamp_kqv = 8.0",)),
    "a rope scaling nobody knows": (kv("llama.rope.scaling.type", string("su")), ("rope.scaling.type 'su'",)),
    "a rope scaling of a list": (kv("llama.rope.scaling.type", array(U8, [])), ("rope.scaling.type []",)),
    "a rope scaling without a factor": (
        kv("llama.rope.scaling.type", string("linear")),
        ("rope.scaling.factor",),
    ),
    "half of the head rotated": (
        kv("llama.rope.dimension_count", number(U32, 8)),
        ("rope.dimension_count is 8",),
    ),
}

_T = "tokenizer.ggml."
TOKENIZER: dict[str, Attack] = {
    "fewer tokens than rows": (kv(_T + "tokens", tokens(95)), ("95", "96")),
    "more tokens than rows": (kv(_T + "tokens", tokens(97)), ("97", "96")),
    "no tokens": (kv(_T + "tokens", None), (_T + "tokens",)),
    "tokens that are numbers": (kv(_T + "tokens", array(U8, [bytes(96)], 96)), (_T + "tokens",)),
    "tokens that are a number": (kv(_T + "tokens", number(U8, 96)), (_T + "tokens",)),
    "a token twice": (kv(_T + "tokens", array(STRING, [text("a")] * 96)), (_T + "tokens", "twice")),
    "types of other length": (kv(_T + "token_type", array(I32, [bytes(4)] * 95)), (_T + "token_type",)),
    "types that are a number": (kv(_T + "token_type", number(I32, 1)), (_T + "token_type",)),
    "no merges": (kv(_T + "merges", None), (_T + "merges",)),
    **{
        f"a merge of {what}": (kv(_T + "merges", array(STRING, [text(merge)])), (_T + "merges",))
        for what, merge in {
            "nothing": "",
            "one": "a",
            "three": "a b c",
            "strangers": "ö ü",
            "no result": "z z",
        }.items()
    },
    "a tokenizer of another kind": (kv(_T + "model", string("llama")), ("tokenizer 'llama'",)),
    "a tokenizer of a list": (kv(_T + "model", array(U8, [])), ("tokenizer []",)),
    "an unknown split": (kv(_T + "pre", string("deepseek-llm")), ("pre-tokenizer 'deepseek-llm'",)),
    "a split that is a list": (kv(_T + "pre", array(U8, [])), ("pre-tokenizer []",)),
    "no split": (kv(_T + "pre", None), ("pre-tokenizer None",)),
    **{
        f"{role} token is {what}": (kv(f"{_T}{role}_token_id", entry), (f"{role[:3]}", "_token_id"))
        for role in ("eos", "bos", "padding", "unknown")
        for what, entry in {
            "out of range": number(U32, 96),
            "negative": number(I32, -1),
            "a text": string("</s>"),
            "a list": array(U32, [bytes(4)]),
            "a boolean": number(BOOL, 1),
        }.items()
    },
    "a chat template that is a number": (
        kv("tokenizer.chat_template", number(U8, 1)),
        ("tokenizer.chat_template",),
    ),
    "a first token of spaces and colons": (
        lambda p: (
            p.set(_T + "tokens", array(STRING, [text("a b:$A :1 "), *(text(f"t{i}") for i in range(95))])),
            p.set(_T + "merges", array(STRING, [])),
            p.set(_T + "bos_token_id", number(U32, 0)),
            p.set(_T + "add_bos_token", number(BOOL, 1)),
        ),
        (_T + "bos_token_id",),
    ),
    "an empty token that is special": (
        lambda p: (
            p.set(_T + "tokens", array(STRING, [text(""), *(text(f"t{i}") for i in range(95))])),
            p.set(_T + "merges", array(STRING, [])),
        ),
        (),
    ),
}
