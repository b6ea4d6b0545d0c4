"""The menu: who sees which entry, and which one a page belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import resolve, reverse

from agentcore_site.console.menu import ADMINISTRATION, PLACES, STAFF, menu
from agentcore_site.tenancy.roles import ROLE_MAY, Role
from tests.support.pages import html

ID = "018f2e5a-0000-7000-8000-000000000000"
EVERY = PLACES + ADMINISTRATION


def current(path: str) -> list[str]:
    return [one.label for one in EVERY if one.is_current(path)]


def labels(may: frozenset[str], *, staff: bool = False) -> list[list[str]]:
    return [[one.entry.label for one in section] for section in menu("/", may, staff=staff, waiting=lambda: 0)]


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/", "Overview"),
        ("/agents/", "Agents"),
        ("/agents/new/", "Agents"),
        (f"/agents/{ID}/", "Agents"),
        (f"/agents/{ID}/playbook/", "Playbooks"),
        (f"/agents/{ID}/playbook/items/s1/", "Playbooks"),
        ("/jobs/launch/", "Jobs"),
        ("/checkpoints/", "Jobs"),
        (f"/trajectories/{ID}/", "Trajectories"),
        (f"/evaluations/{ID}/", "Evaluations"),
        ("/suites/new/", "Suites"),
        (f"/suite-runs/{ID}/", "Suites"),
        (f"/experiences/{ID}/", "Lessons"),
        ("/prompt-packs/", "Lessons"),
        (f"/evolutions/{ID}/", "Playbooks"),
        (f"/executions/{ID}/", "Playbooks"),
        ("/reviews/", "Review queue"),
        ("/budgets/prices/", "Budgets"),
        ("/people/", "People"),
        ("/exports/new/", "Exports"),
        ("/archives/", "Storage"),
        ("/encryption/", "Encryption"),
        ("/audit/", "Audit"),
        (f"/webhooks/{ID}/", "Webhooks"),
        ("/summary/", "Summary"),
        ("/share-links/", "Share links"),
        ("/system/", "System"),
    ],
)
def test_a_page_belongs_to_one_entry(path: str, label: str) -> None:
    assert current(path) == [label]


def test_a_page_outside_of_the_menu_belongs_to_none() -> None:
    assert current("/search/") == [] and current("/endpoints/") == []


def test_each_entry_leads_to_a_page_of_its_own() -> None:
    for one in EVERY:
        path = reverse(one.url_name)
        assert resolve(path) and (one.needs == STAFF or current(path) == [one.label])


def test_people_see_the_entries_that_their_role_allows() -> None:
    everywhere, administration = labels(ROLE_MAY[Role.ADMIN], staff=True)
    assert everywhere[-1] == "Budgets" and administration == [
        *("People", "Audit", "Webhooks", "Storage", "Encryption", "System", "Admin")
    ]
    (only,) = labels(frozenset({"view"}))
    assert "Review queue" in only and "Budgets" not in only


def test_what_waits_is_asked_only_for_people_who_may_decide() -> None:
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
