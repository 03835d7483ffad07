"""What a user may pass as a prompt, and how it becomes token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Union, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

Message = Mapping[str, Any]
Prompt = Union[str, Sequence[Message], Sequence[int]]  # noqa: UP007  (evaluated at run time on Python 3.10)


def is_one_prompt(prompt: Any) -> bool:
    """A string, messages or token ids; otherwise a sequence of prompts."""
    if isinstance(prompt, str):
        return True
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise TypeError(
            f"prompt is {type(prompt).__name__}, expected a string, a list of messages, or token ids"
        )
    return bool(prompt) and not isinstance(prompt[0], (str, list, tuple))


def encode(
    prompt: Prompt,
    tokenizer: PreTrainedTokenizerBase | None,
    vocab: int,
    system: str | None = None,
    enable_thinking: bool | None = None,
) -> list[int]:
    """Ids of a prompt. A string is one user message when the tokenizer has a chat template, and plain text otherwise."""
    if not isinstance(prompt, str):
        if not prompt:
            raise ValueError("the prompt is empty: there is no token to continue from")
        if not is_one_prompt(prompt):
            raise ValueError("a list of prompts where one prompt is expected; decode() takes a list of them")
    if not isinstance(prompt, str) and not isinstance(prompt[0], Mapping):
        if system is not None or enable_thinking is not None:
            raise ValueError(
                "system and enable_thinking shape a chat template; a prompt of token ids has none"
            )
        return _checked(prompt, vocab)
    if tokenizer is None:
        raise ValueError("the target's checkpoint has no tokenizer: pass token ids")
    if tokenizer.chat_template is None:
        if not isinstance(prompt, str):
            raise ValueError(
                "the target's tokenizer has no chat template for messages: pass a string or token ids"
            )
        if system is not None or enable_thinking is not None:
            raise ValueError(
                "system and enable_thinking need a chat template, which the target's tokenizer does not have"
            )
        return _checked(tokenizer(prompt).input_ids, vocab)
    given = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    for i, message in enumerate(given):
        if not isinstance(message, Mapping):
            raise ValueError(f"message {i} is {message!r}, expected a mapping with role and content")
    messages = [dict(cast(Message, m)) for m in given]
    if system is not None:
        if any(m.get("role") == "system" for m in messages):
            raise ValueError("system is given twice: as an argument and among the messages")
        messages = [{"role": "system", "content": system}, *messages]
    known: dict[str, Any] = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **known)
    except TemplateError as e:
        raise ValueError(f"the target's chat template does not take these messages: {e}") from e
    return _checked(tokenizer(text, add_special_tokens=False).input_ids, vocab)


def _checked(ids: Sequence[Any], vocab: int) -> list[int]:
    if not ids:
        raise ValueError("the prompt is empty: there is no token to continue from")
    out = []
    for i, token in enumerate(ids):
        if not isinstance(token, Integral) or not 0 <= int(token) < vocab:
            raise ValueError(f"prompt token {i} is {token!r}, expected an id from 0 to {vocab - 1}")
        out.append(int(token))
    return out
