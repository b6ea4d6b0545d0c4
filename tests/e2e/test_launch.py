"""One person's way through the console in a real browser: sign in, launch, watch it live, read the proof."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.services import share_create, share_revoke_all
from experiences.agents.services.agents import agent_update
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from tests.factories import PASSWORD
from tests.support.browser import Watched, browser
from tests.support.running import SMALL_POOL
from tests.support.workers import LiveSite
from training.services.runs import run_start

pytestmark = pytest.mark.thorough(reason="a browser")

FINISHED_MS = 120_000


@pytest.fixture
def chrome() -> Iterator[Any]:
    # Playwright's loop runs in this thread; Django would refuse its own synchronous calls beside it.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with browser() as running:
            yield running
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def sign_in(page: Any, site: LiveSite, name: str, home: str = "") -> None:
    page.goto(f"{site.url}/sign-in/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("text=Sign in")
    page.wait_for_url(f"{site.url}/{home}")


def test_console_launches_follows_live_and_proves(live_site: LiveSite, olivia: Any, agent: Agent, chrome: Any) -> None:
    agent_update(olivia, agent, environment_options=SMALL_POOL)
    watched = Watched(chrome.new_page())
    page = watched.page
    sign_in(page, live_site, "olivia")

    # The plan follows what is typed, and says what is wrong before anything is started.
    page.goto(f"{live_site.url}/launch/")
    page.click("text=Advanced settings")
    page.fill("[name=n_iterations]", "many")
    page.wait_for_selector("#plan >> text=must be a whole number")
    page.fill("[name=n_iterations]", "60")
    page.wait_for_selector("#plan >> text=60 × 4 queries × 4 rollouts")
    page.click("#plan button")

    # The job's page is live: figures, curves and status change without a reload.
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/"))
    page.evaluate("window.neverReloaded = true")
    page.wait_for_selector(".live[data-state=live]", timeout=FINISHED_MS)
    page.wait_for_selector("[data-chart=success] canvas", timeout=FINISHED_MS)
    page.wait_for_selector("#head[data-status=completed]", timeout=FINISHED_MS)
    page.wait_for_selector("#head >> text=held-out queries", timeout=FINISHED_MS)
    page.wait_for_selector(".live[data-state=finished]", timeout=FINISHED_MS)
    assert page.evaluate("window.neverReloaded") is True
    assert page.locator(".plot canvas").count() == 6

    # From the proof to the queries that changed, and from there to both trajectories.
    page.click("nav.tabs >> text=Evaluation")
    page.click("#tab >> text=Held-out queries")
    page.wait_for_selector("svg.forest")
    page.click("text=side by side >> nth=0")
    page.wait_for_selector("table.columns")
    assert watched.complaints == []


def test_text_typed_while_an_answer_comes_stays(live_site: LiveSite, olivia: Any, agent: Agent, chrome: Any) -> None:
    dataset_create(olivia, name="Letters", rows=[{"query": f"{n} + 1?", "expected_outcome": n + 1} for n in range(20)])
    agent_update(olivia, agent, environment="dataset", environment_options={})
    watched = Watched(chrome.new_page())
    page = watched.page
    sign_in(page, live_site, "olivia")
    page.goto(f"{live_site.url}/launch/?agent={agent.pk}")
    page.route("**/launch/data/", lambda route: (page.wait_for_timeout(600), route.continue_()))
    with page.expect_response("**/launch/data/"):
        page.select_option("select[name=dataset]", index=1)
        page.click("text=Advanced settings")
        page.fill("[name=n_iterations]", "77")
        page.fill("[name=max_budget_usd]", "3")
    page.wait_for_selector("#plan >> text=77 ×")
    assert page.input_value("[name=max_budget_usd]") == "3"


def test_console_works_without_a_mouse_and_on_a_phone(
    live_site: LiveSite, olivia: Any, agent: Agent, chrome: Any
) -> None:
    phone = chrome.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = phone.new_page()
    sign_in(page, live_site, "olivia")
    for path in ("/", "/agents/", "/jobs/", "/launch/", "/trajectories/", "/evaluations/", f"/agents/{agent.slug}/"):
        page.goto(f"{live_site.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path

    page.goto(f"{live_site.url}/agents/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_site.url}/agents/{agent.pk}/")

    # The palette: Enter means what was typed, also before its answer came; pages and actions are found as well.
    page.goto(f"{live_site.url}/jobs/")
    page.keyboard.press("Control+k")
    page.keyboard.type(agent.slug)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_site.url}/agents/{agent.pk}/")
    page.keyboard.press("Control+k")
    page.keyboard.type("data")
    page.wait_for_selector("#palette [data-for=data] >> text=Datasets")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_site.url}/datasets/new/")  # the second: a name that begins so comes first
    page.keyboard.press("Control+k")
    page.keyboard.type("data")
    page.wait_for_selector("#palette [data-for=data] >> text=Datasets")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_site.url}/datasets/")
    # The dialog shows the keys that do something on its page: an empty list has no rows to go through.
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")
    assert not page.is_visible("#keys >> text=next and previous row")
    page.goto(f"{live_site.url}/agents/")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open] >> text=next and previous row")
    assert not page.is_visible("#keys >> text=choose the row")  # no row of this list is chosen for anything
    page.keyboard.press("Escape")
    page.goto(f"{live_site.url}/agents/")
    page.type("[placeholder='Search agents']", "?")
    assert page.locator("#keys[open]").count() == 0


def test_a_shared_page_is_live_and_ends_with_its_link(
    live_site: LiveSite, olivia: Any, agent: Agent, chrome: Any
) -> None:
    # Scheduled far away: the job stays queued while the stakeholder looks.
    later = timezone.now() + timedelta(days=300)
    run = run_start(olivia, agent=agent, environment_options=SMALL_POOL, not_before=later)
    token = share_create(olivia, run.job)
    page = chrome.new_page()
    page.goto(f"{live_site.url}/shared/{token}/")
    page.wait_for_selector(".live[data-state=live]", timeout=FINISHED_MS)
    assert page.locator("main a, main button").count() == 0

    share_revoke_all(olivia, run.job)
    page.wait_for_selector("text=no longer available", timeout=FINISHED_MS)
    assert Client().get(f"/shared/{token}/").status_code == 404
