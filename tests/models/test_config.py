"""ModelConfig reads what transformers writes, and refuses by name whatever would change the arithmetic."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_models import SHAPE
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from specpilot import rope
from specpilot.formats import CheckpointError
from specpilot.models import ModelConfig, rope_tables

LLAMA = {"architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, **SHAPE}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": LLAMA3,
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "yarn-mscale": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    "yarn-bare": {"factor": 2.0, "beta_fast": 16, "truncate": False},
}


def saved(config) -> dict:
    return json.loads(config.to_json_string())


@pytest.mark.parametrize("architecture", ["Llama", "Qwen3"])
def test_what_transformers_writes_is_read(architecture):
    cls = {"Llama": LlamaConfig, "Qwen3": Qwen3Config}[architecture]
    stock = cls(
        **SHAPE, architectures=[f"{architecture}ForCausalLM"], eos_token_id=[5, 6], tie_word_embeddings=True
    )
    for text in (stock.to_json_string(use_diff=True), stock.to_json_string(use_diff=False)):
        config = ModelConfig.from_dict(json.loads(text))
        assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (2, 4, 2, 16)
        assert (config.hidden_size, config.intermediate_size, config.vocab_size) == (64, 96, 96)
        assert (config.max_position_embeddings, config.rms_norm_eps) == (128, 1e-6)
        assert config.tie_word_embeddings and config.qk_norm == (architecture == "Qwen3")
        assert not config.attention_bias and not config.mlp_bias and config.eos_token_ids == (5, 6)


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("architecture", ["Llama", "Qwen3"])
@pytest.mark.parametrize("old", [False, True], ids=["rope_parameters", "rope_scaling"])
def test_rope_tables_have_transformers_bits(architecture, name, old, assert_bits_equal):
    kind, own = name.split("-")[0], dict(ROPES[name])
    cls, module = {
        "Llama": (LlamaConfig, LlamaRotaryEmbedding),
        "Qwen3": (Qwen3Config, Qwen3RotaryEmbedding),
    }[architecture]
    base = {"architectures": [f"{architecture}ForCausalLM"], "rms_norm_eps": 1e-6, **SHAPE, "head_dim": 128}
    if old:
        base |= {"rope_theta": 500000.0, "rope_scaling": {"type": kind, **own} if own else None}
    else:
        base["rope_parameters"] = {"rope_type": kind, "rope_theta": 500000.0, **own}
    stock = cls(**json.loads(json.dumps(base)))
    positions = 300
    cos, sin = module(stock)(torch.zeros(1, dtype=torch.bfloat16), torch.arange(positions)[None])
    ours = rope_tables(ModelConfig.from_dict(base), positions)
    assert_bits_equal(ours[0], cos[0, :, :64], "cos")
    assert_bits_equal(ours[1], sin[0, :, :64], "sin")
    alone = [module(stock)(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[p]])) for p in (1, 17, 255)]
    for p, (cos, sin) in zip((1, 17, 255), alone, strict=True):
        assert_bits_equal(ours[0][p], cos[0, 0, :64], f"cos at {p}")
        assert_bits_equal(ours[1][p], sin[0, 0, :64], f"sin at {p}")


@pytest.mark.parametrize(
    "key, value",
    {
        "hidden_act": "gelu",
        "pretraining_tp": 2,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "partial_rotary_factor": 0.5,
        "logits_soft_cap": 30.0,
        "mlp_act": "relu2",
        "mlp_layer_types": ["dense", "sparse"],
        "logit_scale": 0.0625,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.015,
        "logits_scaling": 8.0,
        "num_experts": 8,
        "num_local_experts": 8,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_interleaved": True,
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0},
        "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
        "a_new_idea": 3,
        "attention_bias": 1,
        "hidden_size": 0,
        "num_attention_heads": True,
        "rms_norm_eps": float("nan"),
        "eos_token_id": "</s>",
        "num_key_value_heads": 3,
        "head_dim": 15,
    }.items(),
)
def test_what_changes_the_arithmetic_is_refused_by_name(key, value):
    with pytest.raises(CheckpointError) as caught:
        ModelConfig.from_dict({**LLAMA, key: value})
    message = str(caught.value)
    assert any(name in message for name in (key, "key/value heads", "rope_type", "rms_norm_eps")), message


@pytest.mark.parametrize(
    "key", ["hidden_size", "vocab_size", "num_hidden_layers", "rms_norm_eps", "max_position_embeddings"]
)
def test_sizes_are_not_guessed(key):
    with pytest.raises(CheckpointError, match=key):
        ModelConfig.from_dict({k: v for k, v in LLAMA.items() if k != key})


def test_an_unknown_key_can_be_allowed():
    with pytest.raises(CheckpointError, match=r"unknown key trained_on = 'books'.*allow=\['trained_on'\]"):
        ModelConfig.from_dict({**LLAMA, "trained_on": "books"})
    allowed = ModelConfig.from_dict({**LLAMA, "trained_on": "books"}, allow=["trained_on"])
    assert allowed == ModelConfig.from_dict(LLAMA)


@pytest.mark.parametrize("value", [None, [], ["GPT2LMHeadModel"], ["LlamaForCausalLM", "Qwen3ForCausalLM"]])
def test_architectures_are_refused_by_name(value):
    with pytest.raises(CheckpointError, match="known: LlamaForCausalLM, Qwen3ForCausalLM"):
        ModelConfig.from_dict({**LLAMA, "architectures": value})


def test_a_window_that_is_switched_off_is_no_window():
    qwen3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "sliding_window": 4096, "max_window_layers": 1}
    assert ModelConfig.from_dict({**qwen3, "use_sliding_window": False}).qk_norm
    with pytest.raises(CheckpointError, match="sliding_window"):
        ModelConfig.from_dict({**qwen3, "use_sliding_window": True})


# The keys that published config.json files hold.
PUBLISHED = {
    "SmolLM2-135M-Instruct": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 576,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "pad_token_id": 2,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
        "transformers_version": "4.42.3",
        "use_cache": True,
        "vocab_size": 49152,
    },
    "Llama-3.1-8B-Instruct": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.42.3",
        "use_cache": True,
        "vocab_size": 128256,
    },
    "Qwen3-8B": {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "max_window_layers": 36,
        "model_type": "qwen3",
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_accepted(name):
    config = ModelConfig.from_dict(PUBLISHED[name])
    assert config.head_dim in (64, 128) and config.dtype == "bfloat16"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_frequencies_are_transformers(name, assert_bits_equal):
    given = PUBLISHED[name]
    cls, module = (
        (Qwen3Config, Qwen3RotaryEmbedding) if "Qwen3" in name else (LlamaConfig, LlamaRotaryEmbedding)
    )
    config, stock = ModelConfig.from_dict(given), module(cls(**json.loads(json.dumps(given))))
    ours, scaling = rope._frequencies(config.rope_parameters, config.head_dim, config.max_position_embeddings)
    assert_bits_equal(ours, stock.inv_freq)
    assert scaling == stock.attention_scaling
