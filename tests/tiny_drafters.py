"""Tiny random DFlash drafters: the `dflash` package's own module, and its weights as a published checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import tiny_targets
import torch
from dflash.model import DFlashDraftModel as Stock
from safetensors.torch import save_file
from transformers import Qwen3Config

from specpilot.drafters import DRAFTERS, TargetParts
from specpilot.formats import open_checkpoint

MASK = 7
TARGET_LAYERS = 6


def config_of(**changes) -> Qwen3Config:
    base = {
        "vocab_size": tiny_targets.VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "num_target_layers": TARGET_LAYERS,
        "block_size": 8,
        "architectures": ["DFlashDraftModel"],
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2, 4]},
    }
    return Qwen3Config(**(base | changes))


def stock(seed: int = 5, **changes) -> Stock:
    """The package's module in fp32 with weights that are bf16 values."""
    model = Stock(config_of(**changes)).eval().float()
    tiny_targets.randomize(model, seed)
    return model


def save(model: Stock, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    save_file(
        {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}, directory / "model.safetensors"
    )
    (directory / "config.json").write_text(model.config.to_json_string())
    return directory


def edit(directory: Path, **changes) -> None:
    """Changes keys of the saved config."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def parts_of(target, source: str = "the target") -> TargetParts:
    c = target.config
    return TargetParts(
        source, c.architecture, c.hidden_size, c.num_layers, c.vocab_size, target.embedding, target.head
    )


def drafter_of(directory: Path, parts: TargetParts, weights: str = "w12"):
    checkpoint = open_checkpoint(directory)
    return DRAFTERS[checkpoint.config["architectures"][0]](
        checkpoint.config, checkpoint, parts, weights=weights
    )
