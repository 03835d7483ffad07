"""Directories that appear whole or not at all, and what is copied into them as it is."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import CheckpointError

_CHUNK = 1 << 24


@contextmanager
def staged(src: Path, dst: Path, force: bool) -> Iterator[Path]:
    """Yields a new directory beside ``dst``, which takes its place when the block ends without an exception.

    Nothing is left behind otherwise, and with ``force`` an existing ``dst`` is removed only once the new one is complete.
    """
    final = dst.resolve()
    _check_places(src.resolve(), final, src, dst)
    _check_free(final, dst, force)
    stage = _sibling(final, "partial")
    try:
        stage.mkdir()
        yield stage
        _sync(stage)
        _replace(stage, final)
    except BaseException as e:
        shutil.rmtree(stage, ignore_errors=True)
        if isinstance(e, OSError):
            raise CheckpointError(
                f"{dst}: cannot be written: {e.strerror or e}; nothing was left there"
            ) from e
        raise


def copy_others(src: Path, stage: Path, skip: Callable[[str], bool]) -> None:
    """Copies files and folders of ``src``, links as what they lead to; hidden entries and ``skip(name)`` stay out."""
    _copy(src, stage, skip, (src.resolve(),))


def write_file(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _copy(src: Path, dst: Path, skip: Callable[[str], bool], above: tuple[Path, ...]) -> None:
    for entry in sorted(src.iterdir()):
        if entry.name.startswith(".") or skip(entry.name):
            continue
        target = dst / entry.name
        if entry.is_dir():
            real = entry.resolve()
            if real in above:
                raise CheckpointError(
                    f"{entry}: leads back to {real}, a folder that it lies in; remove the link"
                )
            target.mkdir()
            _copy(entry, target, lambda name: False, (*above, real))
            _sync(target)
        elif entry.is_file():
            _copy_file(entry, target)
        else:
            what = "leads nowhere" if entry.is_symlink() else "is no regular file"
            raise CheckpointError(f"{entry}: {what}; remove it or put the file in its place")


def _copy_file(src: Path, dst: Path) -> None:
    with open(dst, "xb") as out:
        for piece in _pieces(src):
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while piece := file.read(_CHUNK):
                yield piece
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror}") from e


def _check_places(src: Path, final: Path, src_said: Path, dst_said: Path) -> None:
    if not src.is_dir():
        raise CheckpointError(f"{src_said}: not a directory; expected a Hugging Face model directory")
    if src == final:
        raise CheckpointError(f"{dst_said}: is the source itself; name another directory")
    if src in final.parents:
        raise CheckpointError(f"{dst_said}: lies inside the source {src_said}; name a directory outside it")
    if final in src.parents:
        raise CheckpointError(f"{dst_said}: the source {src_said} lies inside it; name another directory")


def _check_free(final: Path, dst: Path, force: bool) -> None:
    if not final.parent.is_dir():
        raise CheckpointError(f"{dst}: there is no directory {final.parent} to write it in; make it first")
    if not final.exists():
        return
    if not final.is_dir():
        raise CheckpointError(f"{dst}: exists and is not a directory")
    if not any(final.iterdir()):
        return
    if not force:
        raise CheckpointError(f"{dst}: exists and is not empty; --force replaces it")
    if not (final / "config.json").is_file():
        raise CheckpointError(
            f"{dst}: holds no config.json, so --force does not remove it: not a model's directory"
        )


def _replace(stage: Path, final: Path) -> None:
    if final.exists() and any(final.iterdir()):
        old = _sibling(final, "old")
        os.rename(final, old)
        try:
            os.rename(stage, final)
        except BaseException:
            os.rename(old, final)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(stage, final)
    _sync(final.parent)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sibling(final: Path, kind: str) -> Path:
    return final.with_name(f".{final.name}.{secrets.token_hex(4)}.{kind}")
