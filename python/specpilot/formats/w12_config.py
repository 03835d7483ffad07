"""How config.json says that a directory is w12, and how it is undone."""

from __future__ import annotations

import json
from typing import Any

from .errors import CheckpointError
from .safetensors_header import parse_json

VERSION = 1
VERSION_KEY = "specpilot_w12"  # in __metadata__ of each file
_KEY = "quantization_config"
_VALUE = {"quant_method": "w12", "version": VERSION}
_INSERTED = f'\n  "{_KEY}": {json.dumps(_VALUE)}'.encode()


def is_w12(config: dict[str, Any]) -> bool:
    own = config.get(_KEY)
    return isinstance(own, dict) and own.get("quant_method") == "w12"


def check_version(version: object, where: str) -> None:
    """Refuses versions of the format that this release does not know."""
    if type(version) is not int or version != VERSION:
        raise CheckpointError(
            f"{where}: w12 version {version}; this release reads version {VERSION}: upgrade specpilot"
        )


def check_config(config: dict[str, Any], directory: str) -> None:
    check_version(config[_KEY].get("version"), f"{directory}/config.json")


def marked(text: bytes, rounded: bool) -> bytes:
    """config.json of the packed directory. ``rounded``: the weights were made bf16, so it has to say so."""
    config = parse_json(text, "config.json")
    if rounded or _KEY in config:
        config.pop(_KEY, None)
        for key in ("dtype", "torch_dtype"):
            if rounded and key in config:
                config[key] = "bfloat16"
        config[_KEY] = _VALUE
        return json.dumps(config, indent=2).encode() + b"\n"
    inserted = _INSERTED + b"," if config else _INSERTED
    return text.replace(b"{", b"{" + inserted, 1)  # so that it comes back as it was


def unmarked(text: bytes) -> bytes:
    """What :func:`marked` was given; the same values in another layout where someone rewrote the file."""
    for inserted in (_INSERTED + b",", _INSERTED):
        if text.lstrip().startswith(b"{" + inserted):
            return text.replace(inserted, b"", 1)
    config = parse_json(text, "config.json")
    config.pop(_KEY, None)
    return json.dumps(config, indent=2).encode() + b"\n"
