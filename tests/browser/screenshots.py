"""``python -m tests.browser.screenshots``: the pictures of the README, docs/explore-{light,dark}.png, at 1440 × 900."""

from __future__ import annotations

from pathlib import Path

from simkv.bench.page import SWITCHES, chromium
from tests.browser.conftest import ROOT, serve

TARGET = ROOT / "docs"


def main() -> None:
    """Open the app as it opens for everybody and take its picture in both themes."""
    from playwright.sync_api import sync_playwright

    TARGET.mkdir(exist_ok=True)
    with serve(ROOT / "app.py") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(SWITCHES))
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=theme)
            page.goto(address)
            page.locator(".clock").first.filter(has_text="step").wait_for(timeout=120_000)
            page.wait_for_timeout(2000)
            target: Path = TARGET / f"explore-{theme}.png"
            page.screenshot(path=target)
            print(target.relative_to(ROOT))
        browser.close()


if __name__ == "__main__":
    main()
