"""In a real browser: two jobs are compared within four clicks from the overview, and the address keeps what was
chosen."""

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


@pytest.mark.parametrize("width", [1440, 390])
def test_two_jobs_are_compared_within_four_clicks(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
    width: int,
) -> None:
    actor = Actor(olivia)
    for name in ("Careful", "Bold"):
        lived_run(actor, AgentFactory(organization=acme, created_by=olivia, name=name, slug=name.lower()))
    watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")
    if width < 760:
        page.click("[data-toggle=rail]")  # a phone's menu opens by one more
    page.click("#rail >> text=Jobs")
    assert page.is_disabled("text=Compare")
    page.check("[aria-label='Choose Train Careful']")
    page.check("[aria-label='Choose Train Bold']")
    assert page.text_content("[data-picked]") == "2 chosen"
    page.click("button:has-text('Compare')")
    page.wait_for_selector("text=Comparison of 2 jobs")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    page.select_option("[name=metric]", "reward_mean")
    page.wait_for_selector("#compared canvas")
    page.check("[name=axis][value=trajectories]", force=True)
    assert "metric=reward_mean" in page.url and "axis=trajectories" in page.url
    page.click("text=Values as a table")
    page.wait_for_selector("#compared .values th")
    assert [one.strip() for one in page.locator("#compared .values th").all_text_contents()] == [
        "Trajectories", "Train Bold", "Train Careful",
    ]  # fmt: skip
    page.reload()
    page.wait_for_selector("#compared canvas")
    assert page.input_value("[name=metric]") == "reward_mean"
    assert page.is_checked("[name=axis][value=trajectories]")
    page.click("text=move to first place")
    page.wait_for_selector("text=Comparison of 2 jobs")
    assert "metric=reward_mean" in page.url
    assert page.locator(".compared thead a").first.text_content().strip() == "Train Careful"
    assert watched.complaints == []
