"""What a hostile w12 directory can say: name → (a function that breaks a packed directory, words its refusal must hold)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edits import FILE, FIRST, Attack, grown, header, setting

KEYS = ("specpilot_w12", "w12_header", "w12_crc32")
LOW, POSITIONS, VALUES = (f"{FIRST}.w12_{field}" for field in ("low", "exc_pos", "exc_val"))


def metadata(**changes: Any) -> Callable[[Path], Any]:
    """Replaces entries of the file's metadata; None leaves them out."""

    def edit(entries: dict[str, Any]) -> None:
        entries["__metadata__"].update(changes)
        entries["__metadata__"] = {k: v for k, v in entries["__metadata__"].items() if v is not None}

    return header(edit)


def original(edit: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    """Edits the header of the original file, which the metadata holds."""

    def change(entries: dict[str, Any]) -> None:
        held = json.loads(entries["__metadata__"]["w12_header"])
        edit(held)
        entries["__metadata__"]["w12_header"] = json.dumps(held)

    return header(change)


def array(name: str, **changes: Any) -> Callable[[Path], Any]:
    return header(lambda entries: entries[name].update(changes))


def renamed(old: str, new: str) -> Callable[[Path], Any]:
    return header(lambda entries: entries.update({new: entries.pop(old)}))


def last(entries: dict[str, Any]) -> dict[str, Any]:
    """The entry of the tensor that ends the original file."""
    return max((e for n, e in entries.items() if n != "__metadata__"), key=lambda e: e["data_offsets"])


def resized(entries: dict[str, Any], shape: list[int], nbytes: int) -> None:
    entry = last(entries)
    begin = entry["data_offsets"][0]
    entry.update(shape=shape, data_offsets=[begin, begin + nbytes])


def version(value: Any) -> Callable[[Path], Any]:
    return setting(quantization_config={"quant_method": "w12", "version": value})


ATTACKS: dict[str, Attack] = {
    **{
        f"config says version {value!r}": (version(value), ("config.json", "w12 version"))
        for value in (0, 2, "1", 1.5, None, [1], True)
    },
    **{
        f"the file says version {value[:5]!r}": (metadata(specpilot_w12=value), (FILE, "w12 version"))
        for value in ("2", "", "1.0", "-1", "9" * 10_000, "²", "٣")
    },
    **{f"no {key}": (metadata(**{key: None}), (FILE, key)) for key in KEYS},
    **{
        f"{key} is {what}": (metadata(**{key: text}), (FILE, key, says))
        for key in KEYS[1:]
        for what, text, says in (
            ("nothing", "", "not valid JSON"),
            ("a list", "[]", "expected a JSON object"),
            ("deep", '{"a":' * 50_000, "not valid JSON"),
            ("half a surrogate pair", "\ud800", ""),
        )
    },
    "no checksums": (metadata(w12_crc32="{}"), (FILE, "checksum")),
    "checksums that are numbers": (
        metadata(w12_crc32=json.dumps({FIRST: 5})),
        (FILE, "checksum"),
    ),
    "no marks at all": (setting(quantization_config=None), (FILE, "is a w12 file")),
    "marked as another kind": (setting(quantization_config={"quant_method": "awq"}), ("'awq'",)),
    "a plain file": (
        lambda d: metadata(**dict.fromkeys((*KEYS, "w12_sha256")))(d),
        (FILE, "specpilot_w12"),
    ),
    "an array of another type": (array(POSITIONS, dtype="F32"), (FILE, FIRST, "w12_exc_pos is F32")),
    "an array of another shape": (array(LOW, shape=[64, 96]), (FILE, FIRST, "w12_low is U8 [64, 96]")),
    "an array of no dimensions": (array(POSITIONS, dtype="U8", shape=[]), (FILE, POSITIONS)),
    "an array is missing": (renamed(VALUES, "x"), (FILE, FIRST, "w12_exc_val is missing")),
    "an array too many": (
        header(lambda h: h.update({"x.w12_low": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})),
        (FILE, "x.w12_low", "belongs to no tensor"),
    ),
    "two tensors share arrays": (
        original(lambda h: h.update(copy={"dtype": "BF16", "shape": [0, 8], "data_offsets": [0, 0]})),
        (FILE, "copy", "is missing"),
    ),
    "cut": (lambda d: grown(d, -1), (FILE, "cut short")),
    "longer": (lambda d: grown(d, 8), (FILE, "8 bytes after the last tensor")),
    "an original without tensors": (metadata(w12_header="{}"), (FILE, "belongs to no tensor")),
    "an original tensor of another type": (
        original(lambda h: last(h).update(dtype="F16")),
        (FILE, "F16"),
    ),
    "an original tensor that is huge": (
        original(lambda h: resized(h, [2**29, 2**29], 2**59)),
        (FILE, "expected BF16 [536870912, 536870912]"),
    ),
    "an original tensor whose size wraps to 0": (
        original(lambda h: resized(h, [2**32, 2**31], 0)),
        (FILE, "w12_header", "too large"),
    ),
    "original positions with a hole": (
        original(lambda h: h[FIRST].update(data_offsets=[x + 2 for x in h[FIRST]["data_offsets"]])),
        (FILE, "w12_header", "hole"),
    ),
    "an original tensor twice": (
        metadata(w12_header='{"a": 1, "a": 2}'),
        (FILE, "w12_header", "'a' appears twice"),
    ),
}
