"""Scheduled tasks are sent while they have work: by their questions, by beat, and seldom without work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
from django.conf import settings
from django.db import OperationalError, ProgrammingError
from django.utils import timezone

from agentcore_site.audit_export.models import AuditStream
from agentcore_site.celery import app
from agentcore_site.jobs.beat_lease import UNASKED, LeasedScheduler
from agentcore_site.lib import due_work
from agentcore_site.lib.due_work import has_work
from agentcore_site.tenancy.models import Mail
from evaluation.events.models import StoredSpan, WaitingSpan
from evaluation.serving.models import (
    AgentServing,
    Deployment,
    LearningLoop,
    LoopTurn,
    PlanDelivery,
    ProductionTrace,
    Release,
)
from experiences.models import Agent
from tests import factories

app.loader.import_default_modules()
pytestmark = pytest.mark.django_db
Made = Callable[[Agent], object]


def _deployment(agent: Agent) -> Deployment:
    owner = {"organization": agent.organization, "agent": agent}
    release = Release.objects.create(**owner, number=1, source="agent", bundle={})
    return Deployment.objects.create(
        **owner, release=release, strategy="canary", state="running", rule=factories.RULE, share=0.1
    )


def _ended(agent: Agent) -> Deployment:
    deployment = _deployment(agent)
    Deployment.objects.filter(pk=deployment.pk).update(state="done")
    return deployment


def _edits(agent: Agent) -> object:
    release = _ended(agent).release
    person = factories.UserFactory()
    owner = {"organization": agent.organization, "agent": agent}
    return AgentServing.objects.create(**owner, release=release, most_edits=3, edits_by=person)


def _turn(agent: Agent) -> object:
    owner = {"organization": agent.organization, "agent": agent}
    LearningLoop.objects.create(**owner, on=False)
    return LoopTurn.objects.create(**owner, number=1, trigger="hand", state="reviewing")


def _trace(agent: Agent, **values: object) -> object:
    owner = {"organization": agent.organization, "agent": agent}
    return ProductionTrace.objects.create(**owner, model="small", status="ok", **values)


def _span(model: type[WaitingSpan] | type[StoredSpan], agent: Agent, **values: object) -> object:
    owner = {"organization": agent.organization, "agent": agent}
    return model.objects.create(**owner, trace_id="0" * 32, span_id="0" * 16, root=True, body="{}", **values)


def _webhook(agent: Agent, **values: object) -> object:
    endpoint = factories.WebhookEndpointFactory(organization=agent.organization, off_reason="", on=True)
    event = factories.SiteEventFactory(organization=agent.organization, spread_at=timezone.now())
    return factories.WebhookDeliveryFactory(organization=agent.organization, endpoint=endpoint, event=event, **values)


def _mail(agent: Agent, **values: object) -> object:
    return Mail.objects.create(organization=agent.organization, recipients=["a@example.org"], subject="Hello", **values)


def _stream(agent: Agent, **values: object) -> object:
    return AuditStream.objects.create(organization=agent.organization, url="https://example.org/", **values)


LATER = timedelta(hours=1)
WORK: dict[str, list[Made]] = {
    "serving.feedback": [_trace],
    "serving.deployments": [_deployment],
    "serving.plans": [lambda agent: PlanDelivery.objects.create(deployment=_ended(agent))],
    "serving.loops": [
        lambda agent: LearningLoop.objects.create(organization=agent.organization, agent=agent, on=True),
        _turn,
        _edits,
    ],
    "events.traces": [
        lambda agent: _span(WaitingSpan, agent),
        lambda agent: _span(StoredSpan, agent, stored_at=timezone.now() - timedelta(days=2)),
    ],
    "notices.spread": [lambda agent: factories.SiteEventFactory(organization=agent.organization)],
    "notices.deliver": [_webhook],
    "tenancy.mails": [_mail],
    "audit.send": [_stream],
}
NO_WORK: dict[str, list[Made]] = {
    "serving.feedback": [lambda agent: _trace(agent, reward=1.0)],
    "serving.deployments": [_ended],
    "serving.plans": [
        lambda agent: PlanDelivery.objects.create(deployment=_ended(agent), try_after=timezone.now() + LATER)
    ],
    "serving.loops": [lambda agent: LearningLoop.objects.create(organization=agent.organization, agent=agent)],
    "events.traces": [lambda agent: _span(StoredSpan, agent)],
    "notices.spread": [_webhook],
    "notices.deliver": [lambda agent: _webhook(agent, try_after=timezone.now() + LATER)],
    "tenancy.mails": [lambda agent: _mail(agent, try_after=timezone.now() + LATER)],
    "audit.send": [lambda agent: _stream(agent, paused=True)],
}


@pytest.mark.parametrize(("task", "made"), [(task, one) for task, ways in WORK.items() for one in ways])
def test_a_row_that_waits_is_work(task: str, made: Made) -> None:
    agent = factories.AgentFactory()
    assert not has_work(task)
    made(agent)
    assert has_work(task)


@pytest.mark.parametrize(("task", "made"), [(task, one) for task, ways in NO_WORK.items() for one in ways])
def test_a_row_that_is_done_or_not_due_is_no_work(task: str, made: Made) -> None:
    made(factories.AgentFactory())
    assert not has_work(task)


def test_every_question_is_of_a_scheduled_task_and_tried_here() -> None:
    app.loader.import_default_modules()
    scheduled = {one["task"] for one in settings.CELERY_BEAT_SCHEDULE.values()}
    assert set(due_work._questions) == {*WORK, "warehouse.fill"} <= scheduled
    assert set(NO_WORK) == set(WORK)


def test_beat_sends_what_has_work_and_the_rest_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = LeasedScheduler(app, schedule_filename=str(tmp_path / "beat"), lazy=True)
    sent: list[str] = []
    monkeypatch.setattr(scheduler, "apply_async", lambda entry, **_: sent.append(entry.task))
    scheduler.setup_schedule()
    entries = {entry.task: entry for entry in scheduler.schedule.values()}
    now = 1_000.0

    def due(task: str, *, after: float) -> int:
        nonlocal now
        now += after
        before = len(sent)
        with mock.patch("agentcore_site.jobs.beat_lease.time.monotonic", lambda: now):
            scheduler.apply_entry(entries[task])
        return len(sent) - before

    assert due("notices.spread", after=0) == 1  # the first after a start is sent without a question
    assert due("notices.spread", after=2) == 0
    assert due("serving.journals", after=0) == due("serving.journals", after=2) == 1  # of files: without a question
    factories.SiteEventFactory()
    assert due("notices.spread", after=2) == due("notices.spread", after=2) == 1
    assert due("notices.deliver", after=0) == 1
    assert due("notices.deliver", after=UNASKED - 1) == 0
    assert due("notices.deliver", after=1) == 1
    with mock.patch.dict(due_work._questions, {"notices.deliver": mock.Mock(side_effect=OperationalError("away"))}):
        assert due("notices.deliver", after=2) == 1
    # No error of a question ends beat: after an upgrade it may run before the tables are migrated.
    failing = mock.Mock(side_effect=ProgrammingError("no column"))
    with mock.patch.dict(due_work._questions, {"notices.deliver": failing}):
        assert due("notices.deliver", after=2) == 1
    scheduler.close()
