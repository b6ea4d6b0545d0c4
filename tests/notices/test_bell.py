"""The bell: each person receives their own notices, of the kinds that they chose, and none of others."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Invalid, Missing
from agentcore_site.notices.events import event_record
from agentcore_site.notices.fan_out import events_fan_out
from agentcore_site.notices.models import Notice, NoticePreferences, SiteEvent, Whose
from agentcore_site.notices.selectors import notices_visible, unread_count
from agentcore_site.notices.services import notices_read, preferences_set
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Organization
from budgets.alerts.delivery import alert_deliver
from budgets.models import AlertKind, BudgetAlert
from budgets.services import budget_set_limit
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db


def failed(organization: Organization, text: str = "A job failed.", **extra: Any) -> SiteEvent:
    return event_record(organization, "job.failed", text=text, data={"how": "Resume it."}, path="/jobs/", **extra)


def notices_of(person: Any) -> list[str]:
    return [one.event.text for one in notices_visible(person).order_by("event__created_at")]


def test_only_the_owner_is_notified_by_default(
    olivia: Any, dan: Any, charlie: Any, acme: Organization, elsewhere: Organization
) -> None:
    failed(acme, "Olivia's", owner=olivia)
    failed(acme, "Nobody's")
    event_record(acme, "job.started", text="Not of interest", data={}, owner=olivia)
    failed(elsewhere, "Charlie's", owner=charlie)
    assert events_fan_out() == 4 and events_fan_out() == 0
    assert (notices_of(olivia), notices_of(dan), notices_of(charlie)) == (["Olivia's"], [], ["Charlie's"])
    assert unread_count(olivia) == 1 and Notice.objects.count() == 2


def test_a_person_chooses_everything_or_some_agents_and_is_mailed(
    dan: Any, stella: Any, acme: Organization, agent: Agent, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://agentcore.example.org"
    preferences_set(dan, acme, whose=Whose.AGENTS, agents=[agent.pk], bell=["job.failed"], mail=["job.failed"])
    preferences_set(stella, acme, whose=Whose.ALL, bell=["job.failed"], mail=["job.failed"], mail_in_digest=True)
    failed(acme, "Of the agent", agent_id=agent.pk)
    failed(acme, "Of another", agent_id=uuid4())
    events_fan_out()
    assert (notices_of(dan), notices_of(stella)) == (["Of the agent"], ["Of the agent", "Of another"])
    assert mails_send() == 1 and mail.outbox[0].to == [dan.email]
    assert "https://agentcore.example.org/jobs/" in mail.outbox[0].body and "Resume it." in mail.outbox[0].body
    dan.memberships.all().delete()
    failed(acme, "After he left", agent_id=agent.pk)
    events_fan_out()
    assert Notice.objects.filter(user=dan).count() == 1 and list(notices_visible(dan)) == []


def test_a_budget_that_is_nearly_used_up_is_notified_once_with_its_alert(
    adam: Any, stella: Any, acme: Organization, agent: Agent
) -> None:
    preferences_set(stella, acme, whose=Whose.ALL, bell=["budget.threshold", "budget.exceeded"], mail=[])
    budget = budget_set_limit(adam, organization=acme, agent_id=agent.pk, limit_micros=1_000_000)
    for threshold, kind in ((75, AlertKind.THRESHOLD), (100, AlertKind.THRESHOLD), (0, AlertKind.ABOVE_HOLD)):
        alert = BudgetAlert.objects.create(
            budget=budget, kind=kind, threshold=threshold, limit_micros=1_000_000, spent_micros=800_000
        )
        assert alert_deliver(alert) and not alert_deliver(alert)
    events_fan_out()
    types = SiteEvent.objects.order_by("created_at").values_list("type", "agent_id", "data__threshold_percent")
    assert list(types) == [("budget.threshold", agent.pk, 75), ("budget.exceeded", agent.pk, 100)]
    assert len(notices_of(stella)) == 2 and "80 % spent" in notices_of(stella)[0]


def test_an_impossible_preference_is_refused(olivia: Any, charlie: Any, acme: Organization) -> None:
    for wrong in ({"whose": "x"}, {"bell": ["nonsense"]}, {"time_zone": "Mars/Base"}):
        with pytest.raises(Invalid):
            preferences_set(olivia, acme, **({"whose": "own", "bell": [], "mail": []} | wrong))
    with pytest.raises(Missing):
        preferences_set(charlie, acme, whose="own", bell=[], mail=[])
    assert not NoticePreferences.objects.exists()


def test_the_head_counts_unread_notices_and_the_list_marks_them(olivia: Any, dan: Any, acme: Organization) -> None:
    for n in range(3):
        failed(acme, f"Number {n}", owner=olivia)
    failed(acme, "Dan's", owner=dan)
    events_fan_out()
    console = Client()
    console.force_login(olivia)
    assert "Notifications, 3 unread" in html(console.get("/jobs/"))
    part = html(console.get("/notices/bell/", headers={"HX-Request": "true"}))
    assert "Notifications, 3 unread" in part and "<html" not in part
    shown = html(console.get("/notices/"))
    assert "Number 2" in shown and "Resume it." in shown and "Dan's" not in shown
    assert "Number 1" in html(console.get("/notices/?q=Number 1")) and "Number 2" not in html(
        console.get("/notices/?q=Number 1")
    )
    assert "No notification matches" in html(console.get("/notices/?about=budget"))
    one = notices_visible(olivia).get(event__text="Number 1")
    theirs = Notice.objects.get(user=dan)
    console.post("/notices/read/", {"notice": one.pk})
    console.post("/notices/read/", {"notice": theirs.pk})
    assert unread_count(olivia) == 2 and unread_count(dan) == 1
    assert "Number 1" not in html(console.get("/notices/?show=unread"))
    console.post("/notices/read/", {"notice": one.pk, "unread": "1"})
    assert unread_count(olivia) == 3
    assert "3 marked as read." in html(console.post("/notices/read/", follow=True))
    assert "Notifications, none unread" in html(console.get("/notices/")) and unread_count(dan) == 1


def test_a_person_chooses_their_notices_on_a_page(stella: Any, acme: Organization, agent: Agent) -> None:
    console = Client()
    console.force_login(stella)
    before = html(console.get("/notices/settings/"))
    assert "Notification settings" in before and "data-zone" not in before  # the browser's holds
    sent = {"whose": "agents", "agents": [str(agent.pk)], "bell": ["job.failed"], "mail": [], "time_zone": "Asia/Tokyo"}
    assert console.post("/notices/settings/", sent).status_code == 302
    row = NoticePreferences.objects.get()
    assert (row.user, row.agents, row.bell, row.time_zone) == (stella, [agent.pk], ["job.failed"], "Asia/Tokyo")
    assert '<html lang="en" data-zone="Asia/Tokyo">' in html(console.get("/jobs/"))
    wrong = console.post("/notices/settings/", sent | {"time_zone": "Mars/Base"})
    assert wrong.status_code == 400 and "There is no time zone" in html(wrong)
    stranger = factories.AgentFactory()
    assert console.post("/notices/settings/", sent | {"agents": [str(stranger.pk)]}).status_code == 400
    assert AuditEvent.objects.filter(action="notices.changed").count() == 1


def test_a_program_reads_its_persons_notices(olivia: Any, dan: Any, acme: Organization) -> None:
    failed(acme, "Olivia's", owner=olivia)
    events_fan_out()
    api = Caller(olivia)
    [one] = api.get("notices", unread="true").json()["results"]
    assert (one["type"], one["text"], one["read_at"]) == ("job.failed", "Olivia's", None)
    assert Caller(dan).get("notices").json()["results"] == []
    assert Caller(dan).post("notices/read", {"ids": [one["id"]]}).json() == {"read": 0}
    assert api.post("notices/read", {"ids": [one["id"]]}).json() == {"read": 1}
    assert api.get("notices", unread="true").json()["results"] == [] and notices_read(olivia) == 0
