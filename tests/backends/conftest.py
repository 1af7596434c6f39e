"""A real server process on a free port, told by a file how to answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Ordered:
    """The running server: orders, what it was asked, and its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.order()
        script = Path(__file__).with_name("openai_server.py")
        self.process = subprocess.Popen([sys.executable, str(script), str(folder)])
        while not (folder / "port").exists():
            assert self.process.poll() is None
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{(folder / 'port').read_text()}"

    def order(self, **orders: Any) -> None:
        """How it answers from now on."""
        (self.folder / "orders").write_text(json.dumps(orders))

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The requests so far."""
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ordered]:
    """A fresh server process."""
    folder = tmp_path / "server"
    folder.mkdir()
    made = Ordered(folder)
    yield made
    made.stop()
