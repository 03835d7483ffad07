"""Tiny random models on disk, written by transformers, safetensors and gguf's own writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
}
_CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}


def tiny_model(architecture: str = "llama", **options: Any) -> Any:
    """A random bf16 model; biases and norms are random too."""
    torch.manual_seed(0)
    config, model = _CLASSES[architecture]
    made = model(config(**{**SHAPE, **options}))
    for name, parameter in made.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 0.0 if name.endswith("bias") else 1.0, 0.1)
    return made.bfloat16()


def plain_directory(path: Path, tensors: dict[str, torch.Tensor], config: dict | None = None) -> Path:
    """A directory with one safetensors file, whatever its tensors are."""
    path.mkdir(exist_ok=True)
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config or {}))
    return path


_GGUF_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_GGUF_PART = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    if name in _GGUF_WHOLE:
        return _GGUF_WHOLE[name]
    _, _, layer, *part, kind = name.split(".")
    return f"blk.{layer}.{_GGUF_PART['.'.join(part)]}.{kind}"


def permuted(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """q or k rows as llama.cpp's converter lays them out: rows i of both rotary halves are neighbours."""
    size = rows.shape[0] // heads
    return rows[
        [h * size + half * size // 2 + i for h in range(heads) for i in range(size // 2) for half in (0, 1)]
    ]


def gguf_file(
    path: Path, model: Any, types: dict[str, gguf.GGMLQuantizationType] | None = None, **metadata: Any
) -> Path:
    """Writes a model as llama.cpp's converter does.

    ``types`` maps ends of Hugging Face names to tensor types, F32 otherwise. ``metadata`` adds or replaces
    entries, or leaves them out (None), under the architecture's prefix where they have none of their own.
    """
    c, arch = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, arch)
    entries = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim,
        "attention.layer_norm_rms_epsilon": c.rms_norm_eps,
        "rope.freq_base": c.rope_parameters["rope_theta"],
        "vocab_size": c.vocab_size,
        **metadata,
    }
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
    for key, value in entries.items():
        full = key if key.startswith(("tokenizer.", "general.", "split.")) else f"{arch}.{key}"
        if value is not None:
            add[type(value)](full, value)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(name.split(".")[-2])
        if arch == "llama" and heads:
            tensor = permuted(tensor, heads)
        kinds = [kind for end, kind in (types or {}).items() if name.endswith(end)]
        kind = kinds[0] if kinds else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(tensor.float().numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
