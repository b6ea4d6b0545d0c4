"""In a real browser: a job's page shows what its address names on the first screen; times are in one's own zone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agentcore_site.notices.services import preferences_set
from agentcore_site.tenancy.actors import Actor
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.factories import AgentFactory
from tests.support.browser import Watched
from tests.support.rows import lived_run
from tests.support.workers import LiveSite
from training.models import TrainingRun

pytestmark = pytest.mark.thorough(reason="a browser")

# Where the tab's own content begins, in pixels from the top of the page: under the row of tabs.
CONTENT = "document.querySelector('#tab > .tabs').nextElementSibling.getBoundingClientRect().top + scrollY"

# Whether the tab that is open is on the screen with its whole name.
CURRENT = (
    "[document.querySelector('.tabs [aria-current]').getBoundingClientRect()]"
    ".every((tab) => tab.left >= 0 && tab.right <= innerWidth)"
)

# How far the row of tabs is moved, if it was at its beginning when a part of the page was replaced.
SETTLED = """(part) => {
    const row = document.querySelector(".tabs");
    row.scrollLeft = 0;
    document.querySelector(part).dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true }));
    return row.scrollLeft;
}"""


@pytest.fixture
def run(transactional_db: None, operator: Actor, acme: Any, olivia: Any) -> TrainingRun:
    return lived_run(operator, AgentFactory(organization=acme, created_by=olivia))


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_a_tab_begins_on_the_first_screen(
    web: LiveSite,  # noqa: F811
    run: TrainingRun,
    chrome: Any,  # noqa: F811
    width: int,
    height: int,
) -> None:
    watched = Watched(chrome.new_page(viewport={"width": width, "height": height}))
    page = watched.page
    sign_in(page, web, "olivia")
    for tab in ("charts", "groups", "trajectories", "failures", "checkpoints", "settings", "events"):
        page.goto(f"{web.url}/jobs/{run.pk}/?tab={tab}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("scrollY") == 0
        assert page.evaluate(CONTENT) < height, tab
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        assert page.evaluate(CURRENT) is True, tab
    # A part that is replaced elsewhere leaves the row where a person moved it.
    assert page.evaluate(SETTLED, "h1") == 0 and (page.evaluate(SETTLED, "#tab") > 0) is (width == 390)
    # The curves go with their tab and come back with it, on the axis that was chosen.
    page.click("nav.tabs >> text=Curves")
    page.wait_for_selector("[data-chart=success] canvas")
    page.check("[name=axis][value=trajectories]", force=True)
    page.click("nav.tabs >> text=Groups")
    page.wait_for_selector("table.grid")
    assert page.locator(".plot canvas").count() == 0
    page.click("nav.tabs >> text=Curves")
    page.wait_for_selector("[data-chart=success] canvas")
    assert page.locator(".plot canvas").count() == 6 and page.is_checked("[name=axis][value=trajectories]")
    page.go_back()
    page.wait_for_selector("table.grid")
    page.go_back()
    page.wait_for_selector("[data-chart=success] canvas")
    assert page.locator(".plot canvas").count() == 6
    assert watched.complaints == []


def test_times_are_in_ones_own_zone(web: LiveSite, run: TrainingRun, olivia: Any, acme: Any, chrome: Any) -> None:  # noqa: F811
    page = chrome.new_context(timezone_id="Asia/Tokyo").new_page()
    sign_in(page, web, "olivia")
    page.goto(f"{web.url}/jobs/")
    stamp = page.get_attribute("td time", "datetime")
    assert stamp.endswith("+00:00")
    form = r"\d{1,2} [A-Z][a-z]{2} \d{4}, \d\d:\d\d:\d\d "
    assert re.fullmatch(f"{form}GMT\\+9", page.get_attribute("td time", "title")), "the browser's, without a choice"
    page.goto(f"{web.url}/notices/settings/")
    assert page.input_value("[name=time_zone]") == "Asia/Tokyo"
    preferences_set(olivia, acme, whose="own", bell=[], mail=[], time_zone="America/Phoenix")
    page.goto(f"{web.url}/jobs/")
    assert re.fullmatch(f"{form}GMT-7", page.get_attribute("td time", "title"))


def test_the_search_of_a_phone_is_an_icon_that_opens_the_palette(
    web: LiveSite,  # noqa: F811
    olivia: Any,
    run: TrainingRun,
    chrome: Any,  # noqa: F811
) -> None:
    page = chrome.new_page(viewport={"width": 390, "height": 844})
    sign_in(page, web, "olivia")
    assert not page.is_visible("#top-search")
    page.click(".top-find")
    page.wait_for_selector("#palette[open]")
    page.keyboard.type("datas")
    page.wait_for_selector("#palette [data-for=datas] >> text=Datasets")
    page.click("#palette-hits a[href='/datasets/']")
    page.wait_for_url(f"{web.url}/datasets/")
