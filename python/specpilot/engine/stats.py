"""What a generation took, and how well drafting went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stats:
    """Counts and seconds of one generation.

    ``passes``         verify passes: target passes after the prefill
    ``accepted``       tokens emitted by a pass → number of such passes (the bonus token included)
    ``widths``         rows verified in a pass → number of such passes
    ``draft_seconds``  the drafter: its context and its block, the one of the prefill excepted
    """

    prompt_tokens: int = 0
    new_tokens: int = 0
    passes: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    accepted: Counter[int] = field(default_factory=Counter)
    widths: Counter[int] = field(default_factory=Counter)

    def add_pass(self, width: int, emitted: int) -> None:
        self.passes += 1
        self.accepted[emitted] += 1
        self.widths[width] += 1

    @property
    def tau(self) -> float:
        """Tokens emitted per verify pass; 0 when there was none."""
        return sum(k * n for k, n in self.accepted.items()) / self.passes if self.passes else 0.0

    @property
    def overhead_seconds(self) -> float:
        """Decoding time outside drafter and target: the loop, the width policy, detokenising."""
        return self.decode_seconds - self.draft_seconds - self.verify_seconds

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed; the first token belongs to the prefill. 0 when there was no other."""
        return (self.new_tokens - 1) / self.decode_seconds if self.new_tokens > 1 else 0.0

    def line(self) -> str:
        """One line for people."""
        prefill = f"{self.prompt_tokens} prompt tokens in {self.prefill_seconds:.2f} s"
        if not self.passes:
            return f"{prefill} · {self.new_tokens} new tokens"
        return f"{self.tokens_per_second:.1f} tok/s · τ {self.tau:.2f} · {self.new_tokens} new tokens · {prefill}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": self.new_tokens,
            "passes": self.passes,
            "tau": self.tau,
            "tokens_per_second": self.tokens_per_second,
            "prefill_seconds": self.prefill_seconds,
            "decode_seconds": self.decode_seconds,
            "draft_seconds": self.draft_seconds,
            "verify_seconds": self.verify_seconds,
            "overhead_seconds": self.overhead_seconds,
            "accepted": dict(sorted(self.accepted.items())),
            "widths": dict(sorted(self.widths.items())),
        }
