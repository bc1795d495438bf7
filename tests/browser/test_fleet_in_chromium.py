"""A fleet in a real browser: the heat map without the server, one click to a replica, the link that shows the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_explore_in_chromium import page, until

__all__ = ["page"]
pytestmark = pytest.mark.browser
SMALL = "source=Generator&shared_system_prompt.requests=200&memory=blocks&num_gpu_blocks=1500&replicas=4&router=random"
OPERATIONS = "ops=fail,at=20,replica=1,startup_s=5,down_s=5"


def heat(page: Any, address: str) -> Any:
    """The heat map of a page, drawn."""
    page.goto(address)
    board = page.locator(".heat").first
    board.locator(".measures button").first.wait_for(timeout=240_000)
    until(page, lambda: board.locator(".cells").evaluate("(c) => c.width") > 400)
    return board


def test_from_the_fleet_to_a_replica_and_back(page: Any, app: str, tmp_path: Path) -> None:
    sent: list[object] = []
    scripts: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    page.on("request", lambda r: scripts.append(r.url))
    board = heat(page, f"{app}/?{SMALL}&{OPERATIONS}")
    page.get_by_text("4 replicas behind random find").wait_for()
    assert not [url for url in scripts if "plotly" in url.lower()]
    # Another measure: another picture, and nobody is asked for it.
    cells = board.locator(".cells")
    page.wait_for_timeout(500)
    before, frames = cells.evaluate("(c) => c.toDataURL()"), len(sent)
    board.get_by_role("button", name="Running").click()
    until(page, lambda: cells.evaluate("(c) => c.toDataURL()") != before)
    assert board.get_by_role("button", name="Running").get_attribute("aria-pressed") == "true"
    box = cells.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + (box["height"] - 22) * 0.7)
    until(page, lambda: board.locator(".hover").inner_text().startswith("replica 2 · "))
    assert len(sent) == frames
    # Both themes.
    page.screenshot(path=tmp_path / "light.png")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(500)
    page.screenshot(path=tmp_path / "dark.png")
    # One click to a replica; the link leads there as well; and back.
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + (box["height"] - 22) * 0.7)
    page.locator(".map .clock").first.filter(has_text="step").wait_for()
    page.wait_for_url(re.compile(r"replica=2\b"))
    headline, url = page.get_by_text("of prompt tokens came from the cache").first.inner_text(), page.url
    assert "ops=fail" in url
    other = page.context.new_page()
    other.goto(url)
    other.get_by_text(headline).wait_for()
    other.close()
    page.get_by_role("radio", name="fleet").or_(page.get_by_role("button", name="fleet")).first.click()
    page.get_by_text("4 replicas behind random find").wait_for()
    assert page.locator("[data-testid=stException]").count() == 0


def test_maps_of_two_fleets_show_the_same_measure(page: Any, app: str) -> None:
    board = heat(page, f"{app}/compare?{SMALL}&b=router%3Dround-robin")
    page.get_by_text("Its busiest replica computes").wait_for()
    board.get_by_role("button", name="Waiting").click()
    buttons = page.locator(".heat").nth(1).get_by_role("button", name="Waiting")
    until(page, lambda: buttons.get_attribute("aria-pressed") == "true")
    page.get_by_role("link", name="Explore this side").last.click()
    page.wait_for_url(re.compile(r"/\?.*router=round-robin"))
    page.get_by_text("4 replicas behind round-robin find").wait_for()
