"""ETags and ``If-Match``: two people who change the same row do not overwrite each other unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.models import IdempotencyRecord
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey, Invitation
from budgets.models import Budget
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.openapi import described
from tests.support.routes import routes
from tests.support.rows import queued_run

pytestmark = pytest.mark.django_db

WRITES = ("post", "put", "patch", "delete")
CHANGED = "Read it again"


def changed(response: Any) -> bool:
    """True if the answer is a 412 that says what to do."""
    return response.status_code == 412 and CHANGED in response.json()["detail"]


def test_the_second_of_two_writers_of_one_version_has_to_read_again(api: Caller, agent: Agent) -> None:
    read = api.get(f"agents/{agent.slug}")
    first = api.send("patch", f"agents/{agent.slug}", {"description": "First"}, {"If_Match": read["ETag"]})
    assert first.status_code == 200 and first["ETag"] != read["ETag"]
    second = api.send("patch", f"agents/{agent.slug}", {"description": "Second"}, {"If_Match": read["ETag"]})
    assert changed(second) and second["Content-Type"] == "application/problem+json"
    agent.refresh_from_db()
    assert agent.description == "First"
    again = api.send("patch", f"agents/{agent.slug}", {"description": "Second"}, {"If_Match": first["ETag"]})
    assert again.status_code == 200
    assert api.get(f"agents/{agent.slug}")["ETag"] == again["ETag"]


def test_without_the_header_a_change_is_made_as_before(api: Caller, agent: Agent) -> None:
    assert api.patch(f"agents/{agent.slug}", {"description": "x"}).status_code == 200
    any_version = api.send("patch", f"agents/{agent.slug}", {"description": "y"}, {"If_Match": "*"})
    assert any_version.status_code == 200
    several = f'"other", {any_version["ETag"]}'
    assert api.send("patch", f"agents/{agent.slug}", {"description": "z"}, {"If_Match": several}).status_code == 200


@pytest.mark.parametrize("header", ["", "abc", 'W/"abc"', '"é'])
def test_a_header_that_is_no_strong_tag_changes_nothing(api: Caller, agent: Agent, header: str) -> None:
    response = api.send("patch", f"agents/{agent.slug}", {"description": "x"}, {"If_Match": header})
    assert response.status_code in {400, 412} and response.json()["detail"]
    agent.refresh_from_db()
    assert agent.description != "x"


def test_counters_of_the_site_are_no_change(adam: Any, operator: Actor, agent: Agent) -> None:
    api, run = Caller(adam), queued_run(operator, agent)
    budget = Budget.objects.get(owner_id=run.job_id)
    read = api.get(f"budgets/{budget.id}")
    Budget.objects.filter(id=budget.id).update(spent_micros=5)
    match = {"If_Match": read["ETag"]}
    assert api.send("patch", f"budgets/{budget.id}", {"limit_usd": 7}, match).status_code == 200
    assert changed(api.send("patch", f"budgets/{budget.id}", {"limit_usd": 8}, match))


def test_a_job_that_moved_meanwhile_is_not_cancelled(api: Caller, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    read = api.get(f"training-jobs/{run.job_id}")
    assert lifecycle.claim(run.job_id) is not None
    for path in (f"training-jobs/{run.job_id}/cancel", f"jobs/{run.job_id}/cancel"):
        assert changed(api.post(path, {}, If_Match=read["ETag"])), path
    assert Job.objects.get(id=run.job_id).status == Status.RUNNING


def test_deleting_asks_too(adam: Any, acme: Any) -> None:
    api, member = Caller(adam), factories.MembershipFactory(organization=acme)
    read = api.get(f"members/{member.id}")
    assert api.patch(f"members/{member.id}", {"role": "stakeholder"}).status_code == 200
    assert changed(api.send("delete", f"members/{member.id}", None, {"If_Match": read["ETag"]}))
    fresh = api.get(f"members/{member.id}")["ETag"]
    assert api.send("delete", f"members/{member.id}", None, {"If_Match": fresh}).status_code == 204


def test_a_resource_without_a_version_says_so(api: Caller, agent: Agent) -> None:
    response = api.post("training-jobs/estimate", {"agent": agent.slug}, If_Match='"x"')
    assert response.status_code == 412 and "Leave If-Match out" in response.json()["detail"]


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_who_read_the_same_one_is_first(olivia: Any, agent: Agent) -> None:
    api = Caller(olivia)
    tag = api.get(f"agents/{agent.slug}")["ETag"]
    statuses: list[int] = []

    def change(n: int) -> None:
        try:
            response = api.send("patch", f"agents/{agent.slug}", {"description": f"By {n}"}, {"If_Match": tag})
            statuses.append(response.status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=change, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(statuses) == [200] + [412] * 7


def test_each_row_that_people_change_has_a_version() -> None:
    """The resources that can be read and changed by id: a view set that was added without ``versioned`` fails here."""
    without = set()
    for route, pattern in routes():
        actions = getattr(pattern.callback, "actions", None) or {}
        view = getattr(pattern.callback, "cls", None)
        if route.startswith("api/v1/") and actions.get("get") == "retrieve" and set(actions) & set(WRITES):
            without |= set() if getattr(view, "versioned", ()) else {route}
    assert without == set()


def test_the_description_says_where_a_version_is_asked_for() -> None:
    paths = described()["paths"]
    for path in ("/api/v1/agents/{agent}", "/api/v1/budgets/{id}", "/api/v1/members/{id}", "/api/v1/datasets/{id}"):
        operation = paths[path]["patch"]
        assert "If-Match" in {one["name"] for one in operation["parameters"]} and "412" in operation["responses"], path
        assert "ETag" in paths[path]["get"]["responses"]["200"]["headers"], path


# -- idempotency keys --------------------------------------------------------------------------------------------------

# POSTs to a collection that make nothing: they ask, or set what there is one of.
MAKES_NOTHING = {"archive-rules", "token"}


def test_every_post_that_makes_something_takes_an_idempotency_key() -> None:
    for path, operations in described()["paths"].items():
        makes = "post" in operations and "201" in operations["post"]["responses"]
        if makes and path.removeprefix("/api/v1/") not in MAKES_NOTHING:
            names = {one["name"] for one in operations["post"].get("parameters", ())}
            assert "Idempotency-Key" in names, path


@pytest.mark.parametrize(
    ("path", "body", "secret", "n"),
    [
        ("api-keys", {"name": "ci", "scopes": ["training:view"]}, "key", lambda: ApiKey.objects.filter(name="ci")),
        ("event-publishers", {"name": "elsewhere"}, "password", None),
    ],
)
def test_a_secret_is_shown_once_and_nothing_is_made_twice(
    adam: Any, path: str, body: dict[str, Any], secret: str, n: Callable[[], Any] | None
) -> None:
    api = Caller(adam)
    first = api.post(path, body, Idempotency_Key="k")
    assert first.status_code == 201 and first.json()[secret]
    again = api.post(path, body, Idempotency_Key="k")
    assert again.status_code == 409 and "shown once" in again.json()["detail"]
    assert first.json()["id"] in again.json()["detail"]
    assert n is None or n().count() == 1
    assert first.json()[secret] not in str(IdempotencyRecord.objects.get().body)


def test_a_person_is_invited_once(adam: Any, mailoutbox: Any) -> None:
    api, body = Caller(adam), {"email": "new@example.org", "role": "developer"}
    first = api.post("invitations", body, Idempotency_Key="k")
    again = api.post("invitations", body, Idempotency_Key="k")
    assert (again.status_code, again.json()) == (201, first.json()) and again["Idempotent-Replayed"] == "true"
    other = api.post("invitations", body | {"role": "admin"}, Idempotency_Key="k")
    assert other.status_code == 409 and "another request" in other.json()["detail"]
    assert Invitation.objects.count() == 1
