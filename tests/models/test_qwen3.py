"""Qwen3 against transformers; the machinery is that of test_llama.py."""

from __future__ import annotations

import pytest
from test_llama import check

CASES = {
    "gqa": {},
    "mha-tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "heads-80": {"hidden_size": 96, "num_attention_heads": 6, "head_dim": 80},
    "biases": {"attention_bias": True},
}


@pytest.mark.parametrize("weights", ["w12", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(tmp_path, case, weights):
    check(tmp_path, "qwen3", CASES[case], weights)
