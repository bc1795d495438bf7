"""The app in a real Chromium. Where none is installed these tests are skipped, with the reason; with SIMKV_REQUIRE_BROWSER=1 they fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from simkv.bench.page import SWITCHES, chromium, missing

ROOT = Path(__file__).resolve().parents[2]


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


def go_without(reason: str) -> NoReturn:
    """Skip, or fail where a browser is a must (.ci/run): a check that silently skips is none."""
    if os.environ.get("SIMKV_REQUIRE_BROWSER", "0") not in ("", "0"):
        pytest.fail(f"SIMKV_REQUIRE_BROWSER is set: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if reason := missing():
        go_without(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(SWITCHES))
        yield running
        running.close()


@pytest.fixture(scope="session")
def app(compiled: None) -> Iterator[str]:
    with serve(ROOT / "app.py") as address:
        yield address
