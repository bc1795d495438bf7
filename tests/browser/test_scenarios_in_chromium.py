"""Scenarios in a real browser: from the gallery to a verdict, and on to Compare with exactly these two."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.test_explore_in_chromium import page

__all__ = ["page"]
pytestmark = pytest.mark.browser


def test_from_the_gallery_to_the_verdict_and_on(page: Any, app: str) -> None:
    page.goto(f"{app}/scenarios")
    card = page.locator(".st-key-scenario-shorter_than_a_block")
    card.get_by_role("button", name="Open").click()
    page.get_by_role("button", name="Run").click()
    page.get_by_text("3 of 3 expectations hold").wait_for(timeout=240_000)
    page.locator("table.figures").get_by_text("85.7 %").wait_for()
    assert page.url.endswith("?scenario=shorter_than_a_block")
    page.get_by_text("Compare these two").click()
    page.get_by_text("block_size = 16").wait_for(timeout=240_000)
    assert "generator=One+prompt+template" in page.url
