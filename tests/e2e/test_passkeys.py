"""A passkey in a real browser, with the virtual authenticator of its own developer tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentcore_site.tenancy.models import Passkey
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.factories import PASSWORD
from tests.support import workers
from tests.support.browser import Watched
from tests.support.workers import Fleet, LiveSite, free_port

pytestmark = pytest.mark.thorough(reason="a browser")


@pytest.fixture
def web(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveSite]:
    """The real server alone, which knows its own address."""
    port = free_port(0)
    monkeypatch.setattr(workers, "free_port", lambda _: port)
    fleet = Fleet()
    try:
        fleet.web(PUBLIC_URL=f"http://localhost:{port}")
        yield LiveSite(f"http://localhost:{port}", fleet)
    finally:
        fleet.stop()


def signed_out(page: Any) -> None:
    page.goto("about:blank")  # no answer that is on its way brings a cookie back
    page.context.clear_cookies()


def test_passkey_is_made_and_signs_in_alone_and_after_the_password(web: LiveSite, olivia: Any, chrome: Any) -> None:  # noqa: F811
    watched = Watched(chrome.new_context().new_page())
    page = watched.page
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    device = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
    }
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": device})
    sign_in(page, web, "olivia")
    page.goto(f"{web.url}/account/")
    page.fill("#passkey-name", "This laptop")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=This laptop signs you in")
    # The same device has one already, and says so.
    page.fill("#passkey-name", "Again")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=has a passkey of yours already")

    signed_out(page)
    page.goto(f"{web.url}/sign-in/?next=/people/roles/")
    page.click("text=Sign in by a passkey")
    page.wait_for_url(f"{web.url}/people/roles/")  # not the sign-in page, which has it as its next
    assert Passkey.objects.get(user=olivia).sign_count > 0

    signed_out(page)
    page.goto(f"{web.url}/sign-in/?next=/people/roles/")
    page.fill("[name=username]", "olivia")
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/sign-in/code/")
    page.click("text=Use a passkey")
    page.wait_for_url(f"{web.url}/people/roles/")  # not the sign-in page, which has it as its next
    assert watched.complaints == []
