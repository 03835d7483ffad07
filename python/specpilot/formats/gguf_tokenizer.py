"""The tokenizer inside a GGUF file, rebuilt with the ``tokenizers`` library.

A GGUF names its pre-tokenizer (``tokenizer.ggml.pre``) instead of describing it, so each known name is
written out here; any other is refused, because a wrong split gives other tokens without any sign of it.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .errors import CheckpointError

_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
_TOKEN_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}

_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _words_and_digits(digits: str) -> str:
    """Contractions, words, digits, punctuation, line ends and white space, as Llama 3 and Qwen cut them."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _GPT2]),
    "llama-bpe": _split(_words_and_digits(r"\p{N}{1,3}")),
    "qwen2": _split(_words_and_digits(r"\p{N}")),
}


def build_tokenizer(source: str, metadata: dict[str, Any], rows: int) -> PreTrainedTokenizerBase:
    """A fast tokenizer with the file's special tokens and chat template, for an embedding of ``rows`` tokens."""
    model, pre = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or not isinstance(pre, str) or pre not in _PRE_TOKENIZERS:
        raise CheckpointError(
            f"{source}: tokenizer {model!r} with pre-tokenizer {pre!r} is not known (known: gpt2 with "
            f"{', '.join(_PRE_TOKENIZERS)}); use the model's Hugging Face directory"
        )
    tokens = _strings(source, metadata, "tokens")
    if len(tokens) != rows:
        raise CheckpointError(
            f"{source}: tokenizer.ggml.tokens has {len(tokens)} entries, token_embd.weight {rows} rows"
        )
    kinds = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise CheckpointError(
            f"{source}: tokenizer.ggml.token_type must have one entry for each of {len(tokens)} tokens"
        )
    merges: list[Any] = [tuple(merge.split(" ")) for merge in _strings(source, metadata, "merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise CheckpointError(f"{source}: tokenizer.ggml.tokens names a token twice")
    try:
        bpe = BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe")
    except Exception as e:  # the library has no error class of its own
        raise CheckpointError(f"{source}: tokenizer.ggml.merges do not fit the tokens: {e}") from e

    tokenizer = Tokenizer(bpe)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[pre]
    tokenizer.decoder = decoders.ByteLevel()
    added = [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    roles = {
        role: tokens[i]
        for key, role in _TOKEN_ROLES.items()
        if (i := _id(source, metadata, key, tokens)) is not None
    }
    if metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe") and "bos_token" in roles:
        bos = roles["bos_token"]
        try:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, vocabulary[bos])]
            )
        except ValueError as e:
            raise CheckpointError(f"{source}: the text {bos!r} of tokenizer.ggml.bos_token_id: {e}") from e
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, (str, type(None))):
        raise CheckpointError(f"{source}: tokenizer.chat_template is {template!r}, expected a text")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=template,
        clean_up_tokenization_spaces=False,
        **roles,
    )


def _strings(source: str, metadata: dict[str, Any], key: str) -> list[str]:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise CheckpointError(f"{source}: tokenizer.ggml.{key} must be a list of strings")
    return value


def _id(source: str, metadata: dict[str, Any], key: str, tokens: list[str]) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{key}_token_id")
    if value is not None and not (type(value) is int and 0 <= value < len(tokens)):
        raise CheckpointError(
            f"{source}: tokenizer.ggml.{key}_token_id is {value!r}, there are {len(tokens)} tokens"
        )
    return value
