"""A directory written by `specpilot pack`, as the checkpoint that was packed."""

from __future__ import annotations

from pathlib import Path

import torch

from .safetensors_dir import SafetensorsDir
from .safetensors_header import TensorInfo
from .w12_config import check_config
from .w12_file import W12File


class W12Dir(SafetensorsDir):
    def _refuse_quantized(self) -> None:
        check_config(self.config, self.source)

    def _open(self, shard: Path) -> dict[str, TensorInfo]:
        file = self._files[shard] = W12File(shard)
        return file.original.tensors

    def _read(self, file: W12File, name: str) -> torch.Tensor:
        return file.tensor(name)
