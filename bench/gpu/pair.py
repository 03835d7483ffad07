"""Real text at full size: SmolLM2 and its drafter inside the shape of Qwen3-8B, so that its bytes move and its drafts are accepted.

    python bench/gpu/pair.py --prompts PROMPTS --limit 4

Arms: decode_arms.py. The subject: bench/subjects/inflate.py.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import decode_table
import shapes  # noqa: F401 (finds bench/subjects)
from decode_arms import Clock, by_turns, make_engines, run
from device import Watch
from subjects.inflate import QWEN3_8B, Size, inflated_subject
from tables import Check, Lines, arguments, device_of, finish, state_text

from specpilot import zoo
from specpilot.benchmark.prompts import read_prompts
from specpilot.formats import open_checkpoint

TINY = Size(128, 192, 8, 8, 4, 32, 512, 3, 4)  # of dry runs


def main() -> int:
    parser = arguments(__doc__, "pair.jsonl")
    parser.add_argument("--target", default=zoo.DEFAULT_TARGET, help="the small model")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--prompts", type=Path, action="append", default=[], help="JSONL file or directory")
    parser.add_argument("--limit", type=int, default=4, help="prompts per file")
    parser.add_argument("--new", type=int, default=256, help="tokens of an answer at most")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=400, help="no request is begun that would end later")
    args = parser.parse_args()
    device, clock = device_of(args), Clock(args.seconds)
    lines, samples = Lines(args.out, device), []
    with ExitStack() as stack:
        target = stack.enter_context(open_checkpoint(args.target))
        name = zoo.known_drafter(target) if args.drafter == "auto" else args.drafter
        if name is None:
            sys.exit(f"--drafter: none is known for {args.target}, name one")
        drafter = stack.enter_context(open_checkpoint(name))
        made = inflated_subject(target, drafter, TINY if args.dry_run else QWEN3_8B, device)
        engines, choices = make_engines(made, args.context, device)
    sets = {
        s.name: [engines["w12"].encode(p) for p in s.prompts] for s in read_prompts(args.prompts, args.limit)
    }
    with Watch(device == "cuda", every=5) as watch:
        for sample in run(engines, by_turns(sets), args.new, clock):
            lines.add(sample.record())
            samples.append(sample)
    text = "\n\n".join(
        [
            choices.table(), decode_table.speeds(samples, "inflated pair, tok/s (τ)"), decode_table.ratios(samples),
            decode_table.parts(samples), decode_table.agreement(samples), state_text(watch.state),
        ]
    )  # fmt: skip
    differ = sum(s.same is False for s in samples)
    return finish(
        lines.facts, text, [Check("requests whose tokens differ", differ, high=0)], args.dry_run, lines
    )


if __name__ == "__main__":
    sys.exit(main())
