"""A real Chromium for the browser test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
MISSING = "Chromium is not installed (package chromium), so pages were not tried in a browser."


def chromium() -> str:
    """The path of Chromium; without one the test is skipped, but in CI it fails."""
    result = next((path for name in NAMES if (path := shutil.which(name))), None)
    if result is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return result


class Watched:
    """A page, and everything that its console complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _on_console(self, message: Any) -> None:
        # An answer that a newer keystroke made worthless is aborted on purpose.
        if message.type == "error" and "htmx:sendAbort" not in message.text and "htmx:afterRequest" not in message.text:
            self.complaints.append(message.text)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium, driven by Playwright."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()
