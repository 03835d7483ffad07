"""SpecPilot against llama.cpp: the same weights and threads, one process, interleaved prompt by prompt.

    python bench/compare_llama_cpp.py --prompts my-prompts.jsonl --limit 8 --out runs/llama

Timed, one request at a time and greedy: decoding, that is every token after the first until a stop id or
--max-new-tokens; and the prompt up to its first token (the set with long prompts shows what that is worth).
llama.cpp runs at its own defaults (flash attention automatic, fp16 KV cache, repacked weights) through
llama_decode and an argmax over its logits. Its tokens are its own: how many answers agree is information.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import arguments, finish, session
from llama_cpp_model import LlamaCpp, write_gguf

from specpilot import _C
from specpilot.benchmark.arms import Run
from specpilot.formats import open_checkpoint

LLAMA = "llama.cpp-bf16"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--long", type=int, default=512, help="length of the long prompts (default: %(default)s)"
    )
    args = parser.parse_args()
    bench = session(args)
    text = [token for prompts in bench.sets.values() for ids in prompts for token in ids]
    text *= -(-4 * args.long // len(text))
    bench.sets[f"{args.long} tokens"] = [text[i * args.long : (i + 1) * args.long] for i in range(4)]
    longest = max(len(ids) for prompts in bench.sets.values() for ids in prompts)
    with open_checkpoint(args.target) as checkpoint, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bf16.gguf"
        write_gguf(checkpoint, path)
        model = LlamaCpp(path, longest + bench.new, _C.threads())
        stop_ids = checkpoint.eos_token_ids()

        def llama(of: str, number: int, ids: list[int]) -> Run:
            tokens, prefill, decode = model.decode(ids, bench.new, stop_ids)
            return Run(of, number, LLAMA, tuple(ids), tuple(tokens), len(tokens) - 1, prefill, decode)

        bench.add(LLAMA, llama)
        report = bench.run()
    for row in report.rows():
        if LLAMA in row.prefill_ratios:
            report.notes.append(f"{row.set}: prefill of {row.arm} is {row.prefill_ratios[LLAMA]} × {LLAMA}")
    report.notes.append(f"llama.cpp: {model.system()}")
    finish(report, args)


if __name__ == "__main__":
    main()
