"""The Django admin in a real browser, under its content security policy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.test_launch import chrome, sign_in  # noqa: F401  (a fixture)
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
