"""A person accepts an invitation in a real browser, which sends what a test client does not: an origin and cookies."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.identity.invitations import invitation_create
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership, Organization
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.support.workers import Fleet, LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")


@pytest.fixture
def web(fleet: Fleet) -> LiveSite:
    """The real server alone: no job runs here."""
    return LiveSite(f"http://127.0.0.1:{fleet.web()}", fleet)


def invited(adam: Any, acme: Organization, site: LiveSite, email: str) -> str:
    """The link of an invitation, as its mail has it."""
    links: list[str] = []

    def link(token: str) -> str:
        links.append(f"{site.url}/invitations/{token}/")
        return links[-1]

    invitation_create(Actor(adam), acme, email=email, role="developer", link=link)
    return links[0]


def test_people_with_and_without_an_account_accept(
    web: LiveSite,
    acme: Organization,
    adam: Any,
    charlie: Any,
    chrome: Any,  # noqa: F811
) -> None:
    page = chrome.new_context().new_page()
    page.goto(invited(adam, acme, web, "nina@example.com"))
    page.fill("[name=password]", "short")
    page.click("text=Create an account and accept")
    page.wait_for_selector(".problem")
    page.fill("[name=password]", "correct-horse-battery-9")
    page.click("text=Create an account and accept")
    page.wait_for_url(f"{web.url}/")
    page.wait_for_selector("text=Welcome")
    assert Membership.objects.get(organization=acme, user__email="nina@example.com").role == "developer"

    page = chrome.new_context().new_page()
    sign_in(page, web, "charlie")
    page.goto(invited(adam, acme, web, charlie.email or "charlie@example.com"))
    page.click("text=Accept")
    page.wait_for_url(f"{web.url}/")
    assert Membership.objects.filter(organization=acme, user=charlie).exists()
