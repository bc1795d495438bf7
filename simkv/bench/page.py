"""The part of ``make bench`` that measures the page in a real Chromium, headless: how long it takes to open, how fast it scrubs."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simkv.bench.whole import Section

TITLE = "The page"
BLOCKS = 100_000
SAMPLE = Path(__file__).resolve().parents[1] / "ui" / "block_map" / "sample_page.py"
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DRAWN_S = 120
SCRUB = """async ([count, stride]) => {
  const find = (root) => { for (const e of root.querySelectorAll("*")) {
    if (e.matches(".map")) return e;
    const inside = e.shadowRoot && find(e.shadowRoot);
    if (inside) return inside;
  } };
  const slider = find(document).querySelector(".time"), frames = +slider.max + 1, took = [];
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel(); channel.port1.onmessage = done; channel.port2.postMessage(0);
  }));
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    slider.value = (i * stride) % frames;
    slider.dispatchEvent(new Event("input"));
    await painted();
    took.push(performance.now() - start);
  }
  return took;
}"""
"""Milliseconds from the slider's move to the painted picture, the wait for the screen's next frame included."""


def page() -> Section:
    """From the server's start to the drawn page, and milliseconds a scrub step, or what is missing to measure them."""
    lacking = missing()
    if lacking:
        return TITLE, [lacking], True
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(SWITCHES))
        opened, empty = [], []
        for _ in range(3):
            opened.append(_open(browser))
            empty.append(_open_empty(browser))
        steps = {stride: _scrub(browser, stride) for stride in (1, 389)}
        browser.close()
    lines = [
        "| | median | slowest |",
        "| --- | ---: | ---: |",
        f"| server start to an empty Streamlit page | {statistics.median(empty):.1f} s | {max(empty):.1f} s |",
        f"| server start to the drawn first page, engine compiled before | {statistics.median(opened):.1f} s | {max(opened):.1f} s |",
        *(
            f"| one scrub step at {BLOCKS:,} blocks, {name} | {statistics.median(steps[stride]):.0f} ms | {max(steps[stride]):.0f} ms |"
            for stride, name in ((1, "frame after frame"), (389, "far jumps"))
        ),
        "",
        "A scrub step includes the wait for the screen's next frame (up to 17 ms at 60 Hz).",
    ]
    return TITLE, lines, True


def chromium() -> str | None:
    """The installed Chromium, if there is one."""
    given = os.environ.get("SIMKV_CHROMIUM")
    return given or next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


def missing() -> str:
    """What lacks for measuring in a browser, in one sentence; empty if nothing."""
    lacks = [] if find_spec("playwright") else ["the Python package playwright (pip install playwright)"]
    lacks += [] if chromium() else ["Chromium (Debian package chromium, or SIMKV_CHROMIUM=path)"]
    return f"Not measured: this machine lacks {' and '.join(lacks)}." if lacks else ""


@contextmanager
def server(line: list[str]) -> Iterator[str]:
    """A server of this machine, given by its command without the port; the address it is going to answer at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    options = [f"--server.port={port}", "--server.address=127.0.0.1", "--server.headless=true", "--browser.gatherUsageStats=false"]
    process = subprocess.Popen([*line, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _open(browser: Any) -> float:
    """Seconds from the start of the app's server to the drawn map and figures. The browser runs already: it is not ours."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    start = time.perf_counter()
    with server([sys.executable, "-m", "simkv.ui.serve", str(_app())]) as address:
        _visit(tab, address)
        tab.wait_for_function("() => document.querySelector('[data-testid=stMetricValue]')", timeout=1000 * DRAWN_S)
        took = time.perf_counter() - start
    tab.close()
    return took


def _open_empty(browser: Any) -> float:
    """The same for a page with one word on it: what Streamlit and the browser take by themselves."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text("import streamlit as st\nst.text('drawn')\n")
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        start = time.perf_counter()
        with server([sys.executable, "-m", "streamlit", "run", str(script)]) as address:
            _goto(tab, address)
            tab.get_by_text("drawn").wait_for(timeout=1000 * DRAWN_S)
            took = time.perf_counter() - start
        tab.close()
    return took


def _scrub(browser: Any, stride: int) -> list[float]:
    with server([sys.executable, "-m", "streamlit", "run", str(SAMPLE)]) as address:
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        _visit(tab, f"{address}/?n={BLOCKS}")
        tab.evaluate(SCRUB, [20, stride])  # the first steps compile the script
        took: list[float] = tab.evaluate(SCRUB, [100, stride])
        tab.close()
    return took


def _visit(tab: Any, address: str) -> None:
    """Open the address as soon as the server answers, and wait until the map is drawn."""
    _goto(tab, address)
    tab.locator(".clock").first.filter(has_text="step").wait_for(timeout=1000 * DRAWN_S)


def _goto(tab: Any, address: str) -> None:
    """Go there once the port is open: a page that fails to load would take the browser longer than the server needs."""
    port, end = int(address.rsplit(":", 1)[1].split("/")[0]), time.monotonic() + DRAWN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
    tab.goto(address, wait_until="commit")


def _app() -> Path:
    from simkv.commands.app import app_script

    return app_script()
