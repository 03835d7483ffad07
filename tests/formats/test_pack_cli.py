"""`specpilot pack` and `unpack` on the command line: output, exit codes, and failures that are one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import plain_directory, tiny_model

from specpilot.formats import open_checkpoint


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_there_and_back(tmp_path, run):
    src, dst = tmp_path / "src", tmp_path / "dst"
    tiny_model().save_pretrained(src, max_shard_size="40KB")
    code, out, err = run("pack", src, dst)
    assert code == 0 and out.endswith(f": {dst}\n") and "bits per weight" in out and "w12" in err
    code, out, err = run("pack", src, dst, "--force", "--quiet")
    assert code == 0 and "bits per weight" in out and err == ""
    code, out, err = run("unpack", dst, tmp_path / "back")
    assert code == 0 and out.endswith(f"MB: {tmp_path / 'back'}\n")
    assert contents(tmp_path / "back") == contents(src)
    for arguments, words in (
        (("pack", src, dst), "not empty; --force"),
        (("pack", dst, tmp_path / "x"), "is packed already"),
        (("unpack", src, tmp_path / "x"), "was not written by"),
        (("pack", tmp_path / "gone", tmp_path / "x"), "gone: not a directory"),
    ):
        code, out, err = run(*arguments)
        assert code == 1 and out == "" and err.startswith("error: ") and words in err
        assert len(err.splitlines()) == 1
    half = plain_directory(tmp_path / "half", {"a": torch.ones(16, 16).half()})
    assert run("pack", half, tmp_path / "x")[0] == 1
    with pytest.warns(UserWarning, match="ROUNDS"):
        assert run("pack", half, tmp_path / "x", "--to-bf16")[0] == 0
    with open_checkpoint(tmp_path / "x") as checkpoint:
        assert torch.equal(checkpoint.tensor("a"), torch.ones(16, 16).bfloat16())
