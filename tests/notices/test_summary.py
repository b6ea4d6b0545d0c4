"""The summary for viewers, as page and mail: gains with their uncertainty, cost, and live releases."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentcore_site import digests
from agentcore_site.agent_summaries import agent_summaries
from agentcore_site.audit.models import AuditEvent
from agentcore_site.digests import digests_queue
from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import ShareLink
from agentcore_site.jobs.services import share_create
from agentcore_site.lib.money_format import money
from agentcore_site.notices.events import event_record
from agentcore_site.notices.models import NoticePreferences
from agentcore_site.notices.services import preferences_set
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Mail, Organization
from budgets.models import Budget
from evaluation.serving.models import ProductionTrace, Release
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import lived_run, queued_run
from training.models import TrainingRun

pytestmark = pytest.mark.django_db(transaction=True)
VERDICT = {"verdict": "Better.", "improvement": 0.182, "low": 0.11, "high": 0.251}


@pytest.fixture
def proven(operator: Actor, agent: Agent) -> TrainingRun:
    run = lived_run(operator, agent)
    TrainingRun.objects.filter(pk=run.pk).update(verdict=VERDICT)
    return run


def test_a_summary_says_gain_cost_and_what_is_live_in_plain_words(
    stella: Any, charlie: Any, acme: Organization, agent: Agent, proven: TrainingRun
) -> None:
    release = Release.objects.create(organization=acme, agent=agent, number=3, source="agent", bundle={})
    trace = factories.served(release)
    for _ in range(9):
        trace.pk, trace.cost_micros, trace._state.adding = uuid7(), 1_500, True
        trace.save()
    cost = sum(ProductionTrace.objects.values_list("cost_micros", flat=True))
    Budget.objects.filter(scope="agent").delete()
    month = timezone.now().date().replace(day=1)
    Budget.objects.create(
        organization=acme, scope="agent", owner_id=agent.pk, agent_id=agent.pk, period="month", period_start=month,
        spent_micros=3_120_000,
    )  # fmt: skip
    [one] = agent_summaries([agent])
    assert one.gains[0].sentence.startswith("Gets 18.2 more of 100 queries right")
    assert (one.spent_micros, one.spent_this_month_micros) == (3_120_000, 3_120_000)
    assert one.per_1000_micros == round(1_000 * cost / 10)
    console = Client()
    console.force_login(stella)
    shown = html(console.get("/summary/"))
    assert "95 % interval 11.0 to 25.1" in shown and "$3.12 spent this month" in shown
    assert f"1,000 queries cost {money(round(1_000 * cost / 10))}" in shown and "<svg" in shown and one.live in shown
    assert "question 1" not in shown and "http://" not in shown  # no raw data, no addresses
    stranger = Client()
    stranger.force_login(charlie)
    assert "No agent yet" in html(stranger.get("/summary/"))


def test_an_unproven_gain_is_marked_as_unproven(agent: Agent, proven: TrainingRun) -> None:
    TrainingRun.objects.filter(pk=proven.pk).update(verdict=VERDICT | {"improvement": 0.01, "low": -0.05, "high": 0.07})
    [one] = agent_summaries([agent])
    assert one.gains[0].sentence == "No difference is proven: between −5.0 and +7.0 of 100 queries."
    assert one.per_1000_micros is None and one.live == "No release is in production."


def test_the_summary_has_the_latest_measured_gains_of_an_agent(operator: Actor, agent: Agent) -> None:
    runs = [lived_run(operator, agent, queries=1) for _ in range(9)]
    for n, run in enumerate(runs):
        TrainingRun.objects.filter(pk=run.pk).update(verdict=VERDICT | {"improvement": (n + 1) / 100})
    TrainingRun.objects.filter(pk=runs[7].pk).update(verdict={"verdict": "Nothing was changed."})
    TrainingRun.objects.filter(pk=runs[8].pk).update(verdict=VERDICT | {"improvement": None, "low": None, "high": None})
    [one] = agent_summaries([agent])
    assert [round(gain.points) for gain in one.gains] == [7, 6, 5, 4, 3, 2]


def test_a_summary_of_many_agents_has_pages_and_a_search(stella: Any, acme: Organization) -> None:
    for n in range(12):
        factories.AgentFactory(organization=acme, name=f"Helper {n:02}")
    console = Client()
    console.force_login(stella)
    shown = html(console.get("/summary/"))
    assert shown.count("<h2>Helper") == 10 and "12 agents" in shown
    following = re.search(r'rel="next" href="([^"]+)"', shown)
    assert following is not None and "Helper 10" not in shown
    assert "Helper 10" in html(console.get(f"/summary/{unescape(following[1])}"))
    page = html(console.get("/summary/?q=helper+11"))
    assert page.count("<h2>Helper") == 1 and "1 agent" in page
    assert "No agent matches" in html(console.get("/summary/?q=zzz"))


def test_a_digest_of_many_agents_names_those_trained_last(
    stella: Any, acme: Organization, agent: Agent, proven: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Early", "Zero"):
        factories.AgentFactory(organization=acme, name=name)
    preferences = NoticePreferences(user=stella, organization=acme, time_zone="UTC")
    assert "Early" in digests.digest_text(Actor(stella), preferences)
    monkeypatch.setattr(digests, "MOST_AGENTS", 1)
    text = digests.digest_text(Actor(stella), preferences)
    assert agent.name in text and "Early" not in text and "2 more agents: the summary has all." in text


def test_viewers_begin_with_the_summary(stella: Any, olivia: Any) -> None:
    for name, home in (("stella", "/summary/"), ("olivia", "/")):
        form = {"username": name, "password": "correct horse battery staple"}
        assert Client().post("/sign-in/", form)["Location"] == home
        assert Client().post("/sign-in/", form | {"next": "/jobs/"})["Location"] == "/jobs/"


# -- the digest --------------------------------------------------------------------------------------------------------


def at(monkeypatch: pytest.MonkeyPatch, *moment: int) -> None:
    now = datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]
    monkeypatch.setattr(timezone, "now", lambda: now)


def test_a_digest_comes_once_a_week_in_the_persons_morning_though_several_beats_ask(
    stella: Any, olivia: Any, acme: Organization, proven: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, 2026, 11, 18, 12)  # a Wednesday
    chosen = {"whose": "all", "bell": [], "mail": ["job.failed"], "mail_in_digest": True, "digest": True}
    preferences_set(stella, acme, **chosen, time_zone="America/Los_Angeles")
    assert digests_queue() == 0  # the first one comes with the next week
    event_record(acme, "job.failed", text="A job failed on Thursday.", data={}, owner=olivia)
    at(monkeypatch, 2026, 11, 23, 15, 59)  # Monday, 7:59 there
    assert digests_queue() == 0
    at(monkeypatch, 2026, 11, 23, 16, 1)
    found: list[int] = []

    def beat() -> None:
        found.append(digests_queue())
        connection.close()

    beats = [threading.Thread(target=beat) for _ in range(4)]
    for one in beats:
        one.start()
    for one in beats:
        one.join()
    assert sorted(found) == [0, 0, 0, 1] and Mail.objects.count() == 1
    monkeypatch.undo()
    assert mails_send() == 1
    [sent] = mail.outbox
    assert sent.to == [stella.email] and "Gets 18.2 more of 100 queries right" in sent.body
    assert (
        "A job failed on Thursday." in sent.body
        and "No release is in production." in sent.body
        and "/summary/" in sent.body
    )
    NoticePreferences.objects.update(digest_week="2020-W01")
    stella.memberships.all().delete()
    assert digests.digests_queue() == 0  # who left is sent nothing


# -- share links -------------------------------------------------------------------------------------------------------


def test_links_are_listed_with_their_end_and_use_and_revoked(
    operator: Actor, stella: Any, charlie: Any, agent: Agent
) -> None:
    run = queued_run(operator, agent)
    token = share_create(operator, run.job, days=3)
    assert Client().get(f"/shared/{token}/").status_code == 200
    link = ShareLink.objects.get()
    assert link.last_seen_at
    console = Client()
    console.force_login(operator.user)
    shown = html(console.get("/share-links/"))
    assert str(run.job) in shown and "olivia" in shown and "never" not in shown
    watching = Client()
    watching.force_login(stella)
    assert watching.get("/share-links/").status_code == 403
    assert watching.post(f"/share-links/{link.pk}/revoke/").status_code == 403
    stranger = Client()
    stranger.force_login(charlie)
    assert str(run.job) not in html(stranger.get("/share-links/"))
    assert stranger.post(f"/share-links/{link.pk}/revoke/").status_code == 404
    assert [one["job_id"] for one in Caller(operator.user).get("share-links").json()["results"]] == [str(run.pk)]
    assert Caller(charlie).get("share-links").json()["results"] == []
    console.post(f"/share-links/{link.pk}/revoke/")
    assert Client().get(f"/shared/{token}/").status_code == 404
    assert AuditEvent.objects.filter(action="job.unshared").count() == 1
    assert "No link matches" in html(console.get("/share-links/"))
    assert "revoked" in html(console.get("/share-links/?show=ended too"))
    other = share_create(operator, run.job)
    link = ShareLink.objects.get(revoked_at=None)
    assert Caller(operator.user).delete(f"share-links/{link.pk}").status_code == 204
    assert Client().get(f"/shared/{other}/").status_code == 404
