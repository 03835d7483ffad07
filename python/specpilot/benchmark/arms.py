"""An arm is a way to decode: a verifier and a weight format, such as ``chain-w12``.

``chain`` verifies whole blocks, ``auto`` as many drafts as pay by measured cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import Engine, load

if TYPE_CHECKING:
    from . import BenchConfig

VERIFIERS = ("ar", "chain", "auto")
WEIGHTS = ("bf16", "w12")


@dataclass(frozen=True)
class Arm:
    name: str
    verify: str
    weights: str

    @classmethod
    def parse(cls, name: str) -> Arm:
        verify, _, weights = name.strip().partition("-")
        if verify not in VERIFIERS or weights not in WEIGHTS:
            known = ", ".join(f"{v}-{w}" for v in VERIFIERS for w in WEIGHTS)
            raise ValueError(f"unknown arm {name!r}; known: {known}")
        return cls(name.strip(), verify, weights)


def parse_arms(names: Sequence[str]) -> list[Arm]:
    """Arms by name, each once."""
    arms = [Arm.parse(name) for name in names]
    if not arms or len(set(arms)) < len(arms):
        raise ValueError(f"arms: {', '.join(names) or 'none'}; expected at least one, each once")
    return arms


@dataclass(frozen=True)
class Run:
    """One prompt decoded by one arm. The first token belongs to the prefill."""

    set: str
    prompt: int  # number within its set, from 0
    arm: str
    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    passes: int  # verify passes: target passes after the prefill
    prefill_seconds: float
    decode_seconds: float

    @property
    def key(self) -> tuple[str, int]:
        return self.set, self.prompt

    @property
    def tok_s(self) -> float:
        """Decode speed without prefill; NaN for an answer of one token."""
        return (len(self.tokens) - 1) / self.decode_seconds if len(self.tokens) > 1 else math.nan

    @property
    def prefill_tok_s(self) -> float:
        return len(self.prompt_ids) / self.prefill_seconds

    @property
    def tau(self) -> float:
        """Tokens per verify pass, bonus token included; NaN when there was none."""
        return (len(self.tokens) - 1) / self.passes if self.passes else math.nan


def load_engines(config: BenchConfig, arms: Sequence[Arm], progress: bool) -> dict[str, Engine]:
    """One engine for each weight format in use; a drafter only where an arm drafts."""
    engines = {}
    for weights in dict.fromkeys(arm.weights for arm in arms):
        drafts = any(arm.verify != "ar" for arm in arms if arm.weights == weights)
        if drafts and config.drafter is None:
            raise ValueError(
                "an arm drafts, but drafter is none: name a drafter, or leave arms other than ar-* out"
            )
        engines[weights] = load(
            target=config.target,
            drafter=config.drafter if drafts else None,
            weights=weights,
            max_context=config.max_context,
            device=config.device,
            threads=config.threads,
            progress=progress,
        )
    return engines


def measure(engine: Engine, arm: Arm, max_new_tokens: int, of: str, number: int, ids: list[int]) -> Run:
    """Decodes one prompt."""
    result = engine.decode(ids, max_new_tokens=max_new_tokens, verify=arm.verify)
    if result.finish_reason == "interrupted":
        raise KeyboardInterrupt
    s = result.stats
    return Run(
        of, number, arm.name, tuple(ids), tuple(result.tokens), s.passes, s.prefill_seconds, s.decode_seconds
    )
