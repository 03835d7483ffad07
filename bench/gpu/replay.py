"""Published acceptance at full size: random weights in the shape of a model, drafts accepted as its released drafter's were.

    python bench/gpu/replay.py --model qwen3-8b --requests 4

Arms: decode_arms.py. The law of acceptance: specpilot/drafters/replay.py; each benchmark's τ: bench/subjects/published.py.
"""

from __future__ import annotations

import sys
from statistics import mean

import decode_table
from decode_arms import ARMS, Clock, by_turns, make_engines, run
from device import Watch
from engine_arms import tokens
from kernel_times import Busy, graphs, profiled, steady
from shapes import TINY
from step_table import graph_table, profile_table
from subjects import published, shapes
from subjects.draft_log import load_log
from subjects.random_model import random_subject
from tables import Check, Lines, arguments, device_of, finish, state_text

from specpilot.drafters.replay import Replay, SurvivalLaw

CONTINUED = {
    "w12": "ar",
    "bf16": "chain",
}  # where cuBLAS takes part, a chain has one-token decoding's tokens only nearly
GAIN = 6.3


def main() -> int:
    parser = arguments(__doc__, "replay.jsonl")
    parser.add_argument("--model", choices=published.TAU, default="qwen3-8b")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a prompt")
    parser.add_argument("--requests", type=int, default=4, help="of each benchmark")
    parser.add_argument("--new", type=int, default=192, help="tokens of an answer")
    parser.add_argument("--seconds", type=float, default=400, help="no request is begun that would end later")
    args = parser.parse_args()
    device, clock = device_of(args), Clock(args.seconds)
    tiny = {"layers": TINY.config.num_layers + 4, "changes": shapes.TINY} if args.dry_run else {}
    made = random_subject(args.model, device, **tiny)
    assert made.draft_config
    block = made.draft_config.block_size
    tau = published.TAU[args.model]
    laws = {of: SurvivalLaw.of(load_log(of).first(block - 1), t) for of, t in tau.items()}
    first = next(iter(laws.values()))
    engines, choices = make_engines(
        made, args.context + args.new + 2 * block, device, lambda d: Replay(d, first)
    )

    def prepare(of: str, number: int, prompt: list[int]) -> None:
        for weights, engine in engines.items():
            replay = engine.drafter
            assert isinstance(replay, Replay)
            replay.law = laws[of]
            more = args.new + block  # the last drafts, too, are right about something
            text = engine.decode(
                prompt, max_new_tokens=more, verify=CONTINUED[weights], ignore_stop_ids=True
            ).tokens
            replay.follow(prompt, text, number)

    prompts = [
        [(t + 7 * i) % made.config.vocab_size for t in tokens(engines["w12"], args.context)]
        for i in range(args.requests)
    ]
    lines, samples, busy = Lines(args.out, device), [], ""
    with Watch(device == "cuda", every=5) as watch:
        requests = by_turns(dict.fromkeys(laws, prompts))
        for sample in run(engines, requests, args.new, clock, prepare=prepare, ignore_stop_ids=True):
            lines.add(sample.record())
            samples.append(sample)
    for arm in ("stock", "specpilot"):
        engine = engines[ARMS[arm][0]]
        result = []

        def sample_once(engine=engine, result=result) -> None:  # type: ignore[no-untyped-def]
            result.append(
                engine.decode(prompts[-1], max_new_tokens=args.new, verify="chain", ignore_stop_ids=True)
            )

        kernels = profiled(sample_once, device)
        kernels, count = steady(kernels, result[0].stats.passes) if kernels else ([], 0)
        if count:
            of = Busy.of(kernels, count)
            lines.add({"op": "profile", "shape": args.model, "variant": f"{arm}, a pass", **vars(of)})
            each = graphs(kernels, count)
            busy += f"\n\n{graph_table(f'a pass, {arm}', each)}\n\n{profile_table(f'{arm}, a pass', of)}"
    have = decode_table.sets_of(samples)
    note = f"published τ: {', '.join(f'{of} {tau[of]}' for of in have)}; their mean {mean(tau[of] for of in have):.2f}"
    text = "\n\n".join(
        [
            choices.table(), decode_table.speeds(samples, f"{args.model}, replayed, tok/s (τ)"), note,
            decode_table.ratios(samples), decode_table.parts(samples) + busy, decode_table.agreement(samples),
            state_text(watch.state),
        ]
    )  # fmt: skip
    gain = decode_table.ratio(samples, "specpilot", "ar-bf16")["mean"]
    checks = [
        Check("requests whose tokens differ", sum(s.same is False for s in samples), high=0),
        Check(f"specpilot / ar-bf16, mean of {len(have)} benchmarks", gain, low=GAIN),
    ]
    return finish(lines.facts, text, checks, args.dry_run, lines)


if __name__ == "__main__":
    sys.exit(main())
