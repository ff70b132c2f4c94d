"""Draws the pictures of README's example, by `make screenshots`: the report wide, in the dark and
on a phone, and the terminal.
"""

import io
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.text import Text

from research.printed_runs import COLUMNS, Run, runs
from research.stamp import ROOT

__all__ = ["main"]

DOCS = ROOT / "docs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""The names that Chromium has on different systems."""
_OPTIONS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


def main() -> None:
    """Run the example for the report and for the terminal, and draw the four pictures."""
    example, chromium = runs((ROOT / "README.md").read_text("utf-8"))[0], _chromium()
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        report, terminal = Path(folder, "index.html"), Path(folder, "terminal.svg")
        example.printed(["--html", folder])
        terminal.write_text(_terminal(example), "utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=_OPTIONS)
        wide = _opened(browser, report, 1280, 1900, "light")
        wide.click("#unfold")
        wide.screenshot(path=DOCS / "report-wide.png")
        dark = _opened(browser, report, 1280, 1100, "dark")
        dark.evaluate("document.getElementById('findings').scrollIntoView()")
        dark.screenshot(path=DOCS / "report-dark.png")
        narrow = _opened(browser, report, 390, 1100, "light")
        narrow.click("#statuses button:has-text('fails')")
        narrow.locator("#grid .cell.violated").first.click()
        narrow.screenshot(path=DOCS / "report-narrow.png")
        _opened(browser, terminal, *_size(terminal), "light").screenshot(
            path=DOCS / "terminal.png", omit_background=True
        )
        browser.close()


def _opened(browser: Browser, file: Path, width: int, height: int, scheme: Literal["light", "dark"]) -> Page:
    page = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
    ).new_page()
    page.goto(file.as_uri())
    return page


def _terminal(example: Run) -> str:
    """The run as rich draws it, in colours."""
    console = Console(record=True, width=int(COLUMNS), file=io.StringIO())
    console.print(Text.from_ansi(example.printed(FORCE_COLOR="1", TERM="xterm-256color")))
    return console.export_svg(title="attnspec verify my_kernels.py")


def _size(drawing: Path) -> tuple[int, int]:
    """The width and the height of an SVG."""
    matched = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing.read_text("utf-8"))
    assert matched is not None
    return round(float(matched[1])), round(float(matched[2]))


def _chromium() -> str:
    matched = next(filter(None, map(shutil.which, BROWSERS)), None)
    if matched is None:
        raise SystemExit("The pictures need Chromium: apt-get install chromium, or your system's package of it.")
    return matched


if __name__ == "__main__":
    main()
