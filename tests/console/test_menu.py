"""The menu: who sees which entry, and which one a page belongs to."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client
from django.urls import resolve, reverse

from agentcore_site.console.menu import ADMINISTRATION, PLACES, STAFF, menu
from agentcore_site.tenancy.roles import ROLE_MAY, Role
from tests.support.pages import html
from tests.support.routes import CONSOLE, filled, parameters

ID = "018f2e5a-0000-7000-8000-000000000000"
EVERY = PLACES + ADMINISTRATION
# Pages that belong to another entry than the one their address begins with: the noun they are about has it.
ELSEWHERE = {
    rf"/agents/{ID}/playbook/": "Playbooks",
    rf"/agents/{ID}/(serving|loop|return)/": "Deployments",
    "/checkpoints/": "Jobs",
    "/evolutions/": "Playbooks",
    "/executions/": "Playbooks",
    "/grader/": "Evaluations",
    "/prompt-packs/": "Lessons",
    "/skills/": "Releases",
    "/suite-runs/": "Suites",
}


def current(path: str) -> list[str]:
    return [one.label for one in EVERY if one.is_current(path)]


def labels(may: frozenset[str], *, staff: bool = False) -> list[list[str]]:
    return [[one.entry.label for one in section] for section in menu("/", may, staff=staff, waiting=lambda: 0)]


def test_a_page_belongs_to_the_entry_that_its_address_begins_with() -> None:
    homes = {reverse(one.url_name).split("/")[1]: one.label for one in EVERY if one.pages}
    for route in sorted(CONSOLE):
        path = filled(route, dict.fromkeys(parameters(route), ID))
        own = [label for start, label in ELSEWHERE.items() if re.match(start, path)]
        home = homes.get(path.split("/")[1])
        assert current(path) == (own or ([home] if home else [])), path


def test_each_entry_leads_to_a_page_of_its_own() -> None:
    for one in EVERY:
        path = reverse(one.url_name)
        assert resolve(path) and (one.needs == STAFF or current(path) == [one.label])


def test_people_see_the_entries_that_their_role_allows() -> None:
    everywhere, administration = labels(ROLE_MAY[Role.ADMIN], staff=True)
    assert everywhere[-1] == "Budgets" and administration == [
        *("People", "Audit log", "Webhooks", "Storage", "Encryption", "System", "Admin")
    ]
    (only,) = labels(frozenset({"view"}))
    assert "Review queue" in only and "Budgets" not in only


def test_waiting_proposals_are_counted_only_for_people_who_may_decide() -> None:
    asked: list[bool] = []

    def waiting() -> int:
        asked.append(True)
        return 3

    assert not any(one.waiting for section in menu("/", {"view"}, staff=False, waiting=waiting) for one in section)
    assert not asked
    (shown,) = menu("/", {"view", "playbook.edit"}, staff=False, waiting=waiting)
    assert [(one.entry.label, one.waiting) for one in shown if one.waiting] == [("Review queue", 3)]


def test_the_menu_of_a_page_marks_its_place(console: Client, stella: Any, signed_in: Any) -> None:
    shown = html(console.get("/jobs/"))
    assert 'href="/jobs/" aria-current="page"' in shown and shown.count('aria-current="page"') == 1
    assert 'href="/admin/"' not in html(signed_in(stella).get("/"))
