"""The tokens of a chain against those of one-token decoding, prompt by prompt, and token forcing of them by stock transformers.

    python bench/gpu/bits.py --prompts PROMPTS --jobs 5           all of it, the default model on the first GPU
    python bench/gpu/bits.py --prompts PROMPTS --verify chain,auto --check 0

No time is taken here, so prompt sets may share the GPU: ``--jobs`` processes, a set each. Where answers part is printed.
Exit code 1 if one differs, or token forcing fails.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, time
from typing import Any, TypeVar

import torch
from tables import Check, Lines, finish, markdown

from specpilot import load, zoo
from specpilot.benchmark.check import CALIBRATION
from specpilot.benchmark.prompts import PromptSet, read_prompts
from specpilot.devices import resolve
from specpilot.forcing import Answer, Verdict, calibrate, stock_model, verdict
from specpilot.formats import open_checkpoint

T = TypeVar("T")


@dataclass
class Compared:
    """A prompt set by one-token decoding, and by the modes held against it. ``tau``: sums over prompts, by mode."""

    name: str
    tau: dict[str, float]
    prompts: int
    seconds: float = 0.0
    same: int = 0
    answers: list[Answer] = field(default_factory=list)
    found: list[str] = field(default_factory=list)  # where answers part

    def record(self) -> dict[str, Any]:
        done = max(len(self.answers), 1)
        return {
            "op": "bits",
            "set": self.name,
            "prompts": len(self.answers),
            "of": self.prompts,
            "same": self.same,
            "tokens": sum(len(a.tokens) for a in self.answers),
            "tau": {mode: total / done for mode, total in self.tau.items()},
            "seconds": self.seconds,
        }


def difference(got: list[int], want: list[int]) -> str:
    """Where two answers part; "" where they are one."""
    if got == want:
        return ""
    at = next(
        (i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), min(len(got), len(want))
    )
    return f"token {at} is {got[at : at + 1]} of {len(got)}, one-token decoding has {want[at : at + 1]} of {len(want)}"


def compare(args: argparse.Namespace, prompts: PromptSet) -> Compared:
    """Decodes a set; no prompt is begun after ``args.end``, but one is."""
    engine = load(args.target, args.drafter, weights=args.weights, device=args.device)
    begin = perf_counter()
    out = Compared(prompts.name, dict.fromkeys(args.verify.split(","), 0.0), len(prompts.prompts))
    for number, text in enumerate(prompts.prompts):
        if number and time() > args.end:
            out.found.append(f"{prompts.name}: out of time after {number} prompts")
            break
        ids = engine.encode(text)
        want = engine.decode(ids, max_new_tokens=args.new, verify="ar").tokens
        out.answers.append(Answer(tuple(ids), tuple(want)))
        good = True
        for mode in out.tau:
            got = engine.decode(ids, max_new_tokens=args.new, verify=mode)
            out.tau[mode] += got.stats.tau
            if where := difference(got.tokens, want):
                out.found.append(f"{prompts.name} {number}, {mode}: {where}")
                good = False
        out.same += good
    out.seconds = perf_counter() - begin
    return out


def force(args: argparse.Namespace, answers: Sequence[Answer]) -> Verdict:
    """Judges answers by stock transformers."""
    with open_checkpoint(args.target) as checkpoint:
        model, stop_ids = stock_model(checkpoint, resolve(args.device)), checkpoint.eos_token_ids()
    some = answers[:: -(-len(answers) // args.calibration)]
    calibration = calibrate(model, [(a.prompt, a.tokens) for a in some])
    return verdict(model, answers, calibration, max_new_tokens=args.new, stop_ids=stop_ids)


@contextmanager
def mapper(jobs: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """``map`` over so many processes, or in this one."""
    if jobs == 1:
        yield map
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        yield pool.map


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, action="append", default=[], help="JSONL file or directory")
    parser.add_argument("--limit", type=int, help="prompts per file")
    parser.add_argument("--new", type=int, default=256, help="tokens of an answer at most")
    parser.add_argument("--verify", default="chain", help="modes to compare, e.g. chain,auto")
    parser.add_argument("--target", default=zoo.DEFAULT_TARGET)
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--weights", default="w12")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--check", type=int, default=sys.maxsize, help="answers of a set to judge by transformers; 0: none"
    )
    parser.add_argument("--calibration", type=int, default=CALIBRATION, help="of them, to measure eps on")
    parser.add_argument("--jobs", type=int, default=1, help="processes, a prompt set each")
    parser.add_argument("--seconds", type=float, default=1e9, help="no prompt is begun later")
    parser.add_argument("--out", type=Path, default=Path("runs/bits.jsonl"), help="default: %(default)s")
    args = parser.parse_args()
    args.end = time() + args.seconds
    lines, sets = Lines(args.out, args.device), read_prompts(args.prompts, args.limit)
    compared: list[Compared] = []
    verdicts: list[Verdict] = []
    with mapper(args.jobs) as each:
        for c in each(compare, [args] * len(sets), sets):
            compared.append(c)
            lines.add(c.record())
            print("\n".join([*c.found, str(c.record())]), flush=True)
        if args.check:
            judged = [c.answers[: args.check] for c in compared]
            for c, v in zip(compared, each(force, [args] * len(sets), judged), strict=True):
                verdicts.append(v)
                lines.add({"op": "forcing", "set": c.name, **vars(v), "p_value": v.p_value, "ok": v.ok})
                print(f"token forcing by transformers on {args.device}, {c.name}: {v.line()}", flush=True)
                print("".join(f"  {line}\n" for line in [*v.findings, *v.reclassified]), end="")
    rows = [
        [r["set"], f"{r['same']} of {r['prompts']}", r["of"], r["tokens"], *(f"{t:.2f}" for t in r["tau"].values())]
        for r in (c.record() for c in compared)
    ]  # fmt: skip
    text = markdown(
        ["set", "have AR's tokens", "prompts", "tokens", *(f"τ of {m}" for m in compared[0].tau)], rows
    )
    differ, done = sum(len(c.answers) - c.same for c in compared), sum(len(c.answers) for c in compared)
    checks = [
        Check(f"prompts whose tokens differ, of {done}", differ, high=0),
        Check("prompts that there was no time for", sum(c.prompts for c in compared) - done, high=0),
    ]
    if verdicts:
        forced = [[c.name, v.positions, v.passes, v.ties, v.fails, v.eps, 100 * v.blind / max(v.positions, 1), v.p_value]
                  for c, v in zip(compared, verdicts, strict=True)]  # fmt: skip
        header = ["token forcing", "positions", "pass", "tie", "fail", "eps", "blind %", "tie budget p"]
        text += "\n\n" + markdown(header, forced)
        checks += [
            Check("tokens that fail token forcing", sum(v.fails for v in verdicts), high=0),
            Check("sets that token forcing refuses", sum(not v.ok for v in verdicts), high=0),
        ]
    return finish(lines.facts, text, checks, dry_run=False, lines=lines)


if __name__ == "__main__":
    sys.exit(main())
