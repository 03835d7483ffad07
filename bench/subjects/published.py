"""Published acceptance: tokens of a verify pass (τ, the bonus token included) of released drafters, whole blocks, as chains.

``TAU``: from the table in the README of github.com/z-lab/dflash (January 2026, commit bb48ef9): greedy, no thinking, at most 2048
new tokens, blocks of 16, transformers backend on a B200; τ is the mean over requests of each request's mean. ``SPEEDUP`` stands
beside it there: over the same backend decoding one token at a time, without graphs.

For Llama-3.1-8B no table by benchmark could be had. What is known of its drafter (blocks of 10) is one user's τ over
requests of his own, on a Blackwell 6000: ``LLAMA_TAU``. It is no result of the authors, and is to be quoted as what it is.
"""

from __future__ import annotations

BENCHMARKS = ("gsm8k", "math500", "humaneval", "mbpp", "mt-bench")  # by the names of our prompt sets

TAU = {
    "qwen3-4b": {"gsm8k": 6.50, "math500": 7.84, "humaneval": 6.63, "mbpp": 6.19, "mt-bench": 4.35},
    "qwen3-8b": {"gsm8k": 6.55, "math500": 7.87, "humaneval": 6.55, "mbpp": 6.00, "mt-bench": 4.25},
}
SPEEDUP = {
    "qwen3-4b": {"gsm8k": 5.17, "math500": 6.19, "humaneval": 5.26, "mbpp": 4.87, "mt-bench": 2.87},
    "qwen3-8b": {"gsm8k": 5.20, "math500": 6.17, "humaneval": 5.20, "mbpp": 4.75, "mt-bench": 2.79},
}
LLAMA_TAU = 6.10


def mean_tau(model: str) -> float:
    """Over the five benchmarks."""
    return sum(TAU[model].values()) / len(BENCHMARKS)
