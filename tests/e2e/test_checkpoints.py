"""In a real browser: a checkpoint is downloaded, comes back with a byte changed and as it was, is promoted, and rolled
back; wide and narrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.evaluation.serving.test_promotion import trained
from tests.factories import AgentFactory
from tests.support.browser import Watched
from tests.support.workers import LiveSite
from training.services.promotion import promoted

pytestmark = pytest.mark.thorough(reason="a browser")


def test_a_checkpoint_goes_out_and_comes_back(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    agent: Agent = AgentFactory(organization=acme, created_by=olivia, name="Router", slug="router")
    twin: Agent = AgentFactory(organization=acme, created_by=olivia, name="Twin", slug="twin")
    first, second = (trained(Actor(olivia), agent, weight) for weight in (0.25, 0.5))
    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")

    page.goto(f"{live_site.url}/checkpoints/?agent={agent.pk}")
    beyond = "card => card.querySelector('table').scrollWidth - card.clientWidth"
    assert page.locator(".card:has(table)").first.evaluate(beyond) <= 0
    page.click(f"button:has-text('Actions of {first.label}')")
    menu = page.locator(".row-menu:popover-open")
    assert menu.locator("a").all_inner_texts() == ["Evaluate…", "Try it", "Release…", "Promote…", "Download"]
    box = menu.bounding_box()
    assert box and 0 <= box["x"] <= 1440 - box["width"] and 0 <= box["y"] <= 900 - box["height"]
    with page.expect_download() as downloading:
        menu.get_by_text("Download").click()
    whole = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(whole)
    changed = tmp_path / f"changed-{whole.name}"
    data = bytearray(whole.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)

    page.goto(f"{live_site.url}/checkpoints/?agent={twin.pk}")
    for file, problem in ((changed, "at least one byte differs"), (whole, "was uploaded")):
        if page.locator("#file").is_hidden():
            page.click("summary:has-text('Upload a checkpoint')")
        page.set_input_files("#file", file)
        page.click('button:text-is("Upload")')
        page.wait_for_selector(f"text={problem}")

    for one in (first, second):
        page.goto(f"{live_site.url}/checkpoints/{one.pk}/promote/")
        page.fill("#note", "It is good")
        page.click(f"button:has-text('Promote {one.label}')")
        page.wait_for_selector(f"text=Router uses {one.label} now")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path in (f"/checkpoints/?agent={agent.pk}", f"/agents/{agent.pk}/roll-back/", "/checkpoints/"):
            page.goto(f"{live_site.url}{path}")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (width, path)
    page.goto(f"{live_site.url}/checkpoints/?agent={agent.pk}")
    page.click(f"text=Roll back to {first.label}")
    page.click(f"button:has-text('Roll back to {first.label}')")
    page.wait_for_selector(f"text=Router uses {first.label} now")
    assert promoted(agent) == first
    assert not [one for one in watched.complaints if "400" not in one]
