"""Token forcing: could stock transformers have emitted these tokens?

Every token is judged on exactly the prefix its engine used. One stock prefill over prompt and answer gives
the logits z of all positions; the *deficit* of a token is max z − z[token]. Zero passes, up to eps is a
counted tie, more fails. eps is measured, stock against stock in its execution modes. The prefix is always the
answer's own, so one benign tie neither hides nor creates a later one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from transformers import PreTrainedModel

from .stock import LOGIT_ROWS, MODES, stock_logits, stock_model

__all__ = [
    "Answer",
    "Calibration",
    "Score",
    "Verdict",
    "calibrate",
    "faults",
    "score",
    "stock_model",
    "verdict",
]

log = logging.getLogger(__name__)
Tick = Callable[[int], None]
TOP = 20  # tokens over which the noise of a position is taken


@dataclass(frozen=True)
class Score:
    """Per emitted position: max z − z[token] (0: stock's own choice), and max z − second z."""

    deficit: torch.Tensor
    gap: torch.Tensor


def score(
    model: PreTrainedModel, prompt_ids: Sequence[int], emitted_ids: Sequence[int], mode: str = "prefill"
) -> Score:
    """Scores an answer by one stock pass over prompt and answer, in any of ``stock.MODES``."""
    deficits, gaps = [torch.empty(0)], [torch.empty(0)]
    if emitted_ids:
        blocks = torch.tensor(emitted_ids, dtype=torch.int64).split(LOGIT_ROWS)
        for z, tokens in zip(stock_logits(model, prompt_ids, emitted_ids, mode), blocks, strict=True):
            top = z.topk(2).values
            deficits.append(top[:, 0] - z.gather(1, tokens[:, None])[:, 0])
            gaps.append(top[:, 0] - top[:, 1])
    return Score(torch.cat(deficits), torch.cat(gaps))


@dataclass(frozen=True)
class Calibration:
    """What stock's own float noise allows: eps, and how often its decoding and its prefill are tied apart."""

    eps: float
    p0: float
    positions: int
    stock_ties: int
    quantiles: dict[str, float]  # of the noise; eps is twice the last


def calibrate(
    model: PreTrainedModel,
    sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
    cap: float | None = None,
    tick: Tick | None = None,
) -> Calibration:
    """Measures eps on (prompt, answer) pairs like those to be judged.

    A position's noise is the largest |difference| over the top 20 tokens and all pairs of modes, after the
    shift that makes it smallest (logits count up to a constant). eps is twice the largest noise: the most by
    which two of these logits moved against each other. An eps above ``cap`` is refused, for so wide a gate says
    nothing until somebody has looked; by default 16 bf16 steps at the largest logit (1.0 for logits of 8 to
    16). p0 is Laplace's estimate, so that n positions without a tie give 1/(n + 2) and not zero.
    """
    noises, deficits, largest = [], [], 0.0
    for prompt, emitted in sequences:
        for block in zip(*(stock_logits(model, prompt, emitted, mode) for mode in MODES), strict=True):
            prefill, decode = block[list(MODES).index("prefill")], block[list(MODES).index("decode")]
            best, top = prefill.topk(min(TOP, prefill.shape[1]))
            apart = [a - b for a, b in combinations([z.gather(1, top) for z in block], 2)]
            noises.append(torch.stack([(d.amax(1) - d.amin(1)) / 2 for d in apart]).amax(0))
            chosen = prefill.gather(1, decode.argmax(1, keepdim=True))[:, 0]
            deficits.append(best[:, 0] - chosen)
            largest = max(largest, best.abs().max().item())
        if tick:
            tick(1)
    if not noises:
        raise ValueError("token forcing: nothing to calibrate on; give at least one answered prompt")
    noise, deficit = torch.cat(noises), torch.cat(deficits)
    eps = 2 * noise.max().item()
    if cap is None:
        cap = 16 * 2.0 ** (math.frexp(largest)[1] - 8)  # bf16 has 8 significant bits
    if not eps <= cap:
        raise ValueError(
            f"token forcing: stock's own modes differ by eps = {eps:.3g}, above the cap of {cap:.3g}; "
            "a gate so wide would pass anything, look at the model's numerics first"
        )
    ties = int(((deficit > 0) & (deficit <= eps)).sum())
    quantiles = {f"{q:g}": torch.quantile(noise, q).item() for q in (0.5, 0.9, 0.99, 0.999, 1.0)}
    return Calibration(eps, (ties + 1) / (len(noise) + 2), len(noise), ties, quantiles)


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X ≥ k) for X ~ Binomial(n, p), 0 < p < 1."""
    if k <= 0:
        return 1.0

    def log_term(i: int) -> float:
        ways = math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
        return ways + i * math.log(p) + (n - i) * math.log1p(-p)

    return min(1.0, math.fsum(math.exp(log_term(i)) for i in range(k, n + 1)))


@dataclass(frozen=True)
class Answer:
    """One request: the prompt, the emitted tokens (a stop token included) and, where it is known, the
    drafter's proposal at each position, −1 where there was none."""

    prompt: Sequence[int]
    tokens: Sequence[int]
    proposals: Sequence[int] | None = None


@dataclass
class Verdict:
    """Counts over all positions. ``ok``: no fail, no fault, and no more ties than stock itself would show."""

    eps: float
    p0: float
    alpha: float
    passes: int = 0
    ties: int = 0
    fails: int = 0
    blind: int = 0  # positions whose top-2 gap is below eps: a deviation there is a tie at most
    known_ties: int = 0  # ties where the drafter's proposal is known
    drafted_ties: int = 0  # those that are the proposal
    findings: list[str] = field(default_factory=list)  # fails and faults, by answer and position
    reclassified: list[str] = field(
        default_factory=list
    )  # counted as ties, for another stock mode emits them

    @property
    def positions(self) -> int:
        return self.passes + self.ties + self.fails

    @property
    def p_value(self) -> float:
        """Chance of at least so many ties at stock's own rate."""
        return binomial_tail(self.ties, self.positions, self.p0)

    @property
    def ok(self) -> bool:
        return not self.findings and self.p_value >= self.alpha

    def line(self) -> str:
        """One line for people."""
        counts = f"{self.positions} positions: {self.passes} pass, {self.ties} tie, {self.fails} fail"
        noise = f"eps {self.eps:.3g}, blind {100 * self.blind / max(1, self.positions):.1f} %"
        budget = f"tie budget p = {self.p_value:.2g} at p0 = {self.p0:.2g}"
        drafted = (
            f", {self.drafted_ties} of {self.known_ties} ties are the drafter's" if self.known_ties else ""
        )
        return f"{'ok' if self.ok else 'FAILED'}, {counts} ({noise}, {budget}{drafted})"


def faults(tokens: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int]) -> list[str]:
    """What is wrong with an answer's end: tokens after a stop id, or a length that nothing explains."""
    stop = next((i for i, token in enumerate(tokens) if token in stop_ids), None)
    if stop is not None and stop != len(tokens) - 1:
        return [f"{len(tokens) - 1 - stop} tokens after the stop id {tokens[stop]} at position {stop}"]
    if len(tokens) > max_new_tokens or (stop is None and len(tokens) < max_new_tokens):
        return [
            f"{len(tokens)} tokens, expected {max_new_tokens}" + (" or a stop id" if stop is None else "")
        ]
    return []


def verdict(
    model: PreTrainedModel,
    answers: Sequence[Answer],
    calibration: Calibration,
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    alpha: float = 1e-3,
    tick: Tick | None = None,
) -> Verdict:
    """Judges answers. A fail is scored again in all stock modes: if one emits the token, it is a tie."""
    v = Verdict(calibration.eps, calibration.p0, alpha)
    for number, answer in enumerate(answers):
        v.findings += [f"answer {number}: {f}" for f in faults(answer.tokens, max_new_tokens, stop_ids)]
        tokens = torch.tensor(answer.tokens, dtype=torch.int64)
        s = score(model, answer.prompt, answer.tokens)
        tie = (s.deficit > 0) & (s.deficit <= v.eps)
        fail = ~(s.deficit <= v.eps)  # so that NaN fails
        if fail.any():
            modes = [score(model, answer.prompt, answer.tokens, mode).deficit == 0 for mode in MODES]
            emitted = torch.stack(modes).any(0)
            for i in fail.nonzero()[:, 0].tolist():
                where = f"answer {number}, position {i}: token {int(tokens[i])}"
                what = f"{where} has a deficit of {s.deficit[i]:.4g}, eps is {v.eps:.4g}"
                (v.reclassified if emitted[i] else v.findings).append(what)
                if emitted[i]:
                    log.warning("%s; a stock mode emits it, so it is a tie and eps was too small", what)
            tie, fail = tie | (fail & emitted), fail & ~emitted
        v.passes += int((~tie & ~fail).sum())
        v.ties += int(tie.sum())
        v.fails += int(fail.sum())
        v.blind += int((s.gap < v.eps).sum())
        if answer.proposals is not None:
            proposals = torch.tensor(answer.proposals, dtype=torch.int64)
            v.known_ties += int((tie & (proposals >= 0)).sum())
            v.drafted_ties += int((tie & (proposals == tokens)).sum())
        if tick:
            tick(1)
    return v
