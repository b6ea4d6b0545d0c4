"""In a real browser: a list is ordered by a column's head, what it shows is saved and opened again, and a job is pinned
by the keyboard."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.factories import AgentFactory
from tests.support.browser import Watched
from tests.support.rows import lived_run
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")

LEADS = "[data-row] td.lead > a"


def test_a_view_is_saved_and_opened_and_a_job_pinned_by_the_keyboard(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
) -> None:
    actor = Actor(olivia)
    for name in ("Careful", "Bold"):
        lived_run(actor, AgentFactory(organization=acme, created_by=olivia, name=name, slug=name.lower()))
    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")

    def rows() -> list[str]:
        return [one.strip() for one in page.locator(LEADS).all_text_contents()]

    page.goto(f"{live_site.url}/jobs/")
    assert rows() == ["Train Bold", "Train Careful"]
    page.click("th >> text=Started")
    page.wait_for_url("**sort=oldest**")
    assert page.get_attribute("th:has-text('Started')", "aria-sort") == "ascending"
    assert rows() == ["Train Careful", "Train Bold"]

    # The search swaps the list alone: what is saved is what is shown then.
    page.fill(".search input[name=q]", "Careful")
    page.wait_for_url("**q=Careful**")
    page.wait_for_function("document.querySelectorAll('[data-row]').length === 1")
    page.click("text=Save this view")
    page.fill(".saver[open] [name=name]", "My careful ones")
    page.check(".saver[open] [name=opens]")
    page.click(".saver[open] button:has-text('Save')")
    page.wait_for_selector(".views .chip[aria-current]:has-text('My careful ones')")
    page.goto(f"{live_site.url}/jobs/")
    assert rows() == ["Train Careful"] and page.input_value(".search input[name=q]") == "Careful"
    page.click(".views >> text=Everything")
    page.wait_for_url("**view=all**")
    assert rows() == ["Train Bold", "Train Careful"]

    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("p")
    page.wait_for_selector("[data-pin][aria-pressed=true]")
    assert rows() == ["Train Careful", "Train Bold"] and "view=all" in page.url
    page.focus("[data-pin][aria-pressed=true]")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-pin][aria-pressed=true]", state="detached")
    assert rows() == ["Train Bold", "Train Careful"]
    assert watched.complaints == []
