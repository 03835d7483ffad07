"""Prompt sets: JSONL files of ``{"turns": [user message, ...]}``, one request a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What is measured when no file is given: enough to try the command, not enough to quote.
BUILT_IN = (
    "Explain why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number, and explain how it works.",
    "A train leaves at 9:40 and arrives at 13:05. How long does the journey take? Think step by step.",
    "List five ideas for a birthday party for a child who likes dinosaurs.",
    "Summarise the water cycle in one paragraph.",
    "Write a short letter asking a neighbour to turn the music down.",
    "What is the difference between a list and a tuple in Python?",
    "Tom has 12 apples, eats 3 and shares the rest equally with 2 friends. How many does each get?",
)


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one file: the first turn of each request."""

    name: str
    prompts: tuple[str, ...]
    more_turns: int = 0  # requests with further turns, which are not used

    @property
    def note(self) -> str:
        if not self.more_turns:
            return ""
        return f"{self.name}: the first turn only, {self.more_turns} of {len(self.prompts)} prompts have more"


def _read(path: Path, limit: int | None) -> PromptSet:
    prompts: list[str] = []
    more = 0
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if limit is not None and len(prompts) == limit:
                break
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as e:
                raise ValueError(f"{path}, line {number}: not JSON ({e})") from None
            turns = record.get("turns") if isinstance(record, dict) else None
            if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
                raise ValueError(f'{path}, line {number}: expected {{"turns": [user message, ...]}}')
            prompts.append(turns[0])
            more += len(turns) > 1
    if not prompts:
        raise ValueError(f"{path}: no prompts in it")
    return PromptSet(path.stem, tuple(prompts), more)


def read_prompts(paths: Sequence[str | Path], limit: int | None = None) -> list[PromptSet]:
    """Files, and directories of ``*.jsonl``, in the order given; at most ``limit`` prompts of each file."""
    if not paths:
        return [PromptSet("built-in", BUILT_IN[:limit])]
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not found:
            raise ValueError(f"{path}: no *.jsonl files in this directory")
        files += found
    sets = [_read(path, limit) for path in files]
    for i, s in enumerate(sets):
        if s.name in {other.name for other in sets[:i]}:
            raise ValueError(
                f"{files[i]}: a prompt set named {s.name!r} was already given; rename one of the files"
            )
    return sets
