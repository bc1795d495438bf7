"""Open, scrub, click, keyboard, deep link, both themes: what only a real browser can show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simkv.bench.page import SAMPLE
from tests.browser.conftest import serve

pytestmark = pytest.mark.browser
SMALL = "?source=Generator&shared_system_prompt.requests=200&memory=blocks&num_gpu_blocks=1500"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test on any error of its own and on any request that leaves this machine."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda r: None if re.match(r"(http|ws)://127\.0\.0\.1[:/]|data:|blob:", r.url) else problems.append(r.url))
    yield opened
    context.close()
    assert not problems


def ready(page: Any, address: str) -> Any:
    """The map of a page, drawn."""
    page.goto(address)
    page.wait_for_function("() => document.querySelector('[data-testid=stMetricValue]')")
    page.locator(".clock").first.filter(has_text="step").wait_for()
    page.get_by_text("Dies next").wait_for()
    page.wait_for_timeout(500)
    return page.locator(".map").first


def until(page: Any, holds: Callable[[], bool]) -> None:
    """Wait for what the browser does by itself, at most 5 s."""
    for _ in range(100):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen within 5 s")


def step_of(page: Any) -> int:
    return int(re.sub(r".*step |,", "", page.locator(".clock").first.inner_text()))


def test_open_scrub_click_and_link(page: Any, app: str, tmp_path: Path) -> None:
    sent: list[object] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    board = ready(page, f"{app}/{SMALL}")
    # Scrubbing: the clock and the counts follow, nothing goes to the server.
    before, frames = step_of(page), len(sent)
    counts = board.locator(".legend").inner_text()
    slider = board.locator(".time")
    slider.evaluate("(s) => { s.value = Math.floor(s.max / 3); s.dispatchEvent(new Event('input')); }")
    until(page, lambda: step_of(page) != before)
    assert board.locator(".legend").inner_text() != counts
    assert len(sent) == frames
    # Letting go: the panels follow and the URL remembers.
    slider.dispatch_event("change")
    page.wait_for_url(re.compile(r"step=\d+"))
    # A click on a block: its details.
    cells = board.locator(".cells")
    cells.click(position={"x": 201, "y": 101})
    found = re.match(r"block ([\d,]+) ", board.locator(".hover").inner_text())
    assert found
    block = int(found[1].replace(",", ""))
    page.wait_for_url(re.compile(rf"block={block}\b"))
    page.get_by_text(f"Block {block:,} at step {step_of(page):,}").wait_for()
    # The link shows the same place.
    clock, url = page.locator(".clock").first.inner_text(), page.url
    other = page.context.new_page()
    ready(other, url)
    other.locator(".clock").first.filter(has_text=clock).wait_for()
    other.get_by_text(f"Block {block:,} at step {step_of(page):,}").wait_for()
    assert f"block {block:,}" in other.locator(".hover").first.inner_text()
    other.close()
    # Both themes.
    page.screenshot(path=tmp_path / "light.png")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(500)
    page.screenshot(path=tmp_path / "dark.png")
    background = page.evaluate("() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert max(map(int, re.findall(r"\d+", background)[:3])) < 60
    assert page.locator("[data-testid=stException]").count() == 0


def test_keyboard(page: Any, app: str) -> None:
    board = ready(page, f"{app}/{SMALL}")
    cells = board.locator(".cells")
    assert cells.get_attribute("role") == "application"
    cells.focus()
    first = step_of(page)
    page.keyboard.press(".")
    until(page, lambda: step_of(page) > first)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"block=\d+"))
    page.keyboard.press("+")
    assert "zoomed" in (cells.get_attribute("class") or "")
    page.keyboard.press("0")
    assert "zoomed" not in (cells.get_attribute("class") or "")
    page.keyboard.press("Home")
    until(page, lambda: board.locator(".time").input_value() == "0")
    page.keyboard.press(" ")
    until(page, lambda: int(board.locator(".time").input_value()) > 0)
    page.keyboard.press(" ")
    assert board.locator(".play").get_attribute("aria-label") == "Play"


def test_names_from_a_trace_are_text(page: Any, app: str) -> None:
    bad = "<img src=x onerror=window.hacked=1>"
    rows = [f'{{"id": "{bad}{i}", "arrive": {i}, "prompt": [{{"seed": 1, "n": 64}}], "output_len": 4}}' for i in range(20)]
    page.goto(f"{app}/?source=Upload&memory=blocks&num_gpu_blocks=40&tab=Requests&request=3")
    page.locator("input[type=file]").set_input_files({"name": bad + ".jsonl", "mimeType": "text/plain", "buffer": "\n".join(rows).encode()})
    page.locator(".clock").first.filter(has_text="step").wait_for()
    page.locator("[data-testid=stText]").get_by_text("<img src=x").first.wait_for()
    assert page.evaluate("() => window.hacked") is None


@pytest.mark.parametrize("blocks", [6_000, 100_000])
def test_a_scrub_step_draws_and_sends_nothing(page: Any, blocks: int) -> None:
    """How fast is measured by ``python -m simkv.bench``; here: every step paints another picture and asks nobody for it."""
    sent: list[object] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    with serve(SAMPLE) as address:
        page.goto(f"{address}/?n={blocks}")
        page.locator(".clock").first.filter(has_text="step").wait_for()
        page.wait_for_timeout(500)
        board, frames = page.locator(".map").first, len(sent)
        pictures = set()
        for frame in (999, 1, 2, 3, 400, 20):
            board.locator(".time").evaluate("(s, to) => { s.value = to; s.dispatchEvent(new Event('input')); }", frame)
            until(page, lambda frame=frame: step_of(page) == frame)
            pictures.add(board.locator(".cells").evaluate("(c) => c.toDataURL()"))
        assert len(pictures) == 6
        assert len(sent) == frames


def test_counts_of_the_legend_add_up_to_the_pool(page: Any, app: str) -> None:
    """An evicted block has been taken by somebody: it counts in its state, and once more as evicted."""
    board = ready(page, f"{app}/{SMALL}")
    counts = [int(t.replace(",", "")) for t in board.locator(".legend b").all_inner_texts()]
    assert sum(counts[:6]) == 1500
    assert counts[4] == 1
    assert counts[5] == 0
    assert 0 < counts[6] <= sum(counts[1:4])


def test_a_recorded_file_sets_the_controls(page: Any, app: str) -> None:
    page.goto(f"{app}/?source=Upload")
    recorded = Path(__file__).resolve().parents[1] / "golden" / "vllm" / "03_eviction_lru.input.json"
    page.locator("input[type=file]").set_input_files(recorded)
    page.get_by_text("This file records settings of its own").wait_for()
    page.get_by_text("the pool of 21 blocks (84 tokens)").wait_for()
    assert page.get_by_role("spinbutton", name="num_gpu_blocks").input_value() == "21"
    page.get_by_role("spinbutton", name="num_gpu_blocks").fill("200")
    page.get_by_role("spinbutton", name="num_gpu_blocks").press("Enter")
    page.get_by_text("pool of 200 blocks").first.wait_for()
    assert page.locator("[data-testid=stException]").count() == 0
