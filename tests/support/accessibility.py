"""Findings of axe-core on a page in a browser."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import axe_playwright_python

SIZES: Final = ((1440, 900), (390, 844))
THEMES: Final = ("light", "dark")

# Every rule of axe but those that it calls experimental: the levels A and AA of WCAG, and good practice.
RUN: Final = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map((one) => {
    const first = one.nodes[0];
    const why = first.any.map((check) => check.message).join("; ").slice(0, 160);
    return `${one.id} (${one.impact}): ${one.nodes.length} x ${first.target.join(" ")} ${why}`;
  });
}"""


@cache
def script() -> str:
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Any) -> list[str]:
    """The rules that the page breaks, each with its first element."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(script())
    result: list[str] = page.evaluate(RUN)
    return result


def violations_everywhere(page: Any) -> list[str]:
    """The same in both themes, on a desk and on a phone."""
    found = []
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found += [f"{width} {theme} {one}" for one in violations(page)]
    return found
