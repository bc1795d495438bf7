"""``python -m tests.browser.screenshots``: the pictures of the README, docs/{explore,compare,fleet}-{light,dark}.png, at 1440 × 900."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from simkv.bench.page import SWITCHES, chromium
from tests.browser.conftest import ROOT, serve

TARGET = ROOT / "docs"
PAGES = {"explore": "", "compare": "compare", "fleet": "?replicas=8&ops=deploy,at=120,startup_s=15"}
DRAWN = ".map .clock:has-text('step'), .heat .measures button"


def main() -> None:
    """Open the pages as they open for everybody, and a fleet, and take their pictures in both themes."""
    from playwright.sync_api import sync_playwright

    TARGET.mkdir(exist_ok=True)
    with serve(ROOT / "app.py") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(SWITCHES))
        for name, theme in product(PAGES, ("light", "dark")):
            page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=theme)
            page.goto(f"{address}/{PAGES[name]}")
            page.locator(DRAWN).first.wait_for(timeout=240_000)
            page.wait_for_timeout(4000)
            target: Path = TARGET / f"{name}-{theme}.png"
            page.screenshot(path=target)
            print(target.relative_to(ROOT))
        browser.close()


if __name__ == "__main__":
    main()
