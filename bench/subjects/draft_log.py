"""The log of a trained drafter that fixed acceptance is drawn from (specpilot/drafters/replay.py), and how it was made:

    python -m subjects.draft_log --prompts DIRECTORY        # in bench/

writes ``draft_log.npz``: the shipped drafter (8 bits, as it ships) on the default target, whole blocks, greedy, some prompts of
each set. ``margins`` fp16 [generations, drafts, 15], ``accepted`` uint8 [generations, drafts], ``sets`` the name of
the generation's prompt set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specpilot import Engine, load
from specpilot.benchmark.prompts import read_prompts
from specpilot.cost import StepTime
from specpilot.drafters.replay import DraftLog
from specpilot.engine.decode import Generation, Request
from specpilot.width_policy import Fixed

FILE = Path(__file__).with_name("draft_log.npz")


def load_log(prompt_set: str | None = None) -> DraftLog:
    """The stored log, or its part of one prompt set (a name of ``published.BENCHMARKS``)."""
    with np.load(FILE) as stored:
        keep = stored["sets"] == prompt_set if prompt_set else slice(None)
        log = DraftLog(stored["margins"][keep].astype(np.float32), stored["accepted"][keep].astype(np.int64))
    if not len(log.margins):
        raise ValueError(f"draft log: no prompt set {prompt_set!r}")
    return log


class Recorder(Fixed):
    """Verifies whole blocks, and keeps margins and outcomes."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.margins: list[NDArray[np.float32]] = []
        self.accepted: list[int] = []

    def narrow(self, margins: NDArray[np.float32]) -> int:
        self.margins.append(margins.copy())
        return super().narrow(margins)

    def observe(self, drafted: int, verified: int, emitted: int, time: StepTime) -> None:
        self.accepted.append(emitted - 1)


def record(engine: Engine, prompt: list[int], drafts: int) -> Recorder | None:
    """So many whole blocks after a prompt; None where the text ends before."""
    verifier = engine._verifier("chain")
    recorder, block = Recorder(verifier.max_width), verifier.max_width
    request = Request(prompt, drafts * block + 1, engine.stop_ids)  # the last block is still a whole one
    for _ in Generation(engine, request, verifier, recorder):
        if len(recorder.accepted) >= drafts:
            break
    return recorder if len(recorder.accepted) >= drafts else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--each", type=int, default=12, help="generations of a set")
    parser.add_argument("--drafts", type=int, default=24, help="of a generation")
    args = parser.parse_args()
    engine = load(max_context=2048)
    margins, accepted, sets = [], [], []
    for prompts in read_prompts([args.prompts]):
        for text in prompts.prompts:
            if sets.count(prompts.name) == args.each:
                break
            found = record(engine, engine.encode(text), args.drafts)
            if found:
                margins.append(np.stack(found.margins[: args.drafts]).astype(np.float16))
                accepted.append(np.array(found.accepted[: args.drafts], dtype=np.uint8))
                sets.append(prompts.name)
        print(f"{prompts.name}: {sets.count(prompts.name)} generations")
    np.savez_compressed(FILE, margins=np.stack(margins), accepted=np.stack(accepted), sets=np.array(sets))


if __name__ == "__main__":
    main()
