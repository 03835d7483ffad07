"""The reader of examples/, which shares no code with the package, against what was packed."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import plain_directory
from w12_model import adversarial, bits_of, gaussian, tensor_of

from specpilot import zoo
from specpilot.formats import open_checkpoint
from specpilot.formats.pack import pack_directory

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_w12.py"


@pytest.fixture(scope="module")
def read():
    return runpy.run_path(str(EXAMPLE))["read"]


def test_it_reads_what_was_packed(tmp_path, read):
    tensors = {name: tensor_of(bits.copy()) for name, bits in adversarial().items()}
    tensors["experts"] = torch.stack([gaussian(20, 33, e, 10.0 ** -(9 * e)) for e in range(3)])
    tensors["norm"], tensors["flag"] = torch.rand(5).bfloat16(), torch.tensor([True, False])
    pack_directory(plain_directory(tmp_path / "src", tensors), tmp_path / "packed")
    found = dict(read(tmp_path / "packed" / "model.safetensors"))
    assert found.keys() == tensors.keys()
    assert bytes(found.pop("flag")) == b"\x01\x00"
    for name, value in found.items():
        np.testing.assert_array_equal(value, bits_of(tensors[name]), err_msg=name)


def test_it_reads_the_shipped_drafter(read):
    directory = zoo.SHIPPED["smollm2-135m-dflash"]
    count = 0
    with open_checkpoint(directory) as checkpoint:
        for name, value in read(directory / "model.safetensors"):
            np.testing.assert_array_equal(value, bits_of(checkpoint.tensor(name)), err_msg=name)
            count += 1
        assert count == len(checkpoint.names()) > 40


def test_it_sees_damage_and_other_files(tmp_path, read):
    src = plain_directory(tmp_path / "src", {"w": gaussian(16, 32)})
    with pytest.raises(SystemExit, match="not a w12 file"):
        list(read(src / "model.safetensors"))
    pack_directory(src, tmp_path / "packed")
    path = tmp_path / "packed" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    with pytest.raises(SystemExit, match="tensor w is damaged"):
        list(read(path))


def test_it_prints_a_line_a_tensor(tmp_path, monkeypatch, capsys):
    tensors = {"w": torch.full((16, 32), 0.5).bfloat16(), "v": torch.full((32, 16), 2.0).bfloat16()}
    pack_directory(plain_directory(tmp_path / "src", tensors), tmp_path / "packed")
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "packed" / "model.safetensors"), "w"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == "w [16, 32] [0.5 0.5 0.5 0.5]\n"
