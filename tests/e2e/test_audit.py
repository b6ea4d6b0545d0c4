"""In a real browser: an admin sends the audit log to a webhook, and reads how far it is; the site's own beat and worker
send it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.test_stream import Siem, siem
from tests.e2e.test_launch import chrome, sign_in
from tests.e2e.test_suites import shot
from tests.support.browser import Watched
from tests.support.workers import LiveSite, eventually

pytestmark = pytest.mark.thorough(reason="a browser")

__all__ = ["chrome", "siem"]


def test_the_log_goes_to_a_webhook(
    live_site: LiveSite,
    adam: Any,
    siem: Siem,
    chrome: Any,
) -> None:
    for scheme, width in (("light", 1440), ("dark", 390)):
        watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = watched.page
        sign_in(page, live_site, "adam")
        page.goto(f"{live_site.url}/audit/")
        shot(page, f"audit-{scheme}-{width}")
        page.get_by_role("link", name="Webhook", exact=True).click()
        if not siem.came:
            page.fill("[name=url]", siem.url)
            page.click("text=Save the destination")
            page.wait_for_selector("text=shown once")
            shot(page, f"audit-secret-{scheme}-{width}")
            eventually(lambda: siem.came, why="the first lines")
        page.click("text=Send a test")
        page.wait_for_selector("text=The webhook accepted the test.")
        page.wait_for_selector("text=up to date")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shot(page, f"audit-webhook-{scheme}-{width}")
        assert watched.complaints == []
    assert {line["action"] for line in siem.lines()} >= {"audit_stream.set"}
