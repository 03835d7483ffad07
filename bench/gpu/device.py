"""Which GPU a table was made on, and how fast its clocks ran while it was being made."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUERY = {
    "gpu": "name",
    "driver": "driver_version",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "watts": "power.draw",
    "celsius": "temperature.gpu",
}


def smi() -> dict[str, str]:
    """What nvidia-smi says about the first GPU now, by the names of ``QUERY``; {} where there is no nvidia-smi."""
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(QUERY.values())}",
        "--format=csv,noheader,nounits",
        "-i",
        "0",
    ]
    values = [v.strip() for v in _output(command).split(",")]
    return dict(zip(QUERY, values, strict=True)) if len(values) == len(QUERY) else {}


def smi_under(load: Callable[[], object]) -> dict[str, str]:
    """``smi()`` while the GPU works on what ``load`` enqueues: an idle GPU lowers its clocks within milliseconds."""
    load()
    return smi()


class Watch:
    """Asks nvidia-smi once a second while a ``with`` block lasts; ``state`` is what it said when the SM clock was highest, {} where
    there is no nvidia-smi, or not ``wanted``."""

    def __init__(self, wanted: bool = True) -> None:
        self.state: dict[str, str] = {}
        self._wanted = wanted
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
        while seen := smi():
            self.state = max(self.state or seen, seen, key=lambda s: float(s["sm_mhz"]))
            if self._stop.wait(1):
                return


def facts(device: str) -> dict[str, str]:
    """The first line of every JSON file: GPU, driver, versions, commit, date."""
    import torch

    found = {k: v for k, v in smi().items() if k in ("gpu", "driver")} if device == "cuda" else {}
    changed = _output(["git", "-C", str(ROOT), "status", "--porcelain"])
    head = _output(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
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


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
