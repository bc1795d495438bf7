"""Compare in a real browser: one clock for all maps without the server, links between the pages, both themes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_explore_in_chromium import page, until

__all__ = ["page"]
pytestmark = pytest.mark.browser
SMALL = "source=Generator&shared_system_prompt.requests=200&memory=blocks&num_gpu_blocks=1500&b=block_size%3D64&c=num_gpu_blocks%3D3000"


def ready(page: Any, address: str) -> None:
    """All maps drawn, under their bar."""
    page.goto(address)
    page.locator(".scrub .clock").filter(has_text=":").wait_for()
    for i in range(3):
        page.locator(".map .clock").nth(i).filter(has_text="step").wait_for()
    page.wait_for_timeout(500)


def clocks(page: Any) -> list[str]:
    return [str(text) for text in page.locator(".map .clock").all_inner_texts()]


def seconds(clock: str) -> float:
    hours, minutes, rest = clock.partition(" ")[0].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def test_one_clock_moves_all_maps_and_says_nothing_to_the_server(page: Any, app: str, tmp_path: Path) -> None:
    sent: list[object] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    ready(page, f"{app}/compare?{SMALL}")
    assert page.locator(".map").count() == 3
    assert page.locator(".map.linked .play:visible").count() == 0
    before, frames = clocks(page), len(sent)
    slider = page.locator(".scrub .time")
    slider.evaluate("(s) => { s.value = s.max * 0.3; s.dispatchEvent(new Event('input')); }")
    until(page, lambda: all(a != b for a, b in zip(clocks(page), before, strict=True)))
    wanted = seconds(page.locator(".scrub .clock").inner_text())
    page.wait_for_timeout(100)
    assert len(sent) == frames
    assert all(seconds(c) <= wanted + 0.1 for c in clocks(page))
    assert max(seconds(c) for c in clocks(page)) > 0.5 * wanted
    # A map's own strip moves the clock of all.
    strip = page.locator(".map .timeline").nth(1)
    box = strip.bounding_box()
    strip.click(position={"x": box["width"] * 0.8, "y": 10})
    until(page, lambda: seconds(page.locator(".scrub .clock").inner_text()) > wanted)
    page.wait_for_url(re.compile(r"[?&]t=\d+"))
    # The link leads to the same moment.
    told, url = page.locator(".scrub .clock").inner_text(), page.url
    other = page.context.new_page()
    ready(other, url)
    assert abs(seconds(other.locator(".scrub .clock").inner_text()) - seconds(told)) <= 1
    other.close()
    # Both themes.
    page.screenshot(path=tmp_path / "light.png")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(500)
    page.screenshot(path=tmp_path / "dark.png")
    assert page.locator("[data-testid=stException]").count() == 0


def test_play_and_the_mark_where_they_part(page: Any, app: str) -> None:
    ready(page, f"{app}/compare?{SMALL}")
    mark = page.locator(".scrub .marks button").first
    mark.click()
    at = seconds(page.locator(".scrub .clock").inner_text())
    page.get_by_role("button", name="Play").first.click()
    until(page, lambda: seconds(page.locator(".scrub .clock").inner_text()) > at)
    page.get_by_role("button", name="Pause").first.click()
    stopped = page.locator(".scrub .clock").inner_text()
    page.wait_for_timeout(300)
    assert page.locator(".scrub .clock").inner_text() == stopped


def test_the_way_from_explore_and_back(page: Any, app: str) -> None:
    page.goto(f"{app}/?source=Generator&shared_system_prompt.requests=200&memory=blocks&num_gpu_blocks=1500&block_size=32")
    page.get_by_role("link", name="Compare with other settings").last.click()
    page.wait_for_url(re.compile(r"/compare\?.*block_size=32"))
    page.get_by_text("1,500 blocks of 32 tokens").first.wait_for()
    page.get_by_role("link", name="Explore this side").first.click()
    page.wait_for_url(re.compile(r"/\?.*num_gpu_blocks=1500"))
    page.get_by_text("Dies next").wait_for()
