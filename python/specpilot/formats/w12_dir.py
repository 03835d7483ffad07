"""A directory written by `specpilot pack`, as the checkpoint that was packed."""

from __future__ import annotations

from pathlib import Path

import torch

from .safetensors_dir import SafetensorsDir
from .safetensors_header import TensorInfo
from .w12_config import check_config
from .w12_file import W12File


class W12Dir(SafetensorsDir):
    def close(self) -> None:
        for file in self._files.values():
            file.close()
        super().close()

    def _refuse_quantized(self) -> None:
        check_config(self.config, self.source)

    def _open(self, shard: Path) -> dict[str, TensorInfo]:
        self._files[shard] = W12File(shard)
        return self._files[shard].original.tensors

    def _read(self, shard: Path, name: str) -> torch.Tensor:
        if shard not in self._files:  # closed meanwhile
            self._open(shard)
        return self._files[shard].tensor(name).to(torch.bfloat16)
