"""Ways to break a model's directory; each gives a function that takes the directory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Attack = tuple[Callable[[Path], Any], tuple[str, ...]]

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
FIRST = "model.embed_tokens.weight"  # bf16 [96, 64]; not the first in the file
HUGE = 2**31 - 1


def split(directory: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data of a good file."""
    content = (directory / FILE).read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def raw(text: bytes, length: int | None = None) -> Callable[[Path], Any]:
    """Replaces the header's text, and what the file says of its length."""

    def mutate(directory: Path) -> None:
        said = struct.pack("<Q", len(text) if length is None else length)
        (directory / FILE).write_bytes(said + text + split(directory)[1])

    return mutate


def header(edit: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    """Edits the header as the object that it holds."""

    def mutate(directory: Path) -> None:
        entries, data = split(directory)
        edit(entries)
        text = json.dumps(entries).encode()
        (directory / FILE).write_bytes(struct.pack("<Q", len(text)) + text + data)

    return mutate


def entry(**changes: Any) -> Callable[[Path], Any]:
    return header(lambda entries: entries[FIRST].update(changes))


def written(file: str, content: bytes | str) -> Callable[[Path], Any]:
    """A file with other content."""
    return lambda directory: (directory / file).write_bytes(
        content.encode() if isinstance(content, str) else content
    )


def replaced(file: str, make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Something that is no file in the place of one."""

    def mutate(directory: Path) -> None:
        (directory / file).unlink(missing_ok=True)
        make(directory / file)

    return mutate


def setting(**changes: Any) -> Callable[[Path], Any]:
    def mutate(directory: Path) -> None:
        path = directory / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return mutate


def placed(file: Any) -> Callable[[Path], Any]:
    """The index places a tensor in another file."""

    def mutate(directory: Path) -> None:
        index = json.loads((directory / INDEX).read_text())
        index["weight_map"][FIRST] = file
        (directory / INDEX).write_text(json.dumps(index))

    return mutate


def shifted(entries: dict[str, Any], by: int) -> None:
    begin, end = entries[FIRST]["data_offsets"]
    entries[FIRST]["data_offsets"] = [begin + by, end + by]


def grown(directory: Path, by: int) -> None:
    os.truncate(directory / FILE, (directory / FILE).stat().st_size + by)


def moved(directory: Path, name: str) -> None:
    """A shard lies elsewhere, under a link: the Hub's cache keeps files this way."""
    shard = next(directory.glob("model-00001*"))
    (directory / name).mkdir()
    shard.rename(directory / name / "blob")
    shard.symlink_to(directory / name / "blob")


def loop(path: Path) -> None:
    path.symlink_to(path.name)
