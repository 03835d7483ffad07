"""SpecPilot against the ``dflash`` package: the same weights of target and drafter, interleaved by prompt.

    python bench/compare_dflash.py --prompts my-prompts.jsonl --limit 4 --check --out runs/dflash

The package's own loop runs on CPU with transformers (bf16, sdpa): ``dflash`` with the drafter, ``dflash-ar``
with a block of one token, its own control. Timed, one request at a time and greedy: every token after
the first until a stop id or --max-new-tokens. Tokens may differ by float noise: --check judges all of them.
"""

from __future__ import annotations

import time
from functools import partial

import torch
from common import arguments, finish, session

from specpilot import _C
from specpilot.benchmark.arms import Run
from specpilot.forcing import stock_model
from specpilot.formats import open_checkpoint

try:
    import dflash.model
except ImportError as e:
    raise SystemExit(
        f"dflash is not installed ({e}): pip install dflash==0.1.0, then run this again"
    ) from None


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--dflash-drafter", required=True, help="directory of the same drafter, for the package"
    )
    args = parser.parse_args()
    bench = session(args)
    torch.set_num_threads(_C.threads())
    dflash.model._cuda_time = time.perf_counter  # its clock waits for a GPU
    drafter = dflash.model.DFlashDraftModel.from_pretrained(args.dflash_drafter, dtype=torch.bfloat16).eval()
    with open_checkpoint(args.target) as checkpoint:
        target = stock_model(checkpoint)
        stop_ids = checkpoint.eos_token_ids()

    def stock(name: str, block: int, of: str, number: int, ids: list[int]) -> Run:
        r = dflash.model.dflash_generate(
            drafter,
            target,
            torch.tensor([ids]),
            max_new_tokens=bench.new,
            stop_token_ids=stop_ids,
            block_size=block,
            return_stats=True,
        )
        tokens = tuple(r.output_ids[0, len(ids) :].tolist())
        seconds = r.time_per_output_token * r.num_output_tokens
        return Run(
            of, number, name, tuple(ids), tokens, len(r.acceptance_lengths), r.time_to_first_token, seconds
        )

    bench.add("dflash", partial(stock, "dflash", drafter.block_size))
    bench.add("dflash-ar", partial(stock, "dflash-ar", 1))
    finish(bench.run(), args)


if __name__ == "__main__":
    main()
