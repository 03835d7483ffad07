"""What a checkpoint on disk looks like to the rest of the house, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .errors import CheckpointError


class Checkpoint(ABC):
    """Configuration, tokenizer and bf16 tensors of one model.

    ``config``             the model's config.json as a dict with Hugging Face keys
    ``generation_config``  generation_config.json as a dict, empty when there is none
    ``source``             where it came from, for messages
    """

    source: str
    config: dict[str, Any]
    generation_config: dict[str, Any]

    @abstractmethod
    def names(self) -> list[str]:
        """Hugging Face names of all tensors."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, from the header alone."""

    @abstractmethod
    def tensor(self, name: str) -> torch.Tensor:
        """The bf16 values, in memory of their own: the checkpoint may be closed afterwards."""

    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The model's tokenizer; None when the checkpoint has none."""

    @abstractmethod
    def close(self) -> None:
        """Releases the files."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as bf16."""
        return sum(2 * torch.Size(self.shape(name)).numel() for name in self.names())

    def eos_token_ids(self) -> list[int]:
        """Ids that end a generation: those of generation_config, config and tokenizer, each named once."""
        tokenizer = self.tokenizer()
        ids: dict[int, None] = {}
        for owner, value in (
            ("generation_config", self.generation_config.get("eos_token_id")),
            ("config", self.config.get("eos_token_id")),
            ("tokenizer", tokenizer.eos_token_id if tokenizer is not None else None),
        ):
            for token in value if isinstance(value, list) else [] if value is None else [value]:
                if not isinstance(token, int) or isinstance(token, bool):
                    raise CheckpointError(
                        f"{self.source}: eos_token_id of {owner} is {token!r}, expected an integer"
                    )
                ids[token] = None
        return list(ids)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_checkpoint(source: str | Path, to_bf16: bool = False) -> Checkpoint:
    """Opens a directory (safetensors, plain or w12), a ``.gguf`` file, a short name of the zoo or a Hub name.

    ``to_bf16`` permits fp16 and fp32 safetensors, rounded to bf16 with a warning; else they are refused.
    Anything that cannot be used raises :class:`CheckpointError`.
    """
    from .. import zoo  # imports this package's errors

    path = zoo.resolve_target(source)
    if path.is_dir():
        from .safetensors_dir import SafetensorsDir, read_config
        from .w12_config import is_w12
        from .w12_dir import W12Dir

        return (W12Dir if is_w12(read_config(path)) else SafetensorsDir)(path, to_bf16)
    if path.suffix == ".gguf":
        from .gguf_file import GgufFile

        return GgufFile(path)
    hint = f"; pass its directory: {path.parent}" if path.suffix == ".safetensors" else ""
    raise CheckpointError(f"{path}: not a directory of safetensors and not a .gguf file{hint}")
