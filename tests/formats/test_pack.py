"""`specpilot pack` and back: the same files byte for byte, the same tensors in the engine, whatever the checkpoint holds."""

from __future__ import annotations

import json
import os
import weakref
import zlib

import pytest
import tiny_engines
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_models import plain_directory, tiny_model
from w12_model import adversarial, gaussian, tensor_of

from specpilot.engine.load import load
from specpilot.formats import open_checkpoint, w12
from specpilot.formats.pack import pack_directory, unpack_directory
from specpilot.formats.safetensors_file import SafetensorsReader

CASES = adversarial()


def files_of(directory) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def round_trip(src, tmp_path):
    """Packs and unpacks; every file must come back. Returns the packed directory and the report."""
    before = files_of(src)
    report = pack_directory(src, tmp_path / "packed")
    unpack_directory(tmp_path / "packed", tmp_path / "back")
    assert files_of(tmp_path / "back") == before == files_of(src)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != src.name) == ["back", "packed"]
    return tmp_path / "packed", report


def raw_file(path, header: str | bytes, data: bytes) -> None:
    text = header.encode() if isinstance(header, str) else header
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("shard", ["5GB", "40KB"])
@pytest.mark.parametrize("tied", [False, True])
def test_what_transformers_saves(tmp_path, shard, tied, assert_bits_equal):
    src = tmp_path / "src"
    tiny_model(tie_word_embeddings=tied).save_pretrained(src, max_shard_size=shard)
    packed, report = round_trip(src, tmp_path)
    with open_checkpoint(src) as plain, open_checkpoint(packed) as stored:
        assert stored.names() == plain.names() and stored.nbytes == plain.nbytes
        assert {k: v for k, v in stored.config.items() if k != "quantization_config"} == plain.config
        assert stored.config["quantization_config"] == {"quant_method": "w12", "version": 1}
        assert stored.generation_config == plain.generation_config
        for name in plain.names():
            assert stored.shape(name) == plain.shape(name)
            assert_bits_equal(stored.tensor(name), plain.tensor(name), name)
    stored_as = {row.name: row.stored for row in report.tensors}
    assert (
        stored_as["model.layers.0.mlp.down_proj.weight"] == "w12" and stored_as["model.norm.weight"] == "BF16"
    )
    assert report.bytes_in == sum(p.stat().st_size for p in src.glob("*.safetensors"))
    assert report.bytes_out == sum(p.stat().st_size for p in packed.glob("*.safetensors"))


def test_the_engine_decodes_the_same_from_both(tmp_path):
    src, drafter = tiny_engines.save_target(tmp_path / "src"), tiny_engines.save_drafter(tmp_path / "drafts")
    pack_directory(src, tmp_path / "packed")
    pack_directory(drafter, tmp_path / "packed drafts")
    pairs = (src, drafter), (tmp_path / "packed", tmp_path / "packed drafts")
    plain, packed = (load(*pair).decode("hello", max_new_tokens=20, verify="chain") for pair in pairs)
    assert plain.tokens == packed.tokens and plain.text == packed.text and len(plain.tokens) == 20
    assert plain.stats.tau == packed.stats.tau


@pytest.mark.parametrize("name", CASES)
def test_adversarial_weights(tmp_path, name, assert_bits_equal):
    weight = tensor_of(CASES[name])
    src = plain_directory(tmp_path / "src", {"a.weight": weight, "norm": weight.reshape(-1)[:5].clone()})
    packed, report = round_trip(src, tmp_path)
    with open_checkpoint(packed) as checkpoint:
        assert_bits_equal(checkpoint.tensor("a.weight"), weight)
    row = next(row for row in report.tensors if row.name == "a.weight")
    assert row.nbytes <= weight.nbytes and (row.stored == "w12") == (row.nbytes < weight.nbytes)
    if row.stored == "w12":
        assert row.exceptions == w12.count_exceptions(weight) and row.nbytes == w12.pack(weight).nbytes


def test_every_dtype_and_shape(tmp_path):
    experts = torch.stack([gaussian(20, 33, e) for e in range(3)])
    tensors = {
        "experts": experts, "five.dims": experts.view(3, 1, 4, 5, 33).clone(), "scalar": torch.tensor(2.5).bfloat16(),
        "no.rows": torch.empty(0, 8, dtype=torch.bfloat16), "no.columns": torch.empty(3, 0, dtype=torch.bfloat16),
        "rotary_emb.inv_freq": torch.rand(7), "odd": gaussian(17, 31),
        "i64": torch.arange(5), "i32": torch.arange(5).int(), "i16": torch.arange(5).short(),
        "i8": torch.arange(5).char(), "u8": torch.arange(5).byte(), "bool": torch.tensor([True, False, True]),
        "f64": torch.rand(3).double(), "u16": torch.arange(3).to(torch.uint16),
        "u32": torch.arange(3).to(torch.uint32), "u64": torch.arange(3).to(torch.uint64),
        "e4m3": torch.rand(3).to(torch.float8_e4m3fn), "e5m2": torch.rand(3).to(torch.float8_e5m2),
        "e8m0": torch.ones(3).to(torch.float8_e8m0fnu),
    }  # fmt: skip
    packed, report = round_trip(plain_directory(tmp_path / "src", tensors), tmp_path)
    rows = {row.name: row for row in report.tensors}
    assert {name for name, row in rows.items() if row.stored == "w12"} == {"experts", "five.dims", "odd"}
    with safe_open(packed / "model.safetensors", "pt") as file:
        assert file.get_tensor("experts.w12_low").shape == (60, 33)
        assert torch.equal(file.get_tensor("f64"), tensors["f64"])
    weights = [row for row in report.tensors if row.is_weight]
    bits = 8 * sum(row.nbytes for row in weights) / sum(tensors[row.name].numel() for row in weights)
    assert report.bits_per_weight == bits


HEADERS = {
    "metadata of all kinds": '{"__metadata__":{"format":"pt","quote":"\\"\\\\","é":"\\u00e9\\n","":"😀"},%s}',
    "no metadata, spaces": '{ "__metadata__" : null ,\n\t%s } \n  ',
    "padded by 1001": "{%s}" + " " * 1001,
    "unpadded": "{%s}\t",
    "escaped name": '{"\\u0061\\/é":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},%s}',
}


@pytest.mark.parametrize("kind", HEADERS)
def test_odd_headers_come_back(tmp_path, kind, assert_bits_equal):
    """Tensors are named out of the order in which they lie."""
    first, second = gaussian(16, 20, 1), gaussian(16, 64, 2)
    entries = (
        '"z":{"dtype":"BF16","shape":[16,64],"data_offsets":[645,2693]},'
        '"empty":{"dtype":"BF16","shape":[0,4],"data_offsets":[645,645]},'
        '"b":{"dtype":"I8","shape":[5],"data_offsets":[640,645]},'
        '"y":{"data_offsets":[0,640],"shape":[16,20],"dtype":"BF16"}'
    )
    src = plain_directory(tmp_path / "src", {})
    blob = b"".join(t.view(torch.uint8).numpy().tobytes() for t in (first, torch.arange(5).char(), second))
    raw_file(src / "model.safetensors", HEADERS[kind] % entries, blob)
    packed, _ = round_trip(src, tmp_path)
    with open_checkpoint(packed) as checkpoint:
        assert_bits_equal(checkpoint.tensor("z"), second)
        assert_bits_equal(checkpoint.tensor("y"), first)


def test_everything_else_is_copied_and_links_are_followed(tmp_path):
    """As in the cache of the Hub: a snapshot of links into a folder of blobs."""
    blobs, src = tmp_path / "blobs", tmp_path / "src"
    tiny_model().save_pretrained(blobs)
    (blobs / "tokenizer.json").write_bytes(b"\x00\xff not looked at")
    src.mkdir()
    for path in blobs.iterdir():
        (src / path.name).symlink_to(os.path.relpath(path, src))
    (src / "extra").mkdir()
    (src / "extra" / "notes.txt").write_text("x")
    (src / ".git").mkdir()
    (src / ".git" / "config").write_text("y")
    pack_directory(src, tmp_path / "packed")
    unpack_directory(tmp_path / "packed", tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(blobs) | {"extra/notes.txt": b"x"}
    assert not any(p.is_symlink() for p in (tmp_path / "packed").rglob("*"))
    assert oct((tmp_path / "packed").stat().st_mode) == oct(src.stat().st_mode)


@pytest.mark.parametrize(
    "config", ['{"a": 1}', '\n {\n  "a" : [1,2]}', "{}", '{"quantization_config": null, "a": 1}']
)
def test_config_says_w12_and_comes_back(tmp_path, config):
    src = plain_directory(tmp_path / "src", {"a": gaussian(16, 16)})
    (src / "config.json").write_text(config)
    pack_directory(src, tmp_path / "packed")
    packed = tmp_path / "packed" / "config.json"
    wanted = {k: v for k, v in json.loads(config).items() if v is not None}
    assert json.loads(packed.read_text()) == wanted | {
        "quantization_config": {"quant_method": "w12", "version": 1}
    }
    unpack_directory(tmp_path / "packed", tmp_path / "back")
    back = (tmp_path / "back" / "config.json").read_text()
    assert back == config or "null" in config and json.loads(back) == wanted
    packed.write_text(json.dumps(json.loads(packed.read_text()), indent=4))  # as other tools rewrite it
    unpack_directory(tmp_path / "packed", tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_rounding_is_asked_for_and_said(tmp_path, dtype, assert_bits_equal):
    tensors = {
        "a": torch.randn(32, 33).to(dtype), "n": torch.randn(3).to(dtype), "b": gaussian(16, 32),
        "rotary_emb.inv_freq": torch.rand(4), "ids": torch.arange(3),
    }  # fmt: skip
    src = plain_directory(tmp_path / "src", tensors, {"torch_dtype": "float32", "x": 1})
    with pytest.warns(UserWarning, match="ROUNDS 2 of 4 tensors"):
        report = pack_directory(src, tmp_path / "packed", to_bf16=True)
    assert {row.name: row.stored for row in report.tensors}["a"] == "w12"
    unpack_directory(tmp_path / "packed", tmp_path / "back")
    with open_checkpoint(tmp_path / "packed") as packed, open_checkpoint(tmp_path / "back") as back:
        assert packed.config["torch_dtype"] == back.config["torch_dtype"] == "bfloat16"
        for name in ("a", "n", "b"):
            assert_bits_equal(packed.tensor(name), tensors[name].to(torch.bfloat16), name)
            assert_bits_equal(back.tensor(name), tensors[name].to(torch.bfloat16), name)
    with safe_open(tmp_path / "back" / "model.safetensors", "pt") as file:
        assert_bits_equal(file.get_tensor("rotary_emb.inv_freq"), tensors["rotary_emb.inv_freq"])
        assert_bits_equal(file.get_tensor("ids"), tensors["ids"])


def test_the_file_is_what_its_specification_says(tmp_path):
    weight = gaussian(40, 33)
    weight[3, 5] = 1e30
    src = plain_directory(tmp_path / "src", {"w": weight, "norm": torch.ones(4).bfloat16()})
    pack_directory(src, tmp_path / "packed")
    with safe_open(tmp_path / "packed" / "model.safetensors", "pt") as file:
        metadata, names = file.metadata(), set(file.keys())
        packed = w12.read_packed(file, "w")
    assert names == {"norm", *(f"w.w12_{field}" for field in w12.FIELDS)}
    original = (src / "model.safetensors").read_bytes()
    length = int.from_bytes(original[:8], "little")
    assert metadata.keys() == {"specpilot_w12", "w12_header", "w12_sha256", "w12_crc32"}
    assert metadata["w12_header"].encode() == original[8 : 8 + length] and metadata["specpilot_w12"] == "1"
    crc = f"{zlib.crc32(weight.view(torch.uint8).numpy().tobytes()):08x}"
    assert json.loads(metadata["w12_crc32"])["w"] == crc
    for mine, wanted in zip(packed.arrays, w12.pack(weight).arrays, strict=True):
        assert mine.dtype == wanted.dtype and torch.equal(mine.view(torch.uint8), wanted.view(torch.uint8))


def test_tensors_outside_the_index_come_back_too(tmp_path):
    src = tmp_path / "src"
    plain_directory(src, {})
    (src / "model.safetensors").unlink()
    save_file({"a": gaussian(16, 32), "unlisted": gaussian(16, 32, 1)}, src / "one.safetensors")
    save_file({"other": torch.ones(3)}, src / "consolidated.safetensors")
    index = {"weight_map": {"a": "one.safetensors"}}
    (src / "model.safetensors.index.json").write_text(json.dumps(index))
    packed, _ = round_trip(src, tmp_path)
    with open_checkpoint(packed) as checkpoint:
        assert checkpoint.names() == ["a"]


def test_memory_is_bounded_by_the_largest_tensor(tmp_path, monkeypatch):
    """No weight is read while another is held."""
    src = plain_directory(tmp_path / "src", {f"w{i}": gaussian(64, 64, i) for i in range(6)})
    alive, read = [], SafetensorsReader.get_tensor

    def counted(self, name):
        tensor = read(self, name)
        if "w12" not in name:
            assert not any(ref() is not None for ref in alive)
            alive.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(SafetensorsReader, "get_tensor", counted)
    pack_directory(src, tmp_path / "packed")
    assert len(alive) == 12


@pytest.mark.slow
def test_the_default_model_takes_12_bits_a_weight(tmp_path, smollm2, assert_bits_equal):
    with open_checkpoint(smollm2) as model:
        tensors = {name: model.tensor(name) for name in model.names()}
    src = plain_directory(tmp_path / "src", tensors)
    packed, report = round_trip(src, tmp_path)
    assert 12.00 <= report.bits_per_weight <= 12.01
    assert report.bytes_out <= 12.02 / 16 * report.bytes_in  # headers and all
    assert sum(row.exceptions for row in report.tensors) < 1e-4 * sum(t.numel() for t in tensors.values())
    with open_checkpoint(packed) as checkpoint:
        for name, value in tensors.items():
            assert_bits_equal(checkpoint.tensor(name), value, name)
