"""One progress bar for long work: loading, packing, unpacking, downloading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

# done bytes, total bytes, what is being worked on
ProgressCallback = Callable[[int, int, str], None]


@contextmanager
def bar(what: str, enabled: bool = True) -> Iterator[ProgressCallback]:
    """Yields a callback ``(done, total, item)`` that draws a bar on standard error; nothing is drawn when not enabled
    or when standard error is no terminal."""
    if not enabled:
        yield lambda done, total, item: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def update(done: int, total: int, item: str) -> None:
            progress.update(task, completed=done, total=total, description=f"{what} {item}"[:48])

        yield update
