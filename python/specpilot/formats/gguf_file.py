"""A llama.cpp GGUF file as a checkpoint."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from transformers import PreTrainedTokenizerBase

from .checkpoint import Checkpoint
from .errors import CheckpointError
from .gguf_config import ROPE_FACTORS, hf_config, hf_name
from .gguf_header import GgufTensor, read_header
from .gguf_tokenizer import build_tokenizer

_CHUNK = 1 << 22  # elements dequantised at a time: bounds the fp32 copy


class GgufFile(Checkpoint):
    """Tensors are dequantised and rounded to bf16 once: the target *is* this dequantised bf16 model, exactly.

    Its tokens may differ from llama.cpp's, which multiplies the quantised blocks with quantised activations.
    """

    def __init__(self, path: Path) -> None:
        self.source = str(path)
        self._path = path
        self._header = read_header(path)
        factors = self._header.tensors.get(ROPE_FACTORS)
        self.config = hf_config(
            self.source,
            self._header,
            self._read(ROPE_FACTORS, factors, torch.float32).tolist() if factors else None,
        )
        self.generation_config = {}
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._names: dict[str, str] = {}
        for name in self._header.tensors:
            hf = hf_name(name)
            if hf is not None:
                self._names[hf] = name
            elif name != ROPE_FACTORS:
                raise CheckpointError(
                    f"{path}: tensor {name} is unknown for {self.config['architectures'][0]}"
                )

    def names(self) -> list[str]:
        return list(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._info(name).shape

    def tensor(self, name: str) -> torch.Tensor:
        info = self._info(name)
        return self._unpermuted(name, self._read(self._names[name], info, torch.bfloat16))

    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        if self._tokenizer is None and "tokenizer.ggml.model" in self._header.metadata:
            self._tokenizer = build_tokenizer(self.source, self._header.metadata, self.config["vocab_size"])
        return self._tokenizer

    def close(self) -> None:
        pass  # the file is open only while a tensor is read

    def _info(self, name: str) -> GgufTensor:
        try:
            return self._header.tensors[self._names[name]]
        except KeyError:
            raise CheckpointError(f"{self.source}: tensor {name} is missing") from None

    def _read(self, name: str, info: GgufTensor, dtype: torch.dtype) -> torch.Tensor:
        """Dequantised, then rounded to ``dtype``; some rows at a time."""
        columns = info.shape[-1]
        rows = math.prod(info.shape) // columns
        step = max(_CHUNK // columns, 1)
        row_bytes = info.nbytes // rows
        out = torch.empty(rows, columns, dtype=dtype)
        try:
            with open(self._path, "rb") as file:
                file.seek(info.begin)
                for row in range(0, rows, step):
                    n = min(step, rows - row)
                    data = np.fromfile(file, np.uint8, n * row_bytes)  # fewer at the end of the file
                    if data.size != n * row_bytes:
                        raise CheckpointError(f"{self._path}: cut short in tensor {name}")
                    out[row : row + n] = _dequantized(data.reshape(n, row_bytes), info.type)
        except NotImplementedError:
            raise CheckpointError(
                f"{self._path}: tensor {name} has type {info.type.name}, which is not read"
            ) from None
        except OSError as e:
            raise CheckpointError(
                f"{self._path}: tensor {name} cannot be read: {os.strerror(e.errno or 0)}"
            ) from e
        return out.reshape(info.shape)

    def _unpermuted(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """For `llama`, llama.cpp interleaves the rotary halves of q and k; transformers keeps them apart."""
        if self.config["model_type"] != "llama" or ".self_attn." not in name:
            return value
        key = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if key is None:
            return value
        heads, pairs = self.config[key], self.config["head_dim"] // 2
        if value.shape[0] != heads * 2 * pairs:
            raise CheckpointError(
                f"{self.source}: tensor {name} has {value.shape[0]} rows, expected {heads * 2 * pairs}"
            )
        return value.reshape(heads, pairs, 2, -1).transpose(1, 2).reshape(value.shape)


def _dequantized(data: np.ndarray, type_: GGMLQuantizationType) -> torch.Tensor:
    if type_ == GGMLQuantizationType.BF16:
        return torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)
    with np.errstate(all="ignore"):  # a block's scale may be NaN or infinite; so are its weights then
        return torch.from_numpy(dequantize(data, type_))
