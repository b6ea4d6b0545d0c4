"""A person sets up an authenticator in a real browser and signs in with it, by the keyboard alone."""

from __future__ import annotations

import re
from typing import Any

import pyotp
import pytest

from agentcore_site.tenancy.models import SecondFactor
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.factories import PASSWORD
from tests.support.browser import Watched
from tests.support.workers import Fleet, LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")


@pytest.fixture
def web(fleet: Fleet) -> LiveSite:
    """The real server alone: no job runs here."""
    return LiveSite(f"http://127.0.0.1:{fleet.web()}", fleet)


def test_an_authenticator_is_set_up_and_asked_for(web: LiveSite, olivia: Any, chrome: Any) -> None:  # noqa: F811
    watched = Watched(chrome.new_context().new_page())
    page = watched.page
    sign_in(page, web, "olivia")
    page.goto(f"{web.url}/account/")
    page.click("text=Set up an authenticator")
    page.wait_for_selector(".qr svg")
    secret = re.sub(r"\s", "", page.inner_text("code.wrap"))
    page.keyboard.type(pyotp.TOTP(secret).now())
    page.keyboard.press("Enter")
    page.wait_for_selector(".codes")
    recovery = page.inner_text(".codes li")

    page = chrome.new_context().new_page()
    page.goto(f"{web.url}/sign-in/?next=/people/roles/")
    page.fill("[name=username]", "olivia")
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/sign-in/code/")
    page.keyboard.type("000")
    page.keyboard.press("Enter")
    page.wait_for_selector(".problem")
    page.keyboard.type(recovery)
    page.keyboard.press("Enter")
    page.wait_for_url("**/people/roles/")
    assert len(SecondFactor.objects.get(user=olivia).recovery) == 9
    assert watched.complaints == []
