"""``@name`` in a comment: a member of the organisation is notified by their own settings, and other people are not."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.lib.errors import Forbidden
from agentcore_site.notices.fan_out import events_fan_out
from agentcore_site.notices.mentions import mentioned, names_offered
from agentcore_site.notices.models import Notice, SiteEvent, WebhookDelivery, WebhookEndpoint
from agentcore_site.notices.services import preferences_set
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Mail
from experiences.models import Agent
from tests.support.rows import queued_run
from training.models import TrainingRun
from training.services.notes import comment_add, comment_edit

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return queued_run(operator, agent)


def noticed() -> list[tuple[str, str]]:
    """(person, text) of the mentions at the bell."""
    events_fan_out()
    rows = Notice.objects.filter(event__type="comment.mentioned").order_by("user__username")
    return list(rows.values_list("user__username", "event__text"))


def test_a_mentioned_member_is_notified_and_others_are_not(
    operator: Actor, run: TrainingRun, dan: Any, adam: Any, stella: Any, charlie: Any, acme: Any
) -> None:
    preferences_set(Actor(adam), acme, whose="all", bell=["comment.mentioned"], mail=[])
    comment = comment_add(operator, run, "@dan. look, mail x@stella, and ask @charlie or @olivia or @unknown")
    assert noticed() == [("dan", f"olivia mentions dan in a comment on {run.job}.")]
    path = SiteEvent.objects.get(type="comment.mentioned").path
    assert path == f"/jobs/{run.pk}/#comment-{comment.pk}"
    assert {user.username for user in mentioned(acme.pk, comment.text)} == {"dan", "olivia"}


def test_an_edit_notifies_only_those_whom_it_names_first(
    operator: Actor, run: TrainingRun, dan: Any, stella: Any
) -> None:
    comment = comment_add(operator, run, "@dan look")
    comment_edit(operator, run, comment.pk, "@dan and @stella look")
    assert [name for name, _ in noticed()] == ["dan", "stella"]
    assert SiteEvent.objects.filter(type="comment.mentioned").count() == 2


def test_a_mention_goes_where_the_person_chose(operator: Actor, run: TrainingRun, dan: Any, acme: Any) -> None:
    own = {"organization": acme, "url": "https://hooks.example.org/x", "sealed_secret": ""}
    for name, more in (
        ("all", {}), ("named", {"types": ["comment.mentioned"]}), ("dan", {"user": dan}),
        ("olivia", {"user": operator.user}),
    ):  # fmt: skip
        WebhookEndpoint.objects.create(name=name, **own, **more)
    preferences_set(Actor(dan), acme, whose="own", bell=[], mail=["comment.mentioned"])
    comment_add(operator, run, "@dan look")
    assert noticed() == []
    assert [mail.recipients for mail in Mail.objects.all()] == [[dan.email]]
    assert set(WebhookDelivery.objects.values_list("endpoint__name", flat=True)) == {"named", "dan"}


def test_names_are_offered_of_members_to_people_who_may_comment(
    operator: Actor, dan: Any, stella: Any, adam: Any, charlie: Any
) -> None:
    assert names_offered(operator, "") == ["adam", "dan", "olivia", "stella"]
    assert names_offered(operator, "DA") == ["dan"] and names_offered(operator, "char") == []
    with pytest.raises(Forbidden):
        names_offered(Actor(stella), "")
    client = Client()
    client.force_login(operator.user)
    assert client.get("/notices/names/?q=st").json() == {"names": ["stella"]}
