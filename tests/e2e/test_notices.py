"""In a real browser: an admin makes a webhook, sends it a test and reads the log; a person sees at the bell, while the
page is open, that a job failed."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.notices.events import event_record
from agentcore_site.notices.models import SiteEvent, WebhookDelivery
from tests.e2e.test_launch import chrome, sign_in
from tests.e2e.test_suites import shot
from tests.notices.conftest import receiver
from tests.support.browser import Watched
from tests.support.receiver import WebhookReceiver
from tests.support.workers import LiveSite, eventually

pytestmark = pytest.mark.thorough(reason="a browser")

__all__ = ["chrome", "receiver"]


def test_a_webhook_is_made_tested_and_called_and_the_bell_rings(
    live_site: LiveSite, adam: Any, acme: Any, receiver: WebhookReceiver, chrome: Any
) -> None:
    for scheme, width in (("light", 1440), ("dark", 390)):
        watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = watched.page
        sign_in(page, live_site, "adam")
        page.goto(f"{live_site.url}/webhooks/")
        shot(page, f"webhooks-{scheme}-{width}")
        page.goto(f"{live_site.url}/webhooks/new/")
        page.fill("[name=name]", f"hook-{width}")
        page.fill("[name=url]", receiver.url)
        shot(page, f"webhook-new-{scheme}-{width}")
        page.click("text=Create the webhook")
        page.wait_for_selector("text=shown once")
        shot(page, f"webhook-secret-{scheme}-{width}")
        page.click("text=Send a test")
        page.wait_for_selector("text=The webhook accepted the test in")
        shot(page, f"webhook-{scheme}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        text = f"The job of {width} failed."
        event_record(acme, "job.failed", text=text, data={"how": "Look at it."}, path="/jobs/", owner=adam)
        # The site's own beat and worker make the notice; the page asks by itself.
        page.wait_for_selector("#bell >> text=/Notifications, \\d+ unread/", state="attached", timeout=60_000)
        event = SiteEvent.objects.get(text=text)
        taken = WebhookDelivery.objects.filter(event=event).exclude(taken_at=None)
        eventually(taken.exists, seconds=30, why="the delivery")
        page.click("#bell")
        page.wait_for_selector(f"text={text}")
        shot(page, f"notices-{scheme}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("text=Mark all as read")
        page.wait_for_selector("#bell >> text=Notifications, none unread", state="attached")
        for path in ("notices/settings/", "summary/", "share-links/"):
            page.goto(f"{live_site.url}/{path}")
            shot(page, f"{path.split('/')[0]}-{path.split('/')[1]}-{scheme}-{width}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert watched.complaints == []
    assert len(receiver.bodies()) >= 4
