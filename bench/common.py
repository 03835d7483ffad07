"""What the comparisons with other engines share: arguments, our side of the run, and the output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from specpilot.benchmark import BenchConfig, Report, Session

ERR = Console(stderr=True, highlight=False)


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The options of ``specpilot bench``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--arms", default="ar-bf16,ar-w12,auto-w12")
    parser.add_argument("--prompts", type=Path, action="append", default=[], help="JSONL file or directory")
    parser.add_argument("--limit", type=int, help="prompts per file")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--max-context", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--check", action="store_true", help="token forcing of every arm")
    parser.add_argument("--out", type=Path, default=Path("bench-out"))
    return parser


def session(args: argparse.Namespace) -> Session:
    """Our engines, loaded, and the prompts, encoded."""
    config = BenchConfig(
        target=args.target,
        drafter=args.drafter,
        arms=tuple(args.arms.split(",")),
        prompts=tuple(args.prompts),
        limit=args.limit,
        max_new_tokens=args.max_new_tokens,
        check=args.check,
        max_context=args.max_context,
        threads=args.threads,
    )
    return Session(config, ERR)


def finish(report: Report, args: argparse.Namespace) -> None:
    """Writes and prints the report; the exit code says whether our arms agree and the checks passed."""
    paths = report.write(args.out)
    Console().print(report.table())
    ERR.print("[dim]" + ", ".join(map(str, paths)) + "[/dim]")
    sys.exit(0 if report.ok else 1)
