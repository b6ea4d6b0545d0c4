"""An agent's consent can't be taken back while a row of the agent is stored. By an old consent nothing is stored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from evaluation.events.imports.services import trajectories_import
from evaluation.events.intake.messages import StoredMessage, block_take
from evaluation.events.otlp.trace_collection import _stored, traces_collect
from evaluation.events.subjects import TRAJECTORY
from experiences.agents.consent import consent_changes
from experiences.models import Agent, ExecutionTrace, TrajectoryRecord
from experiences.playbooks.services import executions
from experiences.playbooks.services.executions import NewTrace, traces_record
from tests import factories
from tests.evaluation.events.test_imports import TRACE
from tests.evaluation.events.test_otlp_receiving import ADDRESS, export, span
from tests.support.callers import Caller
from tests.support.events import example

pytestmark = pytest.mark.django_db


def imports(operator: Actor, agent: Agent) -> None:
    with suppress(Conflict):
        trajectories_import(operator, agent, [json.dumps(TRACE).encode()])


def spans(operator: Actor, agent: Agent) -> None:
    _stored(agent, ["0" * 31 + "1"])


def messages(operator: Actor, agent: Agent) -> None:
    credential = factories.EventCredentialFactory(agent=agent, organization=agent.organization)
    subject = f"received.{agent.organization_id}.{credential.pk}.{TRAJECTORY}"
    body = json.dumps({**example(TRAJECTORY), "agent_id": agent.slug}).encode()
    block_take([StoredMessage(subject, body, "RL_TRAJECTORIES", 1, timezone.now())])


def executed(operator: Actor, agent: Agent) -> None:
    with suppress(Conflict):
        traces_record(operator, [NewTrace(agent, {}, {}, 5.0, True)])


WAYS = [imports, spans, messages, executed]


def stored() -> int:
    return TrajectoryRecord.objects.count() + ExecutionTrace.objects.count()


def may_change(agent: Agent) -> bool:
    """Whether another session could change the agent's consent now."""
    found: list[bool] = []

    def change() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '200ms'")
            consent_changes(agent.pk)
            found.append(True)
        except OperationalError:
            found.append(False)
        finally:
            connection.close()

    other = threading.Thread(target=change)
    other.start()
    other.join()
    return found[0]


@pytest.fixture
def waiting(olivia: object, agent: Agent) -> None:
    assert Caller(olivia).post(ADDRESS[8:], export(span(), service=agent.slug)).json() == {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("waiting")
def test_consent_does_not_change_while_something_is_stored(
    way: Callable[[Actor, Agent], None], operator: Actor, agent: Agent
) -> None:
    before = stored()
    assert may_change(agent)
    way(operator, agent)  # in the transaction of this test, which has not ended
    assert stored() == before + 1 and not may_change(agent)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("waiting")
def test_what_was_sent_by_an_old_consent_is_not_stored(
    way: Callable[[Actor, Agent], None], operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored()
    monkeypatch.setattr(executions, "recording_require", lambda *_: None)  # as if it had asked before the change
    Agent.objects.filter(pk=agent.pk).update(collects=False)
    assert agent.collects
    way(operator, agent)
    assert stored() == before and traces_collect() == 0
