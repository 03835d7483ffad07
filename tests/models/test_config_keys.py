"""Every key of a config.json, at values of every type: read, known to be harmless, or refused by name."""

from __future__ import annotations

import inspect
import re

import pytest
from test_config import LLAMA, ROPES
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

from specpilot.formats import CheckpointError
from specpilot.models import ModelConfig, rope_tables
from specpilot.models.config_keys import HARMLESS, NEUTRAL, READ

ODD = [None, True, -1, 0, 1.5, 2**31, 10**400, float("inf"), "x", [], [1], ["x", []], {}, {"x": [1]}]


@pytest.mark.parametrize("key", sorted(READ | NEUTRAL.keys() | {"layer_types"}))
def test_values_of_any_type_are_read_or_refused_by_name(key):
    for value in ODD:
        try:
            config = ModelConfig.from_dict({**LLAMA, key: value})
            rope_tables(config, 2)
        except CheckpointError as e:
            named = (key, key.removeprefix("num_").replace("_", " "), "architecture ", "rope")
            assert "\n" not in str(e) and any(name in str(e) for name in named), (value, str(e))


ROPE_KEYS = sorted(set().union(*ROPES.values()) | {"rope_type", "type", "rope_theta", "attention_factor"})


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("key", ROPE_KEYS)
def test_rope_parameters_of_any_type_are_read_or_refused_by_name(name, key):
    for value in ODD:
        rope = {"rope_type": name.split("-")[0], "rope_theta": 1e4, **ROPES[name], key: value}
        try:
            rope_tables(ModelConfig.from_dict({**LLAMA, "rope_parameters": rope}), 2)
        except CheckpointError as e:
            assert "\n" not in str(e) and ("rope" in str(e) or key in str(e)), (value, str(e))


@pytest.mark.parametrize("key", NEUTRAL)
def test_arithmetic_is_accepted_only_where_it_is_switched_off(key):
    for value in (None, *NEUTRAL[key]):
        assert ModelConfig.from_dict({**LLAMA, key: value}) == ModelConfig.from_dict(LLAMA)
    for value in (0.123, "relu", [1], True):
        if value not in NEUTRAL[key]:
            with pytest.raises(CheckpointError, match=f"{key} = .* changes the model's arithmetic"):
                ModelConfig.from_dict({**LLAMA, key: value})


@pytest.mark.parametrize("key", sorted(HARMLESS))
def test_bookkeeping_is_ignored(key):
    assert ModelConfig.from_dict({**LLAMA, key: {"any": ["thing"]}}) == ModelConfig.from_dict(LLAMA)


def test_harmless_keys_are_none_that_transformers_reads_in_a_forward_pass():
    """The attributes of ``config`` that its modelling code names are all known as what they are."""
    for module in (modeling_llama, modeling_qwen3):
        used = set(re.findall(r"\bconfig\.([a-z_]+)", inspect.getsource(module)))
        assert used & HARMLESS <= {"use_cache", "attention_dropout", "pad_token_id", "_attn_implementation"}


def test_every_key_of_transformers_configs_is_known():
    for cls in (LlamaConfig, Qwen3Config):
        idle = {"layer_types", "sliding_window", "max_window_layers"}
        assert set(cls().to_dict()) <= READ | HARMLESS | NEUTRAL.keys() | idle
