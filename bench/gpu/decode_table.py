"""From generations to tables: speeds by set, the parts of a step, and a gain split into its factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from decode_arms import ARMS, Sample
from tables import markdown

from specpilot.benchmark.stats import Spread

RATIOS = (
    ("ar-w12", "ar-bf16"),
    ("stock", "ar-bf16"),
    ("specpilot", "ar-bf16"),
    ("specpilot", "ar-w12"),
    ("specpilot", "stock"),
)


def speeds(samples: Sequence[Sample], title: str) -> str:
    """tok/s, median over requests ± median absolute deviation, and τ, the mean over requests of each one's mean."""
    rows = []
    for of in sets_of(samples):
        cells = []
        for arm in ARMS:
            chosen = _of(samples, of, arm)
            tok_s = Spread.of([s.tok_s for s in chosen])
            tau = f" ({mean(s.result.stats.tau for s in chosen):.2f})" if ARMS[arm][1] != "ar" else ""
            cells.append(f"{tok_s.median:.1f} ± {tok_s.mad:.1f}{tau}")
        rows.append([of, len(_of(samples, of, "ar-bf16")), *cells])
    return markdown([title, "requests", *ARMS], rows)


def ratio(samples: Sequence[Sample], over: str, under: str) -> dict[str, float]:
    """Mean of the paired ratios of speed by set; under "mean", the mean of the sets."""
    found = {
        of: mean(
            a.tok_s / b.tok_s for a, b in zip(_of(samples, of, over), _of(samples, of, under), strict=True)
        )
        for of in sets_of(samples)
    }
    return {**found, "mean": mean(found.values())}


def ratios(samples: Sequence[Sample]) -> str:
    columns = [*sets_of(samples), "mean"]
    rows = [[f"{a} / {b}", *(f"{ratio(samples, a, b)[c]:.2f}" for c in columns)] for a, b in RATIOS]
    return markdown(["ratio, mean of pairs", *columns], rows)


@dataclass(frozen=True)
class Step:
    """µs of a pass, over all requests: the target's, the drafter's, the rest; and the tokens that it emits."""

    verify: float
    draft: float
    other: float
    tau: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Step:
        stats = [s.result.stats for s in samples]
        passes = sum(s.passes for s in stats)
        seconds = (
            sum(getattr(s, f"{part}_seconds") for s in stats) for part in ("verify", "draft", "overhead")
        )
        return cls(*(1e6 * t / passes for t in seconds), sum(s.new_tokens - 1 for s in stats) / passes)

    @property
    def us(self) -> float:
        return self.verify + self.draft + self.other


def steps(samples: Sequence[Sample]) -> dict[str, Step]:
    return {arm: Step.of([s for s in samples if s.arm == arm]) for arm in ARMS}


def factors(base: Step, to: Step, alone: Step | None = None) -> dict[str, float]:
    """How many times faster ``to`` is, as a product: each factor changes one part of the step, in this order. ``alone``: a step of
    one row with the weights of ``to``, which tells "weights" from "rows"."""
    found, now = {}, base.us

    def put(name: str, us: float) -> None:
        nonlocal now
        found[name], now = now / us, us

    if alone:
        put("weights", alone.verify + base.draft + base.other)
        put("rows", to.verify + base.draft + base.other)
    else:
        put("weights", to.verify + base.draft + base.other)
    put("drafter", to.verify + to.draft + base.other)
    found["τ"] = to.tau / base.tau
    put("overhead", to.us)
    return {**found, "all": base.us / to.us * to.tau / base.tau}


def parts(samples: Sequence[Sample]) -> str:
    """Two tables: steps, and the factors of SpecPilot's gain."""
    found = steps(samples)
    rows = [[arm, s.verify, s.draft, s.other, s.us, f"{s.tau:.2f}"] for arm, s in found.items()]
    first = markdown(["a pass", "target µs", "drafter µs", "other µs", "all µs", "tokens"], rows)
    gains: Mapping[str, dict[str, float]] = {
        "ar-bf16": factors(found["ar-bf16"], found["specpilot"], found["ar-w12"]),
        "stock": factors(found["stock"], found["specpilot"]),
    }
    names = list(gains["ar-bf16"])
    split = [
        [f"specpilot / {base}", *(f"{g[n]:.3f}" if n in g else None for n in names)]
        for base, g in gains.items()
    ]
    return first + "\n\n" + markdown(["gain, all requests together", *names], split)


def agreement(samples: Sequence[Sample]) -> str:
    held = [s for s in samples if s.same is not None]
    return (
        f"specpilot = ar-w12, token by token: {sum(s.same for s in held if s.same)} of {len(held)} requests"
    )


def sets_of(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(s.set for s in samples))


def _of(samples: Sequence[Sample], of: str, arm: str) -> list[Sample]:
    return [s for s in samples if s.set == of and s.arm == arm]
