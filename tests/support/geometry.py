"""Elements of a page in a browser that lie outside of their place, and targets that are too small to hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

# Widths of phones, tablets and desks. 320 is what a desk of 1280 shows at 400 %, 640 at 200 % (WCAG 1.4.10).
WIDTHS: Final = (320, 360, 390, 640, 768, 1024, 1100, 1280, 1440, 1920)

EXAMINE: Final = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
# A chart draws itself again for a new width in the next frames.
SETTLED: Final = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"
)


def misplaced(page: Any) -> list[str]:
    """Elements of the page that stick out or are too small to hit, at each width of ``WIDTHS``."""
    found: list[str] = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(SETTLED)
        found += [f"{width} px: {one}" for one in page.evaluate(EXAMINE)[:8]]
    return found
