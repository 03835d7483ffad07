"""The decode loop of one request, and what comes out of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..verify import Verifier
from ..width_policy import WidthPolicy
from .stats import Stats
from .stop import TextStream

if TYPE_CHECKING:
    from .engine import Engine


@dataclass
class Result:
    """A finished generation.

    ``tokens``         everything emitted; a stop token is included, and so is the one that completes a stop string
    ``text``           the tokens as text, special tokens left out, cut before a stop string
    ``prompt_tokens``  the ids that were decoded from
    ``finish_reason``  "stop" (stop token or string), "length" (max_new_tokens or the context's end) or "interrupted"
    """

    text: str
    tokens: list[int]
    prompt_tokens: list[int]
    finish_reason: str
    stats: Stats

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "finish_reason": self.finish_reason,
            "stats": self.stats.to_dict(),
        }


@dataclass
class Request:
    """What is asked of the engine, checked and in ids."""

    prompt: list[int]
    max_new_tokens: int
    stop_ids: frozenset[int]
    stop: Sequence[str] = ()


@dataclass
class Generation:
    """Iterating runs the request and yields pieces of its text; ``result`` is whole when the iteration has ended.

    ``every_step``: give out text as it comes. Otherwise all of it comes at the end, which costs nothing a step.
    """

    engine: Engine
    request: Request
    verifier: Verifier
    policy: WidthPolicy
    every_step: bool = True
    result: Result = field(init=False)

    def __post_init__(self) -> None:
        r = self.request
        self._text, self._given = TextStream(self.engine.tokenizer, r.stop), 0
        self._every_step = self.every_step or bool(r.stop)
        self._limit = min(r.max_new_tokens, self.engine.max_context - len(r.prompt))
        self.result = Result("", [], r.prompt, "", Stats(prompt_tokens=len(r.prompt)))

    def __iter__(self) -> Generator[str, None, None]:
        result, stats = self.result, self.result.stats
        self.engine.acquire()
        try:
            begin = perf_counter()
            with self.engine.current():
                first = self.engine.prefill(self.request.prompt, self.verifier, self._limit)
            stats.prefill_seconds = perf_counter() - begin
            self._take([first])
            yield from self._pieces()
            if not result.finish_reason:
                with self.engine.current():
                    self._begin(first)
            while not result.finish_reason:
                begin = perf_counter()
                with self.engine.current():
                    self._step()
                stats.decode_seconds += perf_counter() - begin
                yield from self._pieces()
        except (KeyboardInterrupt, GeneratorExit) as e:
            result.finish_reason = result.finish_reason or "interrupted"
            # It may have fallen between tokens and their text, so all text is made anew.
            self._every_step = False
            if isinstance(e, GeneratorExit):
                self._finish()
                raise
        finally:
            self.engine.release()
        self._finish()
        yield from self._pieces()

    def _pieces(self) -> Iterator[str]:
        """The text that is not given out yet, if there is any."""
        piece = self.result.text[self._given :]
        if piece:
            self._given = len(self.result.text)
            yield piece

    def _begin(self, first: int) -> None:
        prompt = len(self.request.prompt)
        self.verifier.begin(first, prompt, self._limit - 1, self.request.stop_ids)
        self.policy.begin()

    def _step(self) -> None:
        """Launches a step, unless those under way will reach the limit, and takes what the oldest one emitted once no more may be
        under way. A step that is still under way at the end is forgotten."""
        result, stats, verifier = self.result, self.result.stats, self.verifier
        left = self._limit - len(result.tokens) - verifier.under_way  # each emits a token or more
        if left > 0:
            width = min(self.policy.width(), verifier.max_width)
            verifier.launch(width if verifier.ends_itself else min(width, left), self.policy.narrow)
            if verifier.under_way <= verifier.lag:
                return
        step = verifier.collect()
        stats.draft_seconds += step.time.draft
        stats.verify_seconds += step.time.verify
        if not step.ended:
            time = step.time if step.steady else None
            self.policy.observe(step.drafted, step.verified, len(step.tokens), time, step.margins)
        before = len(result.tokens)
        self._take(step.tokens)
        stats.add_pass(step.verified, len(result.tokens) - before)

    def _take(self, tokens: list[int]) -> None:
        """Appends what belongs to the generation and the text that is sure by now, and finds its end. Tokens come first and the end
        last, so that they are true wherever an interruption falls."""
        result, reason, piece = self.result, "", ""
        for i, token in enumerate(tokens):
            if token in self.request.stop_ids:
                tokens, reason = tokens[: i + 1], "stop"
                break
        if self._every_step:
            count, piece = self._text.push(tokens[:-1] if reason else tokens)
            if self._text.stopped:
                tokens, reason = tokens[:count], "stop"
        result.tokens += tokens
        result.stats.new_tokens = len(result.tokens)
        if not reason and len(result.tokens) >= self._limit:
            reason = "length"
        result.text += piece
        result.finish_reason = reason

    def _finish(self) -> None:
        """The rest of the text."""
        result, request = self.result, self.request
        if not self._every_step:
            ended = result.tokens and result.tokens[-1] in request.stop_ids
            self._text = TextStream(self.engine.tokenizer, request.stop)
            result.text = self._text.push(result.tokens[:-1] if ended else result.tokens)[1]
        result.text += self._text.flush()


class TextIterator(Iterator[str]):
    """What ``Engine.stream`` returns: pieces of text, whose concatenation is ``result.text``."""

    def __init__(self, generation: Generation) -> None:
        self._generation, self._pieces = generation, iter(generation)

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the generation early; the result is what came out until then."""
        self._pieces.close()
        result = self._generation.result
        result.finish_reason = result.finish_reason or "interrupted"  # it had not even begun

    @property
    def result(self) -> Result:
        result = self._generation.result
        if not result.finish_reason:
            raise RuntimeError(
                "the stream has not ended: iterate to its end, or close() it, before taking its result"
            )
        return result
