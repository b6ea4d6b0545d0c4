"""``python -m tests.support.pictures docs/pictures``: the pictures of README.md and of docs/ (``make pictures``).

Starts the product on a temporary folder, waits for the demo's job and its evaluation, and takes screenshots with
Chromium. The loop is drawn from the states of a turn. Raises ValueError for a file of 200 KB or more.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image

from agentcore_site.embedded.ports import free_port
from tests.support.browser import browser
from tests.support.up import Up

MOST_BYTES: Final = 200_000
COLOURS: Final = 128
SIZE: Final = {"width": 1440, "height": 900}
DONE: Final = "the demo's job is done"
DEMO_SECONDS: Final = 600
STEPS: Final = (
    ("Traces", "production and feedback"),
    ("Review", "flagged rows wait"),
    ("Training", "a job and its proof"),
    ("Gate", "suites, statistics, approval"),
    ("Canary", "promoted or rolled back"),
)
STYLE: Final = """
text { font: 600 15px system-ui, sans-serif; text-anchor: middle; fill: #1d2733 }
text.note { font-weight: 400; font-size: 12px; fill: #55616e }
rect { fill: #fff; stroke: #3f51b5; stroke-width: 1.5 }
path { fill: none; stroke: #7a8794; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee } text.note { fill: #aab4c0 } rect { fill: #1c232c; stroke: #8c9eff } path { stroke: #8b97a3 }
}
"""


def loop() -> str:
    """The circle from production to a new release, as an SVG."""
    middle, across, down, width, height = (380, 190), 250, 135, 216, 58
    parts, places = [], []
    for number, (name, note) in enumerate(STEPS):
        angle = 2 * math.pi * number / len(STEPS) - math.pi / 2
        x, y = round(middle[0] + across * math.cos(angle)), round(middle[1] + down * math.sin(angle))
        places.append((x, y))
        parts.append(
            f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="8"/>'
            f'<text x="{x}" y="{y - 4}">{name}</text><text class="note" x="{x}" y="{y + 16}">{note}</text>'
        )
    arrows = []
    for (x1, y1), (x2, y2) in zip(places, places[1:] + places[:1], strict=True):
        arrows.append(
            f'<path d="M{x1} {y1} L{(x1 + x2) / 2:.0f} {(y1 + y2) / 2:.0f} L{x2} {y2}" marker-mid="url(#to)"/>'
        )
    marker = '<marker id="to" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="9" markerHeight="9" orient="auto">'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 370" role="img" aria-label="The learning loop">\n'
        f"<style>{STYLE}</style>\n<defs>{marker}<path d='M1 1 L6 4 L1 7'/></marker></defs>\n"
        + "\n".join([*arrows, *parts])
        + "\n</svg>\n"
    )


def wait_for_demo(up: Up) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + DEMO_SECONDS
    while DONE not in up.tail():
        if time.monotonic() > deadline or up.process.poll() is not None:
            raise TimeoutError(f"The demo's job did not end:\n{up.tail()}")
        time.sleep(1)


def picture(page: Any, path: Path) -> None:
    """Writes the visible part of the page as a PNG with few colours."""
    image = Image.open(BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if (size := path.stat().st_size) >= MOST_BYTES:
        raise ValueError(f"{path} has {size} bytes; fewer than {MOST_BYTES} are allowed")


def console(folder: Path) -> None:
    """The job page, the list of trajectories and one trajectory, as olivia sees them after the demo."""
    with tempfile.TemporaryDirectory() as temporary:
        data, port = Path(temporary) / "data", free_port(0)
        up = Up(data, "--demo", "--seed", "1", "--port", str(port))
        try:
            wait_for_demo(up)
            people = (data / "secrets" / "demo-users.txt").read_text(encoding="utf-8")
            password = re.search(r"^olivia: (\S+)", people, re.MULTILINE)
            assert password is not None
            with browser() as running:
                page = running.new_page(viewport=SIZE)
                site = f"http://127.0.0.1:{port}"
                page.goto(f"{site}/sign-in/")
                page.fill("[name=username]", "olivia")
                page.fill("[name=password]", password[1])
                page.click("text=Sign in")
                page.wait_for_url(f"{site}/")
                for name, first in (("job", "/jobs/"), ("trajectory", "/trajectories/")):
                    page.goto(site + first)
                    match = re.search(rf'href="({first}[0-9a-f-]{{36}}/)"', page.content())
                    assert match is not None, f"{first} has no entry"
                    page.goto(site + match[1])
                    page.wait_for_timeout(1500)
                    picture(page, folder / f"{name}.png")
        finally:
            up.stop()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "loop.svg").write_text(loop(), encoding="utf-8")
    console(folder)
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
