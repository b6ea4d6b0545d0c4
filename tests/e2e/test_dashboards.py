"""Dashboards in a real browser: each chart is drawn from the table below it, at any width, light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from evaluation.warehouse.dashboards import DASHBOARDS
from evaluation.warehouse.rollups import roll_up
from experiences.models import Agent, TrajectoryRecord
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401  (a fixture)
from tests.evaluation.warehouse.rows import lived
from tests.support.browser import Watched
from tests.support.rows import lived_run
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")


@pytest.fixture(autouse=True)
def emptied(transactional_db: None) -> Iterator[None]:
    """Django doesn't know the table of trajectories, and doesn't empty it."""
    yield
    TrajectoryRecord.objects.all()._raw_delete("default")


def test_charts_are_drawn_of_tables(live_site: LiveSite, operator: Any, agent: Agent, chrome: Any) -> None:  # noqa: F811
    lived_run(operator, agent)
    for days in range(9):
        lived(agent, 40 + 10 * days, seed=days, began=timezone.now() - timedelta(days=days, hours=3))
    for arm in ("baseline", "trained"):
        lived(agent, 40, seed=5, purpose="evaluation", arm=arm, began=timezone.now() - timedelta(hours=3))
    roll_up()
    watched = Watched(chrome.new_page())
    page = watched.page
    sign_in(page, live_site, "olivia")
    for key in DASHBOARDS:
        for width in (1440, 390):
            for scheme in ("light", "dark"):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                page.goto(f"{live_site.url}/dashboards/{key}/", wait_until="networkidle")
                assert page.locator(".plot canvas").count() == page.locator(".plot").count() > 0
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (key, width)
                if folder := os.environ.get("SHOTS"):
                    page.screenshot(path=Path(folder) / f"{key}-{width}-{scheme}.png", full_page=True)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{live_site.url}/dashboards/rewards/", wait_until="networkidle")
    page.select_option("#agent", str(agent.pk))
    page.wait_for_url(f"**/dashboards/rewards/?period=month&agent={agent.pk}")
    page.locator(".chart-data summary").first.click()
    assert page.locator(".chart-data").first.locator("tbody tr").count() > 5
    assert watched.complaints == []
