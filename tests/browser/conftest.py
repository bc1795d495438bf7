"""The app in a real Chromium. Skipped, with the reason, only where no Chromium is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


def chromium() -> str | None:
    """The installed Chromium, if there is one."""
    given = os.environ.get("SIMKV_CHROMIUM")
    return given or next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@contextmanager
def serve(script: Path) -> Iterator[str]:
    """A Streamlit script on a free port of this machine; the address."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), f"--server.port={port}", "--server.headless=true"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, "the server ended by itself"
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (Debian package chromium, or SIMKV_CHROMIUM=path)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS.split())
        yield running
        running.close()


@pytest.fixture(scope="session")
def app(compiled: None) -> Iterator[str]:
    with serve(ROOT / "app.py") as address:
        yield address
