"""The Django admin in a real browser, under its content security policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcore_site.tenancy.models import Organization
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import Chain
from tests.budgets.conftest import chain, job  # noqa: F401  (fixtures)
from tests.budgets.support import bill, hold
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401  (a fixture)
from tests.support.accessibility import violations_everywhere
from tests.support.browser import Watched
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")


def test_the_admin_works_under_a_policy_of_its_own(live_site: LiveSite, adam: Any, agent: Any, chrome: Any) -> None:  # noqa: F811
    watched = Watched(chrome.new_page())
    page = watched.page
    sign_in(page, live_site, "adam")
    for path in (
        "/admin/",
        "/admin/experiences/agent/",
        "/admin/experiences/agent/add/",
        f"/admin/experiences/agent/{agent.pk}/change/",
        "/admin/tenancy/membership/add/",
        "/admin/jobs/job/",
        "/admin/auth/user/",
    ):
        answer = page.goto(f"{live_site.url}{path}", wait_until="networkidle")
        policy = answer.headers["content-security-policy"]
        assert answer.status == 200 and "script-src 'self' 'unsafe-eval'" in policy, path
        assert "'unsafe-inline'" not in policy.split("style-src-attr")[0] and "frame-ancestors 'none'" in policy
        assert watched.complaints == [], path


def test_axe_finds_nothing_on_the_admins_pages(
    live_site: LiveSite,
    adam: Any,
    acme: Organization,
    chain: Chain,  # noqa: F811
    chrome: Any,  # noqa: F811
) -> None:
    reserve(hold(chain, "a", 300_000))
    settle("a", bill(250_000))
    page = chrome.new_page()
    sign_in(page, live_site, "adam")
    broken = {}
    for path in (
        "/admin/",
        "/admin/records/?q=acme",
        "/admin/records/?q=nowhere",
        "/admin/budgets/budget/",
        f"/admin/budgets/budget/{chain.organization_budget}/change/?would_limit=0.1",
        "/admin/budgets/ledgerentry/",
        "/admin/experiences/agent/add/",
    ):
        page.goto(f"{live_site.url}{path}", wait_until="networkidle")
        if found := violations_everywhere(page):
            broken[path] = found
    assert broken == {}


def test_a_chart_is_read_by_keyboard_and_saved_as_an_image(
    live_site: LiveSite,
    adam: Any,
    chain: Chain,  # noqa: F811
    chrome: Any,  # noqa: F811
) -> None:
    reserve(hold(chain, "a", 300_000))
    settle("a", bill(250_000))
    watched = Watched(chrome.new_page())
    page = watched.page
    sign_in(page, live_site, "adam")
    page.goto(f"{live_site.url}/admin/budgets/budget/{chain.job_budget}/change/", wait_until="networkidle")
    plot = page.get_by_role("slider")
    assert "Spending of the job" in plot.get_attribute("aria-label")
    assert "Spent in all: $0.25; Limit: $1" in plot.get_attribute("aria-valuetext")
    plot.focus()
    plot.press("Home")
    assert "Spent in all: $0;" in plot.get_attribute("aria-valuetext")
    assert page.locator(".u-legend .u-value").nth(1).inner_text() == "$0"
    plot.press("ArrowRight")
    assert page.locator(".u-legend .u-value").nth(1).inner_text() == "$0.25"
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save image").click()
    assert saved.value.suggested_filename == "spending-of-the-job.png"
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    assert watched.complaints == []


def test_the_consoles_theme_is_the_admins(live_site: LiveSite, adam: Any, chrome: Any) -> None:  # noqa: F811
    page = chrome.new_page()
    page.emulate_media(color_scheme="light")
    sign_in(page, live_site, "adam")
    page.locator("[data-theme-switch]").click()
    page.goto(f"{live_site.url}/admin/", wait_until="networkidle")
    assert page.evaluate("document.documentElement.classList.contains('dark')")
    page.keyboard.press("Control+e")  # the theme's own switch
    page.wait_for_function("localStorage.getItem('theme') === 'light'")
    page.goto(f"{live_site.url}/", wait_until="networkidle")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
