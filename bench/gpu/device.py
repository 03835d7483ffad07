"""Which GPU a table was made on, and how fast its clocks ran while it was being made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch

from specpilot import machine

ROOT = Path(__file__).resolve().parents[2]


def smi_under(load: Callable[[], object]) -> dict[str, str]:
    """``machine.smi()`` while the GPU works on what ``load`` enqueues: an idle GPU lowers its clocks within milliseconds."""
    load()
    return machine.smi()


class Watch:
    """Asks nvidia-smi ``every`` so many seconds while a ``with`` block lasts; ``state`` is what it said when the SM clock was
    highest, {} where there is no nvidia-smi, or not ``wanted``."""

    def __init__(self, wanted: bool = True, every: float = 1) -> None:
        self.state: dict[str, str] = {}
        self._wanted, self._every = wanted, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._wanted:
            self._thread.join()

    def _run(self) -> None:
        while seen := machine.smi():
            self.state = max(self.state or seen, seen, key=lambda s: float(s["sm_mhz"]))
            if self._stop.wait(self._every):
                return


def facts(device: str) -> dict[str, str]:
    """The first line of every JSON file: GPU, driver, versions, commit, date."""
    found = {k: v for k, v in machine.smi().items() if k in ("gpu", "driver")} if device == "cuda" else {}
    changed = machine.output(["git", "-C", str(ROOT), "status", "--porcelain"])
    head = machine.output(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    if device == "cuda" and not found:
        found["gpu"] = torch.cuda.get_device_name(0)
    return {
        "device": device,
        **found,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "commit": head + "+changes" * bool(changed),
        "date": date.today().isoformat(),
    }
