"""A headless browser for pages: what a page asks of the network, and every error of its scripts, is kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium of this machine; skips the test, with the reason, where it or its driver is missing."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium")
    with driver.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Visit:
    """A page opened at a width and in a theme, its figures drawn."""

    def __init__(self, chromium: Any, file: Path, width: int = 1400, theme: str = "light", **options: Any) -> None:
        self.problems: list[str] = []
        self.page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.goto(file.absolute().as_uri())

    def wait(self) -> "Visit":
        """Wait until every figure is drawn."""
        self.page.wait_for_selector("html[data-drawn]", state="attached")
        return self

    def settle(self) -> None:
        """Wait until what was clicked has been drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")

    def blank(self) -> list[str]:
        """The figures in which nothing can be seen."""
        found: list[str] = self.page.evaluate(
            """() => [...document.querySelectorAll("figure")].filter((figure) => {
                const box = figure.querySelector(".plot svg.main-svg")?.getBoundingClientRect();
                const drawn = figure.querySelectorAll(".plot .trace, .plot .point").length;
                return !(box && box.width > 100 && box.height > 50 && drawn > 0);
            }).map((figure) => figure.id)"""
        )
        return found

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        wider: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return max(wider, 0)

    def close(self) -> None:
        """Leave the page."""
        self.page.close()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.problems.append(f"request: {request.url}")
