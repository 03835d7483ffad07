"""What `specpilot pack` and `unpack` refuse, and that no failure leaves anything behind or takes anything away."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch
from tiny_models import plain_directory, tiny_model
from w12_model import gaussian

from specpilot.formats import CheckpointError, safetensors_file
from specpilot.formats.pack import pack_directory, unpack_directory


@pytest.fixture
def src(tmp_path) -> Path:
    tiny_model().save_pretrained(tmp_path / "src", max_shard_size="40KB")
    return tmp_path / "src"


@pytest.fixture
def packed(src, tmp_path) -> Path:
    pack_directory(src, tmp_path / "packed")
    return tmp_path / "packed"


def snapshot(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}


def refused(call, *words: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message
    return message


def fails_cleanly(root: Path, call, *words: str, error: type[BaseException] = CheckpointError) -> None:
    """The call fails and everything under ``root`` is as it was."""
    before = snapshot(root)
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value
    assert snapshot(root) == before


@pytest.mark.parametrize("work", [pack_directory, unpack_directory])
def test_places_that_are_refused(tmp_path, src, packed, work):
    given = src if work is pack_directory else packed
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(given)

    def fails(dst, *words, **options):
        fails_cleanly(tmp_path, lambda: work(given, dst, **options), *words)

    fails(tmp_path / "full", "full: exists and is not empty", "--force")
    fails(tmp_path / "full", "no config.json", "--force does not", force=True)
    fails(tmp_path / "file", "is not a directory", force=True)
    fails(tmp_path / "no" / "where", f"no directory {tmp_path / 'no'}")
    for same in (given, tmp_path / "link", given / ".." / given.name):
        fails(same, "is the source itself", force=True)
    fails(given / "inside", "lies inside the source")
    fails(tmp_path / "link" / "inside", "lies inside the source")
    fails(tmp_path, "lies inside it", force=True)
    fails_cleanly(tmp_path, lambda: work(tmp_path / "gone", tmp_path / "x"), "gone: not a directory")
    fails_cleanly(tmp_path, lambda: work(tmp_path / "full", tmp_path / "x"), "full: no config.json")


def test_an_empty_directory_is_taken_and_force_replaces_a_model(tmp_path, src):
    (tmp_path / "dst").mkdir()
    pack_directory(src, tmp_path / "dst")
    wanted = snapshot(tmp_path / "dst")
    (tmp_path / "dst" / "old.txt").write_text("of the old one")
    refused(lambda: pack_directory(src, tmp_path / "dst"), "not empty")
    pack_directory(src, tmp_path / "dst", force=True)
    assert snapshot(tmp_path / "dst") == wanted
    (tmp_path / "link").symlink_to("dst")
    unpack_directory(tmp_path / "dst", tmp_path / "plain")
    pack_directory(tmp_path / "plain", tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink() and snapshot(tmp_path / "dst") == wanted
    assert {p.name for p in tmp_path.iterdir()} == {"src", "dst", "link", "plain"}


def test_sources_that_are_refused(tmp_path, src, packed):
    def fails(source, *words, work=pack_directory, **options):
        fails_cleanly(tmp_path, lambda: work(source, tmp_path / "x", **options), *words)

    fails(packed, "is packed already", "unpack")
    fails(src, "was not written by `specpilot pack`", work=unpack_directory)
    half = plain_directory(tmp_path / "half", {"a": torch.zeros(4, 4).half()})
    fails(half, "model.safetensors: tensor a is F16", "--to-bf16")
    weight = {"a": gaussian(16, 16)}
    quantized = {"quantization_config": {"quant_method": "gptq"}}
    fails(plain_directory(tmp_path / "q", weight, quantized), "'gptq'")
    fails(plain_directory(tmp_path / "n", {"a.w12_low": gaussian(2, 2)}), "a.w12_low", "kept for")
    (tmp_path / "q" / "config.json").write_text("{")
    fails(tmp_path / "q", "config.json: not valid JSON")


def test_things_that_cannot_be_copied_are_named(tmp_path, src):
    def fails(*words):
        fails_cleanly(src.parent, lambda: pack_directory(src, tmp_path / "x"), *words)

    entry = src / "vocab.json"
    entry.symlink_to("gone")
    fails("vocab.json: leads nowhere")
    entry.unlink()
    os.mkfifo(entry)
    before = sorted(p.name for p in tmp_path.iterdir())
    refused(lambda: pack_directory(src, tmp_path / "x"), "vocab.json: is no regular file")
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    entry.unlink()
    entry.symlink_to(".")
    refused(lambda: pack_directory(src, tmp_path / "x"), "vocab.json: leads back to")
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("work", [pack_directory, unpack_directory])
@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_nothing(tmp_path, src, packed, work, there, monkeypatch):
    """The disk fills up at each of the writes in turn; writes before it are short ones."""
    given, dst = (src, tmp_path / "dst") if work is pack_directory else (packed, tmp_path / "dst")
    if there:
        shutil.copytree(src, dst)
    pwrite, left = os.pwrite, 0

    def write(fd, data, at):
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= 1
        return pwrite(fd, data[: max(1, len(data) // 2)], at)

    monkeypatch.setattr(safetensors_file.os, "pwrite", write)
    for allowed in (0, 1, 40, 120):
        left = allowed
        fails_cleanly(
            tmp_path, lambda: work(given, dst, force=there), "dst: cannot be written: No space left"
        )
    left = 10**9
    work(given, dst, force=there)
    monkeypatch.undo()
    work(given, tmp_path / "whole")
    assert snapshot(dst) == snapshot(tmp_path / "whole")


@pytest.mark.parametrize("work", [pack_directory, unpack_directory])
def test_the_systems_own_refusal_to_write(tmp_path, src, packed, work):
    """A limit on the size of files, in force for the call alone; Python ignores its signal."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = snapshot(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        refused(
            lambda: work(src if work is pack_directory else packed, tmp_path / "x"),
            "x: cannot be written: File too large",
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission(tmp_path, src):
    (tmp_path / "closed").mkdir(mode=0o555)
    refused(lambda: pack_directory(src, tmp_path / "closed" / "x"), "x: cannot be written: Permission denied")


@pytest.mark.parametrize("work", [pack_directory, unpack_directory])
@pytest.mark.parametrize("force", [False, True])
def test_an_interrupt_leaves_everything_as_it_was(tmp_path, src, packed, work, force):
    given, dst = (src if work is pack_directory else packed), tmp_path / "dst"
    calls = []
    work(given, dst, progress=lambda done, total, item: calls.append((done, total, item)))
    assert [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)
    assert calls[-1][0] == calls[-1][1] == calls[0][1] and calls[-1][2].endswith(".weight")
    if not force:
        shutil.rmtree(dst)

    for stop in (1, len(calls) // 2, len(calls)):
        count = 0

        def interrupt(done, total, item, stop=stop):
            nonlocal count
            count += 1
            if count == stop:
                os.kill(os.getpid(), signal.SIGINT)

        fails_cleanly(
            tmp_path,
            lambda: work(given, dst, force=force, progress=interrupt),  # noqa: B023
            error=KeyboardInterrupt,
        )


def test_a_failing_exchange_keeps_the_old_directory(tmp_path, src, monkeypatch):
    pack_directory(src, tmp_path / "dst")
    rename = os.rename

    def once(a, b):
        if str(a).endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(a, b)

    monkeypatch.setattr(os, "rename", once)
    fails_cleanly(tmp_path, lambda: pack_directory(src, tmp_path / "dst", force=True), "Input/output error")


def test_corrupt_sources_are_named(tmp_path, src):
    shard = sorted(src.glob("*.safetensors"))[-1]
    whole = shard.read_bytes()
    for broken, words in (
        (whole[:-1], ("cut short", "tensor")),
        (whole[:5], ("too few",)),
        (whole[:8] + b"[" + whole[9:], ("not valid JSON",)),
        (whole + b"x", ("belong to none",)),
    ):
        shard.write_bytes(broken)
        fails_cleanly(tmp_path, lambda: pack_directory(src, tmp_path / "x"), shard.name, *words)
    shard.unlink()
    fails_cleanly(tmp_path, lambda: pack_directory(src, tmp_path / "x"), shard.name, "is missing")


def test_a_source_that_changes_meanwhile(tmp_path):
    src = plain_directory(tmp_path / "src", {"a": gaussian(32, 64), "b": gaussian(32, 64, 1)})
    path = src / "model.safetensors"
    whole = path.read_bytes()

    def edit(change):
        def progress(done, total, item):
            change()

        return lambda: pack_directory(src, tmp_path / "x", progress=progress)

    refused(edit(lambda: os.truncate(path, 3000)), "model.safetensors: cut short in tensor")
    path.write_bytes(whole)
    other = (
        whole[:-8192] + b"\x80\x7f" * 2048 + whole[-4096:]
    )  # `a`, which has been looked at, is all infinities
    refused(edit(lambda: path.write_bytes(other)), "model.safetensors: tensor", "changed while")
    assert [p.name for p in tmp_path.iterdir()] == ["src"]


def test_what_does_not_come_back_is_never_left(tmp_path, src, monkeypatch):
    """A writer that spoils a byte is caught by the comparison with what the file holds."""
    spoiled = 0

    def spoil(fd, data, at):
        nonlocal spoiled
        spoiled += len(data) > 0
        done = bytearray(data)
        if spoiled == 5:
            done[-1] ^= 1
        os.pwrite(fd, done, at)

    monkeypatch.setattr(safetensors_file, "write_all", spoil)
    fails_cleanly(tmp_path, lambda: pack_directory(src, tmp_path / "x"), "tensor", ".safetensors")
