"""In a real browser: the palette does what the page's own buttons do, and `?` names the keys of the page."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.factories import AgentFactory
from tests.support.browser import Watched
from tests.support.rows import lived_run
from tests.support.workers import LiveSite, eventually
from training.models import TrainingRun

pytestmark = pytest.mark.thorough(reason="a browser")

OWN = "#palette .palette-hit:not([href])"


@pytest.fixture
def run(transactional_db: None, operator: Actor, acme: Any, olivia: Any) -> TrainingRun:
    run = lived_run(operator, AgentFactory(organization=acme, created_by=olivia))
    Job.objects.filter(pk=run.pk).update(status="paused", status_reason="user", finished_at=None)
    return run


def _asked(page: Any, typed: str) -> list[str]:
    """Names of the page's own entries in the palette for these words."""
    page.keyboard.press("Control+k")
    page.keyboard.type(typed)
    page.wait_for_selector(f"#palette [data-for='{typed}']")
    return [" ".join(one.split()) for one in page.locator(OWN).all_text_contents()]


def test_the_palette_does_what_buttons_of_the_page_do(
    web: LiveSite,  # noqa: F811
    run: TrainingRun,
    chrome: Any,  # noqa: F811
) -> None:
    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, web, "olivia")
    page.goto(f"{web.url}/jobs/{run.pk}/")

    # Without a word nothing is chosen: Enter does nothing.
    page.keyboard.press("Control+k")
    page.wait_for_selector(f"{OWN} >> text=Resume")
    assert page.locator(".palette-hit[aria-selected=true]").count() == 0
    page.keyboard.press("Enter")
    assert page.is_visible("#palette")
    page.keyboard.press("Escape")
    assert not page.is_visible("#palette")

    # A button that asks first asks here too, and a tab is followed.
    assert _asked(page, "share") == ["Share"]
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog#share[open]")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "share-open"
    _asked(page, "trajectories")
    page.click(f"{OWN} >> text=Trajectories")
    page.wait_for_url("**tab=trajectories**")

    # An action is never done unseen: Enter before the answer only shows it.
    page.keyboard.press("Control+k")
    page.keyboard.type("resume")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{OWN}[aria-selected=true] >> text=Resume")
    chosen = page.get_attribute("#palette input", "aria-activedescendant")
    assert page.locator(f"#{chosen}").inner_text().strip() == "Resume"
    assert Job.objects.get(pk=run.pk).status == "paused"
    page.keyboard.press("Enter")
    eventually(lambda: Job.objects.get(pk=run.pk).status != "paused", why="the job is resumed")
    assert watched.complaints == []


def test_the_palette_offers_nothing_that_the_person_may_not_do(
    web: LiveSite,  # noqa: F811
    run: TrainingRun,
    stella: Any,
    chrome: Any,  # noqa: F811
) -> None:
    page = chrome.new_page(viewport={"width": 1440, "height": 900})
    sign_in(page, web, "stella", "summary/")  # the first page of people who only read
    page.goto(f"{web.url}/jobs/{run.pk}/")
    page.wait_for_selector("#head .verdict")
    assert _asked(page, "resume") == []


def test_the_list_of_keys_is_of_the_page_and_gives_the_focus_back(
    web: LiveSite,  # noqa: F811
    run: TrainingRun,
    chrome: Any,  # noqa: F811
) -> None:
    page = chrome.new_page(viewport={"width": 1440, "height": 900})
    sign_in(page, web, "olivia")
    page.goto(f"{web.url}/jobs/")
    page.focus("[data-pin]")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open] >> text=pin or unpin the row")
    assert not page.is_visible("#keys >> text=previous and next trajectory")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.hasAttribute('data-pin')")
    page.goto(f"{web.url}/jobs/{run.pk}/")
    page.focus("#comments textarea")
    page.keyboard.type("why?")
    assert page.input_value("#comments textarea") == "why?" and not page.is_visible("#keys")
    page.locator("#comments textarea").blur()
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")
    assert not page.is_visible("#keys >> text=search this list")
