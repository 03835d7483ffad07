"""Damaged w12 directories: each fault is refused by file, tensor and remedy; none gives other values."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import torch
from tiny_models import plain_directory
from w12_model import bits_of, gaussian

from specpilot.formats import CheckpointError, open_checkpoint
from specpilot.formats.pack import pack_directory, unpack_directory

REMEDY = "pack the original again, or get a fresh copy of the file"


def weights() -> dict[str, torch.Tensor]:
    outlying = gaussian(20, 33)
    outlying.view(-1)[[3, 50, 139]] = 1e30
    return {"a.weight": outlying, "b.weight": gaussian(16, 32, 1), "norm": torch.ones(5).bfloat16()}


@pytest.fixture
def packed(tmp_path):
    pack_directory(plain_directory(tmp_path / "src", weights(), {"a": 1}), tmp_path / "packed")
    return tmp_path / "packed"


class File:
    """The parts of a safetensors file, to be changed and written again."""

    def __init__(self, path):
        self.path, whole = path, path.read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        self.entries = json.loads(whole[8 : 8 + length])
        self.metadata = self.entries.pop("__metadata__")
        data = whole[8 + length :]
        self.data = {k: bytearray(data[slice(*v["data_offsets"])]) for k, v in self.entries.items()}

    def array(self, name: str) -> np.ndarray:
        kinds = {"U8": "u1", "U16": "<u2", "U32": "<u4", "BF16": "<u2"}
        return np.frombuffer(self.data[name], kinds[self.entries[name]["dtype"]])

    def drop(self, name: str) -> None:
        del self.entries[name], self.data[name]

    def add(self, name: str, dtype: str, shape: list[int], data: bytes) -> None:
        self.entries[name], self.data[name] = {"dtype": dtype, "shape": shape}, bytearray(data)

    def save(self) -> None:
        end = 0
        for name, entry in self.entries.items():
            entry["data_offsets"] = [end, end := end + len(self.data[name])]
        text = json.dumps({"__metadata__": self.metadata, **self.entries}).encode()
        self.path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(self.data.values()))


def edited(directory, change) -> None:
    file = File(directory / "model.safetensors")
    change(file)
    file.save()


def refused(directory, *words: str, remedy: str = REMEDY) -> None:
    """Opening the directory or reading it fails in one line; so does unpacking, and leaves nothing."""
    with pytest.raises(CheckpointError) as caught:
        checkpoint = open_checkpoint(directory)
        for name in checkpoint.names():
            checkpoint.tensor(name)
    message = str(caught.value)
    assert all(word in message for word in (*words, remedy)) and "\n" not in message, message
    with pytest.raises(CheckpointError):
        unpack_directory(directory, directory.parent / "back")
    assert {p.name for p in directory.parent.iterdir()} == {"src", "packed"}


def put(name, index, value):
    def change(file):
        file.array(name)[index] = value

    return change


def reshape(name, shape):
    return lambda file: file.entries[name].update(shape=shape)


def shorter(name, count, shape):
    def change(file):
        del file.data[name][-count:]
        file.entries[name]["shape"] = shape

    return change


FAULTS = {
    "a bit of a mantissa": (put("b.weight.w12_low", 77, 1), "b.weight: its values do not have the checksum"),
    "a sign": (put("b.weight.w12_high", 7, 255), "b.weight"),
    "another base": (put("a.weight.w12_base", 1, 0), "a.weight: its values do not have the checksum"),
    "a base of no packer": (put("a.weight.w12_base", 1, 200), "a.weight: ", "base of band 1 is 200"),
    "another exception": (put("a.weight.w12_exc_val", 0, 3), "a.weight: its values do not have the checksum"),
    "exceptions out of order": (put("a.weight.w12_exc_pos", 0, 139), "a.weight", "do not ascend"),
    "an exception outside": (put("a.weight.w12_exc_pos", 2, 2**32 - 1), "a.weight", "position 4294967295"),
    "a plain tensor": (put("norm", 2, 0), "norm: its values do not have the checksum"),
    "code 0 with a mantissa": (put("b.weight.w12_high", slice(None), 0), "b.weight", "code 0"),
    "no bases": (lambda f: f.drop("a.weight.w12_base"), "a.weight: array w12_base is missing"),
    "no exceptions": (lambda f: f.drop("a.weight.w12_exc_pos"), "a.weight: array w12_exc_pos is missing"),
    "no weight": (
        lambda f: [f.drop(f"b.weight.w12_{x}") for x in ("low", "high", "base", "exc_pos", "exc_val")],
        "b.weight: array w12_low is missing",
    ),
    "no norm": (lambda f: f.drop("norm"), "norm is missing"),
    "turned": (
        reshape("a.weight.w12_low", [33, 20]),
        "a.weight: array w12_low is U8 [33, 20], expected U8 [20, 33]",
    ),
    "flat": (reshape("a.weight.w12_exc_pos", [3, 1]), "a.weight: array w12_exc_pos is U32 [3, 1]"),
    "norm turned": (reshape("norm", [5, 1]), "norm: BF16 [5, 1], expected BF16 [5]"),
    "fewer rows": (shorter("a.weight.w12_high", 17, [19, 17]), "a.weight: array w12_high is U8 [19, 17]"),
    "fewer values": (shorter("a.weight.w12_exc_val", 2, [2]), "a.weight: array w12_exc_val is U16 [2]"),
    "other type": (
        lambda f: f.entries["a.weight.w12_exc_val"].update(dtype="I16"),
        "a.weight: array w12_exc_val is I16 [3], expected U16 [3]",
    ),
    "one too many": (lambda f: f.add("c.w12_low", "U8", [1], b"x"), "c.w12_low belongs to no tensor"),
    "no header": (lambda f: f.metadata.pop("w12_header"), "no w12_header"),
    "no hash": (lambda f: f.metadata.pop("w12_sha256"), "no w12_sha256"),
    "no checksums": (lambda f: f.metadata.pop("w12_crc32"), "no w12_crc32"),
    "not w12": (lambda f: f.metadata.pop("specpilot_w12"), "holds no specpilot_w12"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused(packed, fault):
    change, *words = FAULTS[fault]
    edited(packed, lambda file: None)  # the editing itself breaks nothing
    with open_checkpoint(packed) as checkpoint:
        assert checkpoint.names() == ["a.weight", "b.weight", "norm"]
    edited(packed, change)
    refused(packed, "packed/model.safetensors", *words)


def test_files_cut_short_are_refused(packed):
    path = packed / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(packed, "packed/model.safetensors")
    path.write_bytes(whole)
    with open_checkpoint(packed) as checkpoint:
        path.write_bytes(whole[: -len(whole) // 3])  # under an open checkpoint
        with pytest.raises(CheckpointError, match=r"model.safetensors: cut short in tensor .*w12_\w+"):
            for name in checkpoint.names():
                checkpoint.tensor(name)


def test_no_flipped_bit_gives_other_values(packed, tmp_path):
    """Wherever it is in the file: an error, or the very same tensors."""
    path, wanted = packed / "model.safetensors", weights()
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    outcomes = {"refused": 0, "the same": 0}
    for _ in range(400):
        at = int(rng.integers(len(whole)))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(8))]) + whole[at + 1 :])
        try:
            with open_checkpoint(packed) as checkpoint:
                assert set(checkpoint.names()) == set(wanted)
                for name, value in wanted.items():
                    assert np.array_equal(bits_of(checkpoint.tensor(name)), bits_of(value)), at
            outcomes["the same"] += 1
        except CheckpointError as e:
            assert "model.safetensors" in str(e)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0, outcomes  # padding and the stored SHA-256 carry no values


def test_unpacking_checks_the_hash_of_the_original(packed):
    edited(packed, lambda file: file.metadata.update(w12_sha256="0" * 64))
    with pytest.raises(CheckpointError, match=r"model.safetensors: .*SHA-256 of the original.*fresh copy"):
        unpack_directory(packed, packed.parent / "back")
    assert {p.name for p in packed.parent.iterdir()} == {"src", "packed"}


def test_newer_versions_are_refused_by_name(packed):
    edited(packed, lambda file: file.metadata.update(specpilot_w12="2"))
    refused(packed, "w12 version 2; this release reads version 1", remedy="upgrade specpilot")
    config = packed / "config.json"
    config.write_text(config.read_text().replace('"version": 1', '"version": 3'))
    refused(packed, "packed/config.json: w12 version 3", remedy="upgrade specpilot")


def test_config_and_files_must_agree(packed):
    config = json.loads((packed / "config.json").read_text())
    del config["quantization_config"]
    (packed / "config.json").write_text(json.dumps(config))
    refused(packed, "is a w12 file, but config.json", remedy="take the one packed with it")


def test_a_closed_checkpoint_opens_again(packed, assert_bits_equal):
    checkpoint = open_checkpoint(packed)
    checkpoint.close()
    assert_bits_equal(checkpoint.tensor("a.weight"), weights()["a.weight"])
    with pytest.raises(CheckpointError, match="tensor c is missing"):
        checkpoint.tensor("c")
