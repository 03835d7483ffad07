"""GGUF: names, shapes, permutation, dequantisation and metadata against models whose weights are known."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Q
from gguf_parts import Parts
from tiny_models import gguf_file, tiny_model
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specpilot.formats import CheckpointError, open_checkpoint
from specpilot.formats import gguf_file as reader
from specpilot.models import ModelConfig, rope_tables


def stock_config(model) -> ModelConfig:
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    return ModelConfig.from_dict({**config, "eos_token_id": None, "dtype": "bfloat16"})


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", [Q.F32, Q.BF16])
@pytest.mark.parametrize("bias", [False, True])
def test_an_unquantised_file_gives_the_model_back(
    tmp_path, architecture, tied, kind, bias, assert_bits_equal
):
    options = {"attention_bias": bias, **({"mlp_bias": bias} if architecture == "llama" else {})}
    model = tiny_model(architecture, tie_word_embeddings=tied, rms_norm_eps=1e-5, **options)
    expected = model.state_dict()
    if tied:
        del expected["lm_head.weight"]
    with open_checkpoint(gguf_file(tmp_path / "m.gguf", model, {"proj.weight": kind})) as checkpoint:
        assert set(checkpoint.names()) == set(expected)
        for name, tensor in expected.items():
            assert checkpoint.shape(name) == tuple(tensor.shape), name
            assert_bits_equal(checkpoint.tensor(name), tensor, name)
        assert checkpoint.nbytes == 2 * sum(p.numel() for p in model.parameters())
    assert ModelConfig.from_dict(checkpoint.config) == stock_config(model)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1])
def test_the_model_is_transformers_reading_of_the_file(tmp_path, architecture, kind, assert_bits_equal):
    path = gguf_file(
        tmp_path / "m.gguf",
        tiny_model(architecture, tie_word_embeddings=False),
        {"proj.weight": kind, "embed_tokens.weight": kind, "lm_head.weight": kind},
    )
    with torch.device("meta"):
        empty = tiny_model(architecture, tie_word_embeddings=False)
    stock = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=empty)["tensors"]
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.names()) == set(stock)
        for name, value in stock.items():
            assert_bits_equal(checkpoint.tensor(name), value.to(torch.bfloat16), name)


READ = [kind for kind in gguf.quants._type_traits if kind != Q.BF16]


@pytest.mark.parametrize("chunk", [1, 1 << 22])
@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
def test_any_block_is_what_the_gguf_package_makes_of_it(
    tmp_path, monkeypatch, kind, chunk, assert_bits_equal
):
    """Random bytes, infinite and NaN scales among them, read in one piece or row by row."""
    monkeypatch.setattr(reader, "_CHUNK", chunk)
    path = gguf_file(tmp_path / "m.gguf", tiny_model(hidden_size=256, num_hidden_layers=1))
    parts = Parts.of(path)
    dims, _, begin = parts.info("output.weight")  # the last one
    parts.tensor("output.weight", dims, kind, begin)
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(0).integers(0, 256, (96, 256 // block * nbytes), np.uint8)
    parts.data = parts.data[:begin] + data.tobytes() + bytes(-data.size % 32)
    path.write_bytes(parts.join())
    with np.errstate(all="ignore"):
        expected = torch.from_numpy(gguf.dequantize(data, kind)).bfloat16()
    got = open_checkpoint(path).tensor("lm_head.weight")
    assert_bits_equal(got.nan_to_num(7), expected.nan_to_num(7))
    assert torch.equal(got.isnan(), expected.isnan())


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SCALINGS = {
    "linear": ({"factor": 2.0}, {"type": "linear", "factor": 2.0}),
    "yarn": (
        {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0, "beta_slow": 2.0},
        {
            "type": "yarn",
            "factor": 4.0,
            "original_context_length": 32,
            "yarn_beta_fast": 16.0,
            "yarn_beta_slow": 2.0,
        },
    ),
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_rope_scaling(tmp_path, kind):
    given, stored = SCALINGS[kind]
    model = tiny_model(rope_parameters={"rope_type": kind, "rope_theta": 5e5, **given})
    path = gguf_file(tmp_path / "m.gguf", model, **{f"rope.scaling.{key}": v for key, v in stored.items()})
    assert ModelConfig.from_dict(open_checkpoint(path).config) == stock_config(model)


def with_rope_factors(path, factors: torch.Tensor):
    """A file as llama.cpp's converter makes it of a model with llama3 scaling."""
    parts = Parts.of(path)
    parts.tensors.append(("rope_freqs.weight", b""))
    parts.tensor("rope_freqs.weight", (len(factors),), Q.F32, len(parts.data))
    parts.data += factors.numpy().tobytes() + bytes(-4 * len(factors) % 32)
    path.write_bytes(parts.join())
    return path


def test_llama3_scaling_from_its_divisors(tmp_path, assert_bits_equal):
    model = tiny_model(head_dim=128, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3})
    plain = 1.0 / 5e5 ** (torch.arange(0, 128, 2) / 128)
    factors = plain / LlamaRotaryEmbedding(model.config).inv_freq
    assert factors[0] == 1 and factors[-1] == 8 and ((factors > 1.1) & (factors < 7.9)).any()
    path = with_rope_factors(gguf_file(tmp_path / "m.gguf", model), factors)
    config = ModelConfig.from_dict(open_checkpoint(path).config)
    assert config == stock_config(model)
    for got, want in zip(rope_tables(config, 64), rope_tables(stock_config(model), 64), strict=True):
        assert_bits_equal(got, want)


@pytest.mark.parametrize(
    "factors", [torch.full((64,), 2.0), torch.ones(63), torch.full((64,), torch.nan), torch.zeros(64)]
)
def test_other_divisors_are_refused(tmp_path, factors):
    path = with_rope_factors(gguf_file(tmp_path / "m.gguf", tiny_model(head_dim=128)), factors)
    with pytest.raises(CheckpointError, match=r"m.gguf: tensor rope_freqs.weight is not llama3 scaling"):
        open_checkpoint(path)
