"""From tokens to text, piece by piece, and the strings that end it."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"  # what a tokenizer shows for a character that is not complete yet
WINDOW = 16  # tokens that are decoded again with each piece


class Detokenizer:
    """Turns growing tokens into text without ever giving out a part of a character."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = 0  # characters of the window's text that are out

    def push(self, tokens: Sequence[int]) -> str:
        """The text that these tokens complete."""
        self._window.extend(tokens)
        text = self._decode()
        end = len(text) - text.endswith(UNFINISHED)
        piece = text[self._given : end]
        self._given = max(self._given, end)
        if end == len(text) and len(self._window) > WINDOW:
            # What is kept serves only as context for the next tokens; it may begin inside a character.
            self._window = self._window[-WINDOW // 2 :]
            self._given = len(self._decode())
        return piece

    def flush(self) -> str:
        """What is left: an incomplete character, shown as the tokenizer shows it."""
        text = self._decode()
        piece = text[self._given :]
        self._given = len(text)
        return piece

    def _decode(self) -> str:
        text = self._tokenizer.decode(
            self._window, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)


class StopStrings:
    """Lets text through up to the first stop string, holding back what may still become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that can be given out; after ``found``, nothing more."""
        text = self._held + text
        hits = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if hits:
            self.found, self._held = True, ""
            return text[: min(hits)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that ``stop`` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


class TextStream:
    """Text of a generation and its end by a stop string. Without a tokenizer the text stays empty."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None, stops: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer) if tokenizer is not None else None
        self._stops = StopStrings(stops) if stops else None

    def push(self, tokens: Sequence[int]) -> tuple[int, str]:
        """(how many of the tokens belong to the generation, text that can be given out).

        The count is short of ``len(tokens)`` when a stop string ends it earlier: the token that completes the string is the last.
        """
        if self._detokenizer is None:
            return len(tokens), ""
        if self._stops is None:
            return len(tokens), self._detokenizer.push(tokens)
        pieces = []
        for i, token in enumerate(
            tokens
        ):  # one by one, so that the end does not depend on how tokens came in
            pieces.append(self._stops.push(self._detokenizer.push([token])))
            if self._stops.found:
                return i + 1, "".join(pieces)
        return len(tokens), "".join(pieces)

    @property
    def stopped(self) -> bool:
        return self._stops is not None and self._stops.found

    def flush(self) -> str:
        """The rest of the text, when the generation ends otherwise than by a stop string."""
        if self._detokenizer is None or self.stopped:
            return ""
        rest = self._detokenizer.flush()
        if self._stops is None:
            return rest
        return self._stops.push(rest) + self._stops.flush()
