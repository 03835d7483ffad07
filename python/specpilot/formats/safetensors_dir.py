"""A Hugging Face directory of safetensors: one file or an index with shards."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .checkpoint import Checkpoint
from .errors import CheckpointError
from .safetensors_file import SafetensorsReader
from .safetensors_header import TensorInfo, read_json
from .w12_config import VERSION_KEY

_INDEX = "model.safetensors.index.json"
ROUNDED = ("F16", "F32")


class SafetensorsDir(Checkpoint):
    def __init__(self, directory: Path, to_bf16: bool = False) -> None:
        self.source = str(directory)
        self._directory = directory
        self.config = read_config(directory)
        generation = directory / "generation_config.json"
        self.generation_config = read_json(generation) if generation.exists() else {}
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._files: dict[Path, Any] = {}
        self._refuse_quantized()

        self._shard_of: dict[str, Path] = {}
        self._info: dict[str, TensorInfo] = {}
        try:
            self._open_all()
            self._check_dtypes(to_bf16)
        except BaseException:
            self.close()
            raise

    def _open_all(self) -> None:
        for shard, expected in shards(self._directory).items():
            tensors = self._open(shard)
            missing = next((name for name in expected or () if name not in tensors), None)
            if missing is not None:
                raise CheckpointError(
                    f"{shard}: tensor {missing} is missing, though {_INDEX} places it there"
                )
            for name in tensors if expected is None else expected:
                if not is_derived(name):
                    self._shard_of[name], self._info[name] = shard, tensors[name]

    def names(self) -> list[str]:
        return list(self._info)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._known(name).shape

    def tensor(self, name: str) -> torch.Tensor:
        info = self._known(name)
        if info.dtype not in ("BF16", *ROUNDED):
            raise CheckpointError(f"{self._shard_of[name]}: tensor {name} is {info.dtype}, expected BF16")
        shard = self._shard_of[name]
        if shard not in self._files:  # closed meanwhile
            self._open(shard)
        return self._read(self._files[shard], name).to(torch.bfloat16)

    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        has_one = any(
            (self._directory / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")
        )
        if self._tokenizer is None and has_one:
            for path in self._directory.iterdir():
                if path.exists() and not path.is_file() and not path.is_dir():
                    raise CheckpointError(f"{path}: is no regular file")  # a pipe would wait for a writer
            try:
                self._tokenizer = AutoTokenizer.from_pretrained(
                    self._directory, local_files_only=True, trust_remote_code=False
                )
            except Exception as e:  # it parses several untrusted files and raises whatever comes up
                raise CheckpointError(f"{self.source}: its tokenizer cannot be loaded: {e}") from e
        return self._tokenizer

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self, shard: Path) -> dict[str, TensorInfo]:
        """The tensors that a file holds."""
        file = self._files[shard] = SafetensorsReader(shard)
        if VERSION_KEY in file.header.metadata:
            raise CheckpointError(
                f"{shard}: is a w12 file, but config.json beside it does not say so; take the one packed with it"
            )
        return file.header.tensors

    def _read(self, file: Any, name: str) -> torch.Tensor:
        """A tensor of one of the float types, in memory of its own."""
        return file.get_tensor(name)

    def _known(self, name: str) -> TensorInfo:
        try:
            return self._info[name]
        except KeyError:
            raise CheckpointError(f"{self.source}: tensor {name} is missing") from None

    def _refuse_quantized(self) -> None:
        quantization = self.config.get("quantization_config")
        if quantization is not None:
            method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
            raise CheckpointError(
                f"{self.source}: quantized with {method!r}; only bf16 and w12 checkpoints are read"
            )

    def _check_dtypes(self, to_bf16: bool) -> None:
        rounded = [name for name, info in self._info.items() if info.dtype in ROUNDED]
        if not rounded:
            return
        name, dtype = rounded[0], self._info[rounded[0]].dtype
        if not to_bf16:
            raise CheckpointError(
                f"{self._shard_of[name]}: tensor {name} is {dtype}, not BF16 ({len(rounded)} of "
                f"{len(self._info)} are not); pass --to-bf16 to round the weights to bf16"
            )
        warnings.warn(
            f"{self.source}: --to-bf16 ROUNDS {len(rounded)} of {len(self._info)} tensors ({dtype} to bf16); "
            "the output is that of the rounded model",
            stacklevel=4,
        )


def is_derived(name: str) -> bool:
    """Old Llama checkpoints carry rotary frequencies; they follow from the config and are never read."""
    return name.endswith("rotary_emb.inv_freq")


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of a model directory."""
    path = directory / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{directory}: no config.json; expected a Hugging Face model directory")
    return read_json(path)


def shards(directory: Path) -> dict[Path, list[str] | None]:
    """Shard files with the tensor names the index places in each; None where there is no index."""
    index = directory / _INDEX
    if not index.exists():
        single = directory / "model.safetensors"
        if not single.is_file():
            raise CheckpointError(f"{directory}: neither model.safetensors nor {_INDEX} is there")
        return {single: None}
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: weight_map must map tensor names to files")
    found: dict[Path, list[str] | None] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or file != Path(file).name or not file.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: tensor {name} lies in {file!r}, expected the plain name of a .safetensors file"
            )
        shard = directory / file
        if shard not in found:
            if not os.path.isfile(shard):  # pathlib raises for a name that is too long
                raise CheckpointError(f"{directory}: shard {file} is missing (tensor {name} lies there)")
            found[shard] = []
        found[shard].append(name)  # type: ignore[union-attr]
    return found
