"""In a real browser: a trajectory is annotated, found again and added to a dataset; its steps as a tree and as a
waterfall, by the keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from experiences.models import DatasetRow, TrajectoryRecord
from tests import factories
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.support.browser import Watched
from tests.support.rows import lived_run
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")


def failed_one(acme: Any, olivia: Any) -> TrajectoryRecord:
    run = lived_run(Actor(olivia), factories.AgentFactory(organization=acme, created_by=olivia))
    rows = TrajectoryRecord.objects.filter(job_id=run.pk, success=False).first()
    assert rows is not None
    return rows


def test_a_person_annotates_filters_and_adds_to_a_dataset(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
) -> None:
    row = failed_one(acme, olivia)
    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")
    page.goto(f"{live_site.url}/trajectories/{row.pk}/")
    page.click("#annotations summary")
    page.fill("#annotations [name=label]", "off by one")
    page.fill("#annotations [name=answer]", "nought")
    page.click('#annotations button:text-is("Save")')
    page.wait_for_selector("#annotations >> text=off by one")

    page.goto(f"{live_site.url}/trajectories/")
    page.click(".filters summary")
    page.fill(".filters [name=label]", "off by one")
    page.click(".filters button")
    page.wait_for_selector("text=Label: off by one")
    assert page.locator("tr[data-row]").count() == 1
    page.click("text=Add to dataset…")
    page.fill("[name=name]", "mended sums")
    page.click("text=Create the version")
    page.wait_for_selector("text=Taken from annotated trajectories")
    assert DatasetRow.objects.get(dataset__name="mended sums").expected_outcome == {"answer": "nought"}
    assert watched.complaints == []


def test_tree_and_waterfall_are_walked_by_the_keyboard_and_fit_a_telephone(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
) -> None:
    row = failed_one(acme, olivia)
    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")
    page.goto(f"{live_site.url}/trajectories/{row.pk}/")
    page.locator("nav.tabs >> text=Tree").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("details.root[open]")
    page.locator("details.root > summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("details.root:not([open])")
    page.locator("nav.tabs >> text=Waterfall").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("table.waterfall")
    assert page.locator("svg.span-bar").count() == 2
    page.locator("table.waterfall tbody a").nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#step-2")
    assert "step=2" in page.url
    page.emulate_media(color_scheme="dark")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 844})
        for view in ("steps", "tree", "waterfall"):
            page.goto(f"{live_site.url}/trajectories/{row.pk}/?view={view}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (view, width)
    assert watched.complaints == []
