"""GGUF: names, shapes, permutation, dequantisation and metadata against models whose weights are known."""

from __future__ import annotations

import pytest
from gguf import GGMLQuantizationType as Q
from tiny_models import gguf_file, tiny_model

from specpilot.formats import open_checkpoint
from specpilot.models import ModelConfig


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", [Q.F32, Q.BF16])
def test_an_unquantised_file_gives_the_model_back(tmp_path, architecture, tied, kind, assert_bits_equal):
    model = tiny_model(architecture, tie_word_embeddings=tied, rms_norm_eps=1e-5)
    expected = model.state_dict()
    if tied:
        del expected["lm_head.weight"]
    with open_checkpoint(gguf_file(tmp_path / "m.gguf", model, {"proj.weight": kind})) as checkpoint:
        assert set(checkpoint.names()) == set(expected)
        for name, tensor in expected.items():
            assert checkpoint.shape(name) == tuple(tensor.shape), name
            assert_bits_equal(checkpoint.tensor(name), tensor, name)
        assert checkpoint.nbytes == 2 * sum(p.numel() for p in model.parameters())
    stock = {**model.config.to_dict(), "architectures": [type(model).__name__], "eos_token_id": None}
    assert ModelConfig.from_dict(checkpoint.config) == ModelConfig.from_dict({**stock, "dtype": "bfloat16"})
