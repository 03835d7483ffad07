"""The default model and its drafter end to end, as ``specpilot bench`` has them, with the GPU's clocks beside.

python bench/gpu/default_model.py --prompts PROMPTS --limit 8
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from device import Watch
from tables import Check, Lines, finish, state_text

from specpilot import zoo
from specpilot.benchmark import BenchConfig, run

ARMS = ("ar-bf16", "ar-w12", "chain-w12", "auto-w12")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, action="append", default=[], help="JSONL file or directory")
    parser.add_argument("--limit", type=int, default=8, help="prompts per file")
    parser.add_argument("--new", type=int, default=256, help="tokens of an answer at most")
    parser.add_argument("--target", default=zoo.DEFAULT_TARGET)
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("runs/smollm2.jsonl"), help="default: %(default)s")
    args = parser.parse_args()
    lines = Lines(args.out, args.device)
    config = BenchConfig(
        args.target, args.drafter, ARMS, tuple(args.prompts), args.limit, args.new, device=args.device
    )
    with Watch(args.device == "cuda", every=5) as watch:
        report = run(config)
    for r in report.runs:
        lines.add(
            {
                "op": "decode",
                "set": r.set,
                "request": r.prompt,
                "variant": r.arm,
                "tokens_per_second": r.tok_s,
                "tau": r.tau,
                "prefill_seconds": r.prefill_seconds,
                "new_tokens": len(r.tokens),
            }
        )
    tokens: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for r in report.runs:
        tokens.setdefault(r.key, set()).add(r.tokens)
    differ = sum(len(answers) > 1 for answers in tokens.values())
    text = f"{report.markdown()}\n{state_text(watch.state)}"
    return finish(lines.facts, text, [Check("prompts whose tokens differ", differ, high=0)], False, lines)


if __name__ == "__main__":
    sys.exit(main())
