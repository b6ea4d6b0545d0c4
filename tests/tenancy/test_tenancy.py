"""Permissions: roles, keys, organisations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of_key
from agentcore_site.tenancy.models import ApiKey
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.tenancy.services import api_key_create, api_key_revoke
from experiences.models import Agent
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("who", "may", "may_not"),
    [
        ("olivia", ["run.start", "run.cancel", "export", "agent.edit"], ["audit.view"]),
        ("dan", ["view", "agent.edit", "evaluate", "export"], ["run.start", "run.cancel"]),
        ("adam", ["run.start", "audit.view", "members.edit"], []),
        ("stella", ["view"], ["run.start", "agent.edit", "evaluate", "export", "checkpoint.download"]),
    ],
)
def test_each_role_may_what_the_table_says(
    who: str, may: list[str], may_not: list[str], acme: Any, request: pytest.FixtureRequest
) -> None:
    person = request.getfixturevalue(who)
    for action in may:
        require(person, action, acme)
    for action in may_not:
        with pytest.raises(Forbidden):
            require(person, action, acme)


def test_a_developer_exports_only_with_the_data_permission(dan: Any, acme: Any) -> None:
    dan.memberships.update(can_export=False)
    with pytest.raises(Forbidden, match="export data"):
        require(dan, "export", acme)


def test_a_stranger_learns_nothing(charlie: Any, acme: Any, agent: Agent) -> None:
    with pytest.raises(Missing):
        require(charlie, "view", acme)
    assert not Agent.objects.visible_to(charlie).exists()


def test_a_disabled_person_sees_nothing(olivia: Any, agent: Agent) -> None:
    assert Agent.objects.visible_to(olivia).exists()
    olivia.is_active = False
    assert not Agent.objects.visible_to(olivia).exists()


def test_a_person_without_an_organisation_sees_the_next_step() -> None:
    with pytest.raises(Forbidden, match="Ask an admin"):
        current_organization(factories.UserFactory())


def test_a_key_is_shown_once_and_kept_as_a_digest(operator: Actor) -> None:
    row, key = api_key_create(operator, name="laptop", scopes=["training:view"])
    assert key.startswith("ac_") and key not in str(ApiKey.objects.values().get(id=row.id))
    result = actor_of_key(key, ip="")
    assert result is not None and result.user == operator.user
    assert AuditEvent.objects.filter(action="api_key.created", target_id=str(row.id)).exists()


def test_a_scope_narrows_and_never_widens(stella: Any, operator: Actor, acme: Any, agent: Agent) -> None:
    _, viewer = api_key_create(operator, name="v", scopes=["training:view"])
    with pytest.raises(Forbidden, match=r"with this key\. Take one with the scope training:start\."):
        require(actor_of_key(viewer, ip=""), "run.start", acme)
    _, reach = api_key_create(Actor(stella), name="s", scopes=["training:start", "training:view"])
    with pytest.raises(Forbidden):
        require(actor_of_key(reach, ip=""), "run.start", acme)
    _, blind = api_key_create(operator, name="b", scopes=["training:cancel"])
    assert not Agent.objects.visible_to(actor_of_key(blind, ip="")).exists()


def test_expired_revoked_and_unknown_keys_open_nothing(operator: Actor) -> None:
    row, key = api_key_create(operator, name="k", scopes=["training:view"])
    assert actor_of_key("ac_unknown", ip="") is None
    ApiKey.objects.filter(id=row.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert actor_of_key(key, ip="") is None
    row, key = api_key_create(operator, name="k", scopes=["training:view"])
    api_key_revoke(operator, row)
    assert actor_of_key(key, ip="") is None


def test_wrong_scopes_and_lifetimes_are_refused(operator: Actor) -> None:
    for wrong in ({"scopes": ["everything"]}, {"scopes": []}, {"scopes": ["training:view"], "days": 0}):
        with pytest.raises(Invalid):
            api_key_create(operator, name="k", **wrong)  # type: ignore[arg-type]


def test_sign_ins_and_failures_are_logged(olivia: Any) -> None:
    client = Client()
    assert client.login(username="olivia", password=factories.PASSWORD)
    assert not client.login(username="olivia", password="wrong")
    actions = list(AuditEvent.objects.order_by("at").values_list("action", "actor"))
    assert actions == [("person.signed_in", "olivia"), ("person.sign_in_failed", "system")]
