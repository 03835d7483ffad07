"""The tokens of a chain against those of one-token decoding, prompt by prompt, and token forcing of them by stock transformers.

    python bench/gpu/bits.py --prompts PROMPTS                    all of it, the default model on the first GPU
    python bench/gpu/bits.py --prompts PROMPTS --verify chain,auto --check 0

Where answers part is printed. Exit code 1 if one differs, or token forcing fails.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from specpilot import load, zoo
from specpilot.benchmark.check import CALIBRATION
from specpilot.benchmark.prompts import read_prompts
from specpilot.devices import resolve
from specpilot.forcing import Answer, calibrate, stock_model, verdict
from specpilot.formats import open_checkpoint


def difference(got: list[int], want: list[int]) -> str:
    """Where two answers part; "" where they are one."""
    if got == want:
        return ""
    at = next(
        (i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), min(len(got), len(want))
    )
    return f"token {at} is {got[at : at + 1]} of {len(got)}, one-token decoding has {want[at : at + 1]} of {len(want)}"


def forced(target: str, device: str, answers: list[Answer], new: int) -> bool:
    """Prints the verdict on answers and what it found; whether it is good."""
    with open_checkpoint(target) as checkpoint:
        model, stop_ids = stock_model(checkpoint, resolve(device)), checkpoint.eos_token_ids()
    some = answers[:: -(-len(answers) // CALIBRATION)]
    calibration = calibrate(model, [(a.prompt, a.tokens) for a in some])
    found = verdict(model, answers, calibration, max_new_tokens=new, stop_ids=stop_ids)
    print(f"token forcing by transformers on {device}: {found.line()}")
    for line in [*found.findings, *found.reclassified]:
        print(f"  {line}")
    return found.ok


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
        "--check", type=int, default=sys.maxsize, help="answers to judge by transformers; 0: none"
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="no prompt is begun later")
    args = parser.parse_args()
    engine = load(args.target, args.drafter, weights=args.weights, device=args.device)
    begin, differ, answers = perf_counter(), 0, []
    for prompts in read_prompts(args.prompts, args.limit):
        same, tau = 0, dict.fromkeys(args.verify.split(","), 0.0)
        done = 0
        for number, text in enumerate(prompts.prompts):
            if perf_counter() - begin > args.seconds:
                print(f"{prompts.name}: out of time after {number} prompts")
                break
            ids = engine.encode(text)
            want = engine.decode(ids, max_new_tokens=args.new, verify="ar").tokens
            answers.append(Answer(tuple(ids), tuple(want)))
            good, done = True, done + 1
            for mode in tau:
                found = engine.decode(ids, max_new_tokens=args.new, verify=mode)
                tau[mode] += found.stats.tau
                if where := difference(found.tokens, want):
                    print(f"{prompts.name} {number}, {mode}: {where}")
                    good = False
            same += good
        differ += done - same
        means = ", ".join(f"τ of {mode} {t / max(done, 1):.2f}" for mode, t in tau.items())
        print(
            f"{prompts.name}: {same} of {done} prompts have the tokens of one-token decoding; {means}",
            flush=True,
        )
    judged = answers[: args.check]
    ok = not judged or forced(args.target, args.device, judged, args.new)
    print(f"{'PASS' if not differ else 'FAIL'}  prompts whose tokens differ: {differ} of {len(answers)}")
    return 0 if ok and not differ else 1


if __name__ == "__main__":
    sys.exit(main())
