"""Hostile files: refused in one line that names the file and the fault, or loaded with the tensors they hold; nothing else."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attacks
import attacks_gguf
import attacks_w12
import pytest
import torch
from edits import FILE, split
from gguf import GGMLQuantizationType as Q
from gguf import GGUFReader
from gguf_parts import Parts
from tiny_models import gguf_file, tiny_model

from specpilot import load
from specpilot.formats import open_checkpoint
from specpilot.formats.pack import pack_directory

CPU_S, WALL_S, MEMORY = 2, 30, 100 << 20  # one slab of weights is a third of the memory
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # its shadow memory knows no such limit
POSITIONS = 32
CHARACTERS = [chr(c) for c in range(ord("!"), ord("!") + 90)]
Tensors = dict[str, torch.Tensor]


class Hang(BaseException):
    """So that no handler of errors in the code under test takes it for one."""


@contextmanager
def bounded() -> Iterator[None]:
    """CPU time, waiting and memory of what runs in it have limits."""

    def alarm(*_: object) -> None:
        raise Hang(f"still waiting after {WALL_S} s")

    limits, before = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, alarm)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits[1]))
    signal.alarm(WALL_S)
    start = time.process_time()
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert time.process_time() - start < CPU_S * (5 if SANITIZED else 1)


def loaded(source: Path) -> Tensors:
    """All that loading a model does, and its tensors."""
    load(source, drafter=None, max_context=POSITIONS, progress=False)
    with open_checkpoint(source) as checkpoint:
        checkpoint.tokenizer()
        tensors = {name: checkpoint.tensor(name) for name in checkpoint.names()}
        assert checkpoint.nbytes == sum(t.nbytes for t in tensors.values())
    return tensors


def outcome(source: Path) -> Tensors | str:
    """The tensors, or the message of the refusal."""
    with bounded():
        try:
            return loaded(source)
        except ValueError as e:
            message = str(e)
    assert len(message) <= 600 and message.isprintable(), message
    assert str(source) in message, f"names no file: {message}"
    return message


def changed(source: Path, good: Tensors) -> list[str] | None:
    """Names of the tensors that are not what they were; None when the file was refused."""
    got = outcome(source)
    if isinstance(got, str):
        return None
    assert got.keys() == good.keys()
    return [
        name for name in good if not torch.equal(got[name].view(torch.int16), good[name].view(torch.int16))
    ]


def check(source: Path, good: Tensors, words: tuple[str, ...]) -> None:
    if words:
        message = outcome(source)
        assert isinstance(message, str), f"loaded, expected a refusal naming {words}"
        assert all(word in message for word in words), (message, words)
    else:
        assert changed(source, good) == []


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> tuple[Path, Tensors]:
    path = tmp_path_factory.mktemp("single")
    tiny_model(num_hidden_layers=2).save_pretrained(path)
    return path, loaded(path)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> tuple[Path, Tensors]:
    path = tmp_path_factory.mktemp("sharded")
    tiny_model(num_hidden_layers=2).save_pretrained(path, max_shard_size="40KB")
    return path, loaded(path)


@pytest.fixture(scope="module")
def packed(single, tmp_path_factory) -> tuple[Path, Tensors]:
    path = tmp_path_factory.mktemp("packed") / "m"
    pack_directory(single[0], path)
    assert changed(path, single[1]) == []
    return path, single[1]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> tuple[Path, Tensors]:
    tokenizer = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": ["<s>", "</s>", *CHARACTERS, "ab", "cd", "abcd", "<x>"],
        "merges": ["a b", "c d", "ab cd"],
        "token_type": [3, 3, *[1] * 93, 4],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    path = gguf_file(
        tmp_path_factory.mktemp("gguf") / "tiny.gguf",
        tiny_model(num_hidden_layers=1),
        {"mlp.gate_proj.weight": Q.Q8_0, "mlp.up_proj.weight": Q.Q4_1, "embed_tokens.weight": Q.BF16},
        **{f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()},
    )
    return path, loaded(path)


@pytest.mark.parametrize("name", attacks.SINGLE)
def test_safetensors(single, tmp_path, name):
    mutate, words = attacks.SINGLE[name]
    mutate(shutil.copytree(single[0], tmp_path / "m"))
    check(tmp_path / "m", single[1], words)


@pytest.mark.parametrize("name", attacks.SHARDED)
def test_shards(sharded, tmp_path, name):
    mutate, words = attacks.SHARDED[name]
    mutate(shutil.copytree(sharded[0], tmp_path / "m"))
    check(tmp_path / "m", sharded[1], words)


@pytest.mark.parametrize("name", attacks_w12.ATTACKS)
def test_w12(packed, tmp_path, name):
    mutate, words = attacks_w12.ATTACKS[name]
    mutate(shutil.copytree(packed[0], tmp_path / "m"))
    check(tmp_path / "m", packed[1], words)


@pytest.mark.parametrize("name", attacks_gguf.ATTACKS)
def test_gguf(gguf, tmp_path, name):
    mutate, words = attacks_gguf.ATTACKS[name]
    parts = Parts.of(gguf[0])
    assert parts.join() == gguf[0].read_bytes()
    mutate(parts)
    (tmp_path / "m.gguf").write_bytes(parts.join())
    check(tmp_path / "m.gguf", gguf[1], words)


@pytest.mark.parametrize("kind", ["single", "packed"])
def test_safetensors_cut_anywhere_is_refused(kind, request, tmp_path):
    directory = shutil.copytree(request.getfixturevalue(kind)[0], tmp_path / "m")
    file = directory / FILE
    entries, data = split(directory)
    start = file.stat().st_size - len(data)
    entries.pop("__metadata__")
    borders = {0, 7, 8, 9, start, *(start + b for e in entries.values() for b in e["data_offsets"])}
    cuts = {b + d for b in borders for d in (-1, 0, 1)} | set(random.Random(0).sample(range(start), 40))
    for size in sorted(cuts & set(range(file.stat().st_size)), reverse=True):
        os.truncate(file, size)
        assert changed(directory, {}) is None, size


def test_gguf_cut_anywhere_is_refused(gguf, tmp_path):
    file = Path(shutil.copy(gguf[0], tmp_path / "m.gguf"))
    reader = GGUFReader(gguf[0])
    borders = {0, reader.data_offset}
    for field in [*reader.fields.values(), *(t.field for t in reader.tensors)]:
        position = field.offset
        for part in field.parts:
            borders.add(position)
            position += part.nbytes
    borders |= {t.data_offset for t in reader.tensors}
    end = max(t.data_offset + t.n_bytes for t in reader.tensors)  # padding follows
    cuts = (
        {b + d for b in borders for d in (-1, 0)} | set(random.Random(0).sample(range(end), 40)) | {end - 1}
    )
    for size in sorted(cuts & set(range(end)), reverse=True):
        os.truncate(file, size)
        assert changed(file, {}) is None, size


@pytest.mark.parametrize("seed", range(4))
def test_safetensors_flipped_bits(single, tmp_path, seed):
    """In the header: refused, or without effect. In the data: one tensor changes."""
    directory, good = shutil.copytree(single[0], tmp_path / "m"), single[1]
    file, rng = directory / FILE, random.Random(seed)
    content = file.read_bytes()
    start = len(content) - len(split(directory)[1])
    for bit in rng.sample(range(8 * start), 60):
        file.write_bytes(flipped(content, bit))
        assert not changed(directory, good), bit
    for bit in rng.sample(range(8 * start, 8 * len(content)), 5):
        file.write_bytes(flipped(content, bit))
        assert len(changed(directory, good) or ()) == 1, bit


@pytest.mark.parametrize("seed", range(4))
def test_w12_flipped_bits(packed, tmp_path, seed):
    """In the data: always refused, by the checksums."""
    directory, good = shutil.copytree(packed[0], tmp_path / "m"), packed[1]
    file, rng = directory / FILE, random.Random(seed)
    content = file.read_bytes()
    start = len(content) - len(split(directory)[1])
    for bit in rng.sample(range(8 * start), 60):
        file.write_bytes(flipped(content, bit))
        assert not changed(directory, good), bit
    for bit in rng.sample(range(8 * start, 8 * len(content)), 20):
        file.write_bytes(flipped(content, bit))
        assert changed(directory, good) is None, bit


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_flipped_bits_of_json(sharded, tmp_path, file):
    directory = shutil.copytree(sharded[0], tmp_path / "m")
    content, rng = (directory / file).read_bytes(), random.Random(0)
    for bit in rng.sample(range(8 * len(content)), 60):
        (directory / file).write_bytes(flipped(content, bit))
        assert not changed(directory, sharded[1]), bit


@pytest.mark.parametrize("seed", range(4))
def test_gguf_flipped_bits(gguf, tmp_path, seed):
    """A flipped type or position in the header can make one tensor of another, as a flip in the data does."""
    content, rng, file = gguf[0].read_bytes(), random.Random(seed), tmp_path / "m.gguf"
    start = GGUFReader(gguf[0]).data_offset
    for bit in [*rng.sample(range(8 * start), 100), *rng.sample(range(8 * start, 8 * len(content)), 5)]:
        file.write_bytes(flipped(content, bit))
        assert len(changed(file, gguf[1]) or ()) <= 1, bit
