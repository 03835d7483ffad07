"""Tiny random models that transformers saves, opened by our own loader."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from specpilot.formats import open_checkpoint
from specpilot.models import MODELS, ModelConfig

VOCAB = 160


def config_of(kind: str, **changes) -> LlamaConfig | Qwen3Config:
    base = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return {"llama": LlamaConfig, "qwen3": Qwen3Config}[kind](**(base | changes))


def randomize(model: torch.nn.Module, seed: int = 0) -> None:
    """Weights of a size that makes logits differ, norms near one, biases that matter; all of them bf16 values."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 2:
            value = noise * (1.0 if "embed" in name else 1.5 * p.shape[1] ** -0.5)
        else:
            value = 0.3 * noise + (0 if name.endswith("bias") else 1)
        p.data = value.to(torch.bfloat16).to(p.dtype)


def stock(kind: str, seed: int = 0, **changes) -> PreTrainedModel:
    """A transformers model in fp32 whose weights are bf16 values."""
    model = (
        AutoModelForCausalLM.from_config(config_of(kind, **changes), attn_implementation="sdpa")
        .eval()
        .float()
    )
    randomize(model, seed)
    return model


def save(model: PreTrainedModel, directory: Path) -> Path:
    """As a bf16 checkpoint."""
    copy = type(model)(model.config).to(torch.bfloat16)
    copy.load_state_dict({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
    copy.save_pretrained(directory)
    return directory


def target_of(directory: Path, weights: str = "w12"):
    checkpoint = open_checkpoint(directory)
    config = ModelConfig.from_dict(checkpoint.config)
    return MODELS[checkpoint.config["architectures"][0]](config, checkpoint, weights=weights)
