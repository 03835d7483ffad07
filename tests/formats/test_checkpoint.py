"""safetensors directories: what transformers saves comes back bit for bit, the rest is refused by name."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_models import plain_directory, tiny_model

from specpilot.formats import CheckpointError, open_checkpoint


def refused(source, *words: str, **options) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(source, **options)
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


@pytest.mark.parametrize("shard", ["5GB", "40KB"])
def test_what_transformers_saves_comes_back(tmp_path, shard, assert_bits_equal):
    model = tiny_model(tie_word_embeddings=shard == "40KB")
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "40KB")
    expected = dict(model.named_parameters())
    with open_checkpoint(tmp_path) as checkpoint:
        assert set(checkpoint.names()) == set(expected)
        read = {name: checkpoint.tensor(name) for name in checkpoint.names()}
        assert checkpoint.nbytes == 2 * sum(p.numel() for p in expected.values())
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    for name, tensor in expected.items():
        assert_bits_equal(read[name], tensor.detach(), name)
    assert checkpoint.config["architectures"] == ["LlamaForCausalLM"] and checkpoint.tokenizer() is None


def test_tensors_own_their_memory(tmp_path):
    directory = plain_directory(tmp_path / "m", {"a": torch.zeros(4, dtype=torch.bfloat16)})
    with open_checkpoint(directory) as checkpoint:
        checkpoint.tensor("a").fill_(1)
        assert not checkpoint.tensor("a").any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_floats_are_refused_or_rounded_loudly(tmp_path, dtype, assert_bits_equal):
    value = torch.randn(8, 8).to(dtype)
    tensors = {"a": torch.zeros(1, dtype=torch.bfloat16), "odd.weight": value}
    directory = plain_directory(tmp_path / "m", tensors)
    refused(directory, "odd.weight", "--to-bf16")
    with pytest.warns(UserWarning, match="ROUNDS 1 of 2 tensors") as caught:
        checkpoint = open_checkpoint(directory, to_bf16=True)
        assert_bits_equal(checkpoint.tensor("odd.weight"), value.to(torch.bfloat16))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_old_rotary_frequencies_are_not_read(tmp_path):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    tensors = {name: torch.ones(4), "a": torch.zeros(1, dtype=torch.bfloat16)}
    assert open_checkpoint(plain_directory(tmp_path / "m", tensors)).names() == ["a"]


def test_integers_are_not_weights(tmp_path):
    checkpoint = open_checkpoint(plain_directory(tmp_path / "m", {"ids": torch.arange(4)}))
    with pytest.raises(CheckpointError, match="tensor ids is I64, expected BF16"):
        checkpoint.tensor("ids")


def test_missing_things_are_named(tmp_path):
    refused(tmp_path, "config.json")
    (tmp_path / "config.json").write_text("{}")
    refused(tmp_path, "model.safetensors")
    directory = plain_directory(tmp_path / "m", {"a": torch.zeros(1, dtype=torch.bfloat16)})
    for ask in (open_checkpoint(directory).tensor, open_checkpoint(directory).shape):
        with pytest.raises(CheckpointError, match="tensor b is missing"):
            ask("b")
    refused(directory / "model.safetensors", "pass its directory")


def test_shards_are_checked_against_the_index(tmp_path):
    tiny_model().save_pretrained(tmp_path, max_shard_size="40KB")
    index = tmp_path / "model.safetensors.index.json"
    good = json.loads(index.read_text())
    name, shard = next(iter(good["weight_map"].items()))

    def write(**weight_map: object) -> None:
        index.write_text(json.dumps({"weight_map": {**good["weight_map"], **weight_map}}))

    write(extra=shard)
    refused(tmp_path, shard, "tensor extra is missing")
    write(extra="../" + shard)
    refused(tmp_path, "extra", "plain name")
    write(extra="gone.safetensors")
    refused(tmp_path, "gone.safetensors is missing")
    index.write_text("{}")
    refused(tmp_path, "weight_map")
    (tmp_path / shard).unlink()
    write()
    refused(tmp_path, f"{shard} is missing", name)


@pytest.mark.parametrize("method", ["gptq", "awq", None])
def test_other_quantisations_are_refused_by_name(tmp_path, method):
    tensors = {"a": torch.zeros(1, dtype=torch.bfloat16)}
    refused(
        plain_directory(tmp_path / "m", tensors, {"quantization_config": {"quant_method": method}}),
        repr(method),
    )


def test_eos_ids_are_the_union(tmp_path):
    directory = plain_directory(
        tmp_path / "m", {"a": torch.zeros(1, dtype=torch.bfloat16)}, {"eos_token_id": 7}
    )
    assert open_checkpoint(directory).eos_token_ids() == [7]
    (directory / "generation_config.json").write_text('{"eos_token_id": [9, 7, 8]}')
    assert open_checkpoint(directory).eos_token_ids() == [9, 7, 8]
    (directory / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(CheckpointError, match="eos_token_id of generation_config is '</s>'"):
        open_checkpoint(directory).eos_token_ids()
