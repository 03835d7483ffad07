"""Whole generations by the arms of the headline tables, interleaved request by request in one process.

ar-bf16    one token at a time, bf16, every linear by the faster of our kernel and cuBLAS
ar-w12     one token at a time, 12-bit weights
stock      whole blocks as a chain, target and drafter in bf16, linears as in ar-bf16
specpilot  whole blocks as a chain, target in w12, drafter in 8 bits
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from faster_linear import PREFILL_ROWS, Choices, use_faster
from subjects import subject
from subjects.subject import Subject

from specpilot import Engine, Result
from specpilot.drafters import Drafter
from specpilot.drafters.dflash import DFlashDraftModel

ARMS = {
    "ar-bf16": ("bf16", "ar"),
    "ar-w12": ("w12", "ar"),
    "stock": ("bf16", "chain"),
    "specpilot": ("w12", "chain"),
}

Wrap = Callable[[DFlashDraftModel], Drafter]


@dataclass(frozen=True)
class Sample:
    """A request decoded by an arm. ``same``: its tokens are those that it is held against."""

    set: str
    request: int
    arm: str
    result: Result
    same: bool | None = None

    @property
    def tok_s(self) -> float:
        """Without the prompt."""
        return self.result.stats.tokens_per_second

    def record(self) -> dict[str, Any]:
        """A line of a JSON file."""
        stats = self.result.stats.to_dict()
        return {
            "op": "decode",
            "set": self.set,
            "request": self.request,
            "variant": self.arm,
            "same": self.same,
            **stats,
        }


def make_engines(
    made: Subject, max_context: int, device: str, wrap: Wrap | None = None
) -> tuple[dict[str, Engine], Choices]:
    """The engines by the format of their targets, and what linears the bf16 one takes."""
    assert made.draft_config
    choices = Choices((1, made.draft_config.block_size, PREFILL_ROWS), device)
    plain = subject.engine(made, max_context=max_context, weights="bf16", drafter_weights="bf16", wrap=wrap)
    w12 = subject.engine(made, max_context=max_context, weights="w12", drafter_weights="q8", wrap=wrap)
    return {"bf16": use_faster(plain, choices), "w12": w12}, choices


class Clock:
    """Whether there is time for another request, by the longest so far; ``seconds`` from now, the making of engines included."""

    def __init__(self, seconds: float) -> None:
        self._end, self._longest, self._last = perf_counter() + seconds, 0.0, perf_counter()

    def another(self) -> bool:
        now = perf_counter()
        self._longest, self._last = max(self._longest, now - self._last), now
        return now + self._longest < self._end

    def start(self) -> None:
        """What was done until now is no request."""
        self._last = perf_counter()


def run(
    engines: Mapping[str, Engine],
    requests: Sequence[tuple[str, int, list[int]]],
    new: int,
    clock: Clock,
    *,
    prepare: Callable[[str, int, list[int]], None] | None = None,
    ignore_stop_ids: bool = False,
) -> Iterator[Sample]:
    """All arms of every request (set, number, prompt), in an order that rotates, while there is time. A request's samples come
    when all of its arms have run; chains are held against one-token decoding of the same weights, for w12 alone.

    ``prepare``: called before a request, its time belongs to none of the arms.
    """
    names, block = list(ARMS), max(e.drafter.block_size for e in engines.values() if e.drafter)
    for name in names:  # graphs are captured
        _decode(engines, name, requests[0][2], min(new, 4 * block), ignore_stop_ids)
    clock.start()
    for turn, (of, number, prompt) in enumerate(requests):
        if turn and not clock.another():
            return
        if prepare:
            prepare(of, number, prompt)
        found = {}
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            result = _decode(engines, name, prompt, new, ignore_stop_ids)
            found[name] = Sample(of, number, name, result)
        if not all(sample.result.stats.passes for sample in found.values()):
            continue  # an answer of one token has no speed
        same = found["specpilot"].result.tokens == found["ar-w12"].result.tokens
        found["specpilot"] = replace(found["specpilot"], same=same)
        yield from (found[name] for name in names)


def _decode(engines: Mapping[str, Engine], arm: str, prompt: list[int], new: int, ignore: bool) -> Result:
    weights, verify = ARMS[arm]
    return engines[weights].decode(prompt, max_new_tokens=new, verify=verify, ignore_stop_ids=ignore)


def by_turns(sets: Mapping[str, Sequence[list[int]]]) -> list[tuple[str, int, list[int]]]:
    """The first request of every set, then the second: a run cut short has something of each."""
    longest = max(map(len, sets.values()))
    return [
        (name, i, prompts[i]) for i in range(longest) for name, prompts in sets.items() if i < len(prompts)
    ]
