"""Pages and admin forms with values that they don't expect, in small: ``make bench ARGS=fuzz`` asks many times more."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import Role
from tests import factories
from tests.support.playbooks import playbook_of
from tests.support.rounds import one_in, rounds
from tests.support.routes import CONSOLE, parameters
from tests.support.rows import lived_run
from tests.support.walking import Page, hostile_form, hostile_query, leaves

pytestmark = [pytest.mark.django_db, pytest.mark.rounds]

EACH = rounds(1, 2)  # queries of a page, forms of a list


@pytest.fixture
def browser(acme: Organization, operator: Actor, agent: Any) -> Client:
    """Staff and admin of an organisation with a finished run and a playbook."""
    lived_run(operator, agent)
    playbook_of(operator, agent)
    boss = factories.UserFactory(username="boss", is_staff=True)
    factories.MembershipFactory(organization=acme, user=boss, role=Role.ADMIN)
    client = Client(raise_request_exception=False)
    client.force_login(boss)
    return client


def read(browser: Client, path: str) -> Page:
    answer = browser.get(path)
    assert answer.status_code == 200, path
    return Page(path, answer.content.decode())


def test_no_query_parameter_breaks_a_page_of_the_console(browser: Client) -> None:
    chance = random.Random(1)
    for path in one_in(4, sorted(f"/{route}" for route in CONSOLE if not parameters(route))):
        answer = browser.get(path)
        shown = answer.status_code == 200 and answer["Content-Type"].startswith("text/html")
        page = Page(path, answer.content.decode() if shown else "")
        for _ in range(EACH if shown else 0):
            query = hostile_query(page, chance)
            assert browser.get(path, query).status_code < 500, (path, query)


def test_no_value_breaks_a_form_of_the_admin(browser: Client) -> None:
    chance = random.Random(2)
    lists = sorted(link for link in read(browser, "/admin/").links if link.count("/") == 4 and not leaves(link))
    assert len(lists) >= 10
    for path in one_in(4, lists):
        page = read(browser, path)
        rows = sorted(link for link in page.links if link.endswith(("/add/", "/change/")) and link.startswith(path))
        for link in chance.sample(rows, min(EACH, len(rows))):
            for form in [one for one in read(browser, link).forms if one.method == "post" and not leaves(one.action)]:
                sent, files = hostile_form(form, chance)
                uploads = {name: SimpleUploadedFile(file or "a", content) for name, (file, content) in files.items()}
                answer = browser.post(form.action, dict(sent) | uploads)
                assert answer.status_code < 500, (form.action, sent)
