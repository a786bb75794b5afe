"""The pictures of a page that `mineru bench --html` or `mineru compare --html` wrote, as PNG files, by a real browser.

Usage: python -m benchmarks.pictures PAGE.html reports/pictures/NAME     (gives NAME-1.png, NAME-2.png …)

Needs Chromium and the `dev` extra.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Open the page and photograph each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("name", type=Path)
    options = parser.parse_args()
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise SystemExit(f"no browser: install one of {', '.join(BROWSERS)}")
    options.name.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1000, "height": 800}, color_scheme="light")
        page.goto(options.page.absolute().as_uri())
        for number, figure in enumerate(page.locator(".js-plotly-plot").all(), start=1):
            target = options.name.with_name(f"{options.name.name}-{number}.png")
            figure.screenshot(path=target)
            print(target)
        browser.close()


if __name__ == "__main__":
    main()
