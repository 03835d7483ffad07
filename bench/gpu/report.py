"""All GPU figures of docs/benchmarks.md in one go, each part in a process of its own that is ended when its time is up.

    python bench/gpu/report.py --prompts PROMPTS                       every part
    python bench/gpu/report.py gemm step --out runs                    these parts
    python bench/gpu/report.py pair --prompts PROMPTS --seconds 300    another time limit, for each of them

What a part printed, its tables last, is kept in OUT/PART.md, its JSON lines in OUT/PART.jsonl; both as the run goes, so that a part
that is ended leaves what it had. ``--quick``: fewer repetitions, and requests, of each part.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT
from time import perf_counter

HERE = Path(__file__).resolve().parent
AFTER = 45  # seconds of a part that are kept for what follows its last request


@dataclass(frozen=True)
class Options:
    out: Path
    prompts: Sequence[Path]
    target: str
    drafter: str
    dry_run: bool
    quick: bool = False

    def script(self, part: str, name: str, *more: str) -> list[str]:
        dry = ["--dry-run"] * self.dry_run
        return [
            sys.executable,
            str(HERE / f"{name}.py"),
            "--out",
            str(self.out / f"{part}.jsonl"),
            *dry,
            *more,
        ]

    @property
    def texts(self) -> list[str]:
        pair = ["--target", self.target, "--drafter", self.drafter]
        return [*pair, *(a for p in self.prompts for a in ("--prompts", str(p)))]

    def plain(self, part: str, name: str) -> list[str]:
        """Of a script without a dry run of its own."""
        out = ["--out", str(self.out / f"{part}.jsonl"), "--device", "cpu" if self.dry_run else "cuda"]
        return [sys.executable, str(HERE / f"{name}.py"), *out, *self.texts]


@dataclass(frozen=True)
class Part:
    """``command``: of the options and of the seconds after which no request may end."""

    about: str
    seconds: int
    command: Callable[[Options, float], list[str]]


def _gemm(o: Options, _: float) -> list[str]:
    return o.script("gemm", "gemm", *(["--epochs", "7"] * o.quick))


def _step(o: Options, _: float) -> list[str]:
    few = ["--epochs", "6", "--widths", "1,16"] * o.quick
    return o.script("step", "step", "--contexts", "1024", *few)


def _long(o: Options, _: float) -> list[str]:
    far = ["--contexts", "8192,32768", "--widths", "1,64", "--prompts", "2048", "--parts", "passes"]
    return o.script("long", "step", *far, "--epochs", "5")


def _pair(o: Options, seconds: float) -> list[str]:
    few = ["--limit", "1", "--new", "16"] if o.dry_run else ["--limit", "2"] * o.quick
    return o.script("pair", "pair", *o.texts, *few, "--seconds", f"{seconds:.0f}")


def _replay(o: Options, seconds: float) -> list[str]:
    few = (
        ["--context", "20", "--requests", "1", "--new", "20"] if o.dry_run else ["--requests", "2"] * o.quick
    )
    return o.script("replay", "replay", *few, "--seconds", f"{seconds:.0f}")


def _smollm2(o: Options, _: float) -> list[str]:
    few = ["--limit", "1", "--new", "16"] if o.dry_run else ["--limit", "4"] * o.quick
    return [*o.plain("smollm2", "default_model"), *few]


def _bits(o: Options, seconds: float) -> list[str]:
    few = ["--limit", "1", "--new", "16"] if o.dry_run else ["--jobs", "5", "--calibration", "12"]
    return [*o.plain("bits", "bits"), *few, "--seconds", f"{seconds / 2:.0f}"]


PARTS = {
    "gemm": Part("weight products against cuBLAS and a pure read", 300, _gemm),
    "step": Part("Qwen3-8B's shape at 1k, and prompts", 420, _step),
    "long": Part("the same at 8k and 32k", 420, _long),
    "pair": Part("inflated SmolLM2: real text", 420, _pair),
    "replay": Part("published acceptance", 420, _replay),
    "smollm2": Part("the default model: specpilot bench", 240, _smollm2),
    "bits": Part("chain = AR on every prompt, and token forcing", 540, _bits),
}


def run(name: str, options: Options, seconds: float) -> str:
    """Runs a part, prints what it printed, and gives a line on how it ended."""
    command, begin = PARTS[name].command(options, max(seconds - AFTER, 30)), perf_counter()
    path = options.out / f"{name}.md"
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with path.open("w") as text:
        part = subprocess.Popen(command, stdout=text, stderr=STDOUT, env=env, start_new_session=True)
        try:
            code = part.wait(seconds)
            end = (
                "all bars met" if code == 0 else f"ended with status {code}: a bar missed, or an error above"
            )
        except subprocess.TimeoutExpired:
            os.killpg(part.pid, signal.SIGKILL)  # with the processes that it started
            part.wait()
            end = f"stopped after {seconds:.0f} s"
    print(f"\n===== {name}: {PARTS[name].about}\n\n{path.read_text().strip()}", flush=True)
    return f"{name}: {end} ({perf_counter() - begin:.0f} s)"


def main() -> int:
    about = "\n".join(f"  {name:<8} {part.seconds:>4} s  {part.about}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nParts and their time limits:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help="default: all")
    parser.add_argument("--prompts", type=Path, action="append", default=[], help="JSONL file or directory")
    parser.add_argument("--target", default="smollm2-135m", help="the small model of pair, smollm2 and bits")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--seconds", type=float, help="time limit of each part")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the CPU; figures mean nothing")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    options = Options(args.out, args.prompts, args.target, args.drafter, args.dry_run, args.quick)
    ends = [run(name, options, args.seconds or PARTS[name].seconds) for name in args.parts or PARTS]
    print("\n" + "\n".join(ends))
    return 0 if all("all bars met" in end for end in ends) else 1


if __name__ == "__main__":
    sys.exit(main())
