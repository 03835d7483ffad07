"""Configs of drafters as a hostile or careless hand writes them: one ValueError that names the key, nothing else."""

import copy
import json

import pytest

from specpilot import zoo
from specpilot.drafters.dflash_config import DFlashConfig

SHIPPED = json.loads((zoo.SHIPPED["smollm2-135m-dflash"] / "config.json").read_text())
ODD = [0, -1, 2.5, 2**70, 1e39, float("nan"), "8", "", [], [[]], ["x"], {}, {"a": 1}, True, False]
# What decides a shape or a rounding: none of the odd values fits, but for those listed.
FITS = {
    "hidden_size": [], "intermediate_size": [], "num_attention_heads": [], "num_key_value_heads": [], "head_dim": [],
    "num_hidden_layers": [], "num_target_layers": [], "vocab_size": [], "max_position_embeddings": [],
    "block_size": [], "rms_norm_eps": [2.5, 2**70], "mask_token_id": [0], "target_layer_ids": [[]], "layer_types": [],
    "hidden_act": [], "attention_bias": [True, False], "is_causal": [True, False], "output_multiplier": [2.5, 2**70],
    "input_embedding_scale": [True], "dflash_config": [],
}  # fmt: skip


def with_value(key, value):
    """The shipped config with the key set wherever it is looked for."""
    config = copy.deepcopy(SHIPPED)
    config[key] = value
    if key in SHIPPED["dflash_config"]:
        config["dflash_config"][key] = value
    return config


def test_the_shipped_config_is_understood():
    config = DFlashConfig.from_dict(SHIPPED, "shipped")
    assert (config.block_size, config.layers, config.shape.hidden) == (16, 4, 576)


@pytest.mark.parametrize("key", FITS)
def test_odd_values_are_refused_by_name(key):
    for value in ODD:
        if any(value is fit or (type(value) is type(fit) and value == fit) for fit in FITS[key]):
            DFlashConfig.from_dict(with_value(key, value), "d")
            continue
        if key == "dflash_config" and not value:
            continue  # an empty one is none: its keys may stand beside it
        with pytest.raises(ValueError, match=f"drafter d: .*{'' if key == 'dflash_config' else key}"):
            DFlashConfig.from_dict(with_value(key, value), "d")


@pytest.mark.parametrize(
    "key", sorted({*SHIPPED, *SHIPPED["dflash_config"], "rope_scaling", "rope_parameters"})
)
def test_no_value_of_any_key_is_another_error(key):
    for value in [*ODD, None]:
        try:
            DFlashConfig.from_dict(with_value(key, value), "d")
        except ValueError as e:
            assert str(e)
