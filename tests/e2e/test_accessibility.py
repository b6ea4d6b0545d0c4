"""Axe finds nothing on the console's pages, in both themes, on a desk and on a phone.

The suite looks at the pages that people work with most. ``AXE_PAGES=all`` looks at every page that has an address:
the table in tests/test_doors.py (minutes).
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from django.test import Client

from agentcore_site.jobs.services import share_create
from agentcore_site.tenancy.actors import Actor
from tests import test_doors
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.support.accessibility import violations_everywhere
from tests.support.routes import CONSOLE
from tests.support.workers import LiveSite
from training.models import TrainingRun
from training.presenters.tabs import TABS

pytestmark = pytest.mark.thorough(reason="a browser")

run, values, short_pings = test_doors.run, test_doors.values, test_doors.short_pings  # the rows of every page

MOST_USED: Final = (
    "",
    "summary/",
    "jobs/",
    "jobs/<uuid:job_id>/",
    "launch/",
    "agents/<str:ref>/",
    "agents/new/",
    "trajectories/<uuid:trajectory_id>/",
    "evaluations/<uuid:job_id>/",
    "budgets/",
    "people/roles/",
)
SIGNED_OUT: Final = ("/sign-in/", "/password/forgotten/", "/api/v1/docs/", "/api/v1/docs/agents/")


def pages(person: Any, given: dict[str, Any], routes: Any) -> list[str]:
    """The addresses of whole pages among these routes: what is a part, a file or changes something is none."""
    client = Client(raise_request_exception=False)
    client.force_login(person)
    found = []
    for route in routes:
        path = test_doors.address(route, given)
        if route == "trajectories/compare/":
            path += f"?a={given['trajectory_id']}&b={given['trajectory_id']}"
        if route == "jobs/compare/":
            path += f"?pick={given['job_id']}"
        response = client.get(path)
        whole = response.status_code == 200 and response["Content-Type"].startswith("text/html")
        if whole and not response.streaming and b"<html" in response.content:
            found.append(path)
    return found


def test_axe_finds_nothing_on_the_pages(
    web: LiveSite,  # noqa: F811
    chrome: Any,  # noqa: F811
    adam: Any,
    operator: Actor,
    run: TrainingRun,
    values: dict[str, Any],
) -> None:
    adam.is_staff = True
    adam.save()
    everything = os.environ.get("AXE_PAGES") == "all"
    paths = pages(adam, values, sorted(CONSOLE) if everything else MOST_USED)
    if everything:
        paths += [f"/jobs/{run.pk}/?tab={tab.key}" for tab in TABS]
        paths += [f"/trajectories/{values['trajectory_id']}/?view={view}" for view in ("tree", "waterfall")]
        paths += [f"/agents/{run.agent_id}/playbook/?tab={tab}" for tab in ("context", "versions", "evolution")]
    token = share_create(operator, run.job)
    page = chrome.new_page()
    broken: dict[str, list[str]] = {}

    def examine(path: str) -> None:
        page.goto(f"{web.url}{path}", wait_until="networkidle")
        if found := violations_everywhere(page):
            broken[path] = found

    for path in (*SIGNED_OUT, f"/shared/{token}/"):
        examine(path)
    sign_in(page, web, "adam")
    for path in paths:
        examine(path)
    assert len(paths) >= (100 if everything else len(MOST_USED))
    report = "\n".join(f"{path}\n  " + "\n  ".join(found) for path, found in broken.items())
    assert not broken, f"\n{report}"
