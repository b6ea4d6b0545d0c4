"""Guards of evolution: its circuit breaker, whose turn it is while money is short, and its alerts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentcore_site.lib.errors import Insufficient
from agentcore_site.notices.models import SiteEvent
from agentcore_site.tenancy.actors import Actor
from budgets.services import budget_set_limit
from experiences.learning.playbooks.slowdown import slowdown
from experiences.models import Agent, Evolution, Playbook
from experiences.playbooks.breaker import Slowed
from experiences.playbooks.evolution.costs import evolution_worst_case_micros
from experiences.playbooks.services import evolution_alerts
from experiences.playbooks.services.evolutions import evolution_fault, evolution_queue
from experiences.playbooks.services.executions import NewTrace, traces_record
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, add, lived, model_agent, playbook_of, suggesting
from tests.support.running import run_to_end

LESSON = "Name the depot when a parcel is late, so that the customer can ask there."


@pytest.fixture
def server(settings: Any) -> Iterator[ModelServer]:
    settings.TRUSTED_SOURCES = frozenset({"executions"})
    with ModelServer(brain=lambda _: suggesting(add(LESSON, confidence=0.85)), prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def playbook(operator: Actor, adam: Any, server: ModelServer) -> Playbook:
    return playbook_of(operator, model_agent(Actor(adam), server))


def ran(actor: Actor, agent: Agent, n: int, duration_ms: float) -> None:
    """Records executions, one by one."""
    for _ in range(n):
        traces_record(actor, [NewTrace(agent, {"q": "Where is it?"}, {"a": "There."}, duration_ms, True)])


def test_a_slowdown_needs_ten_executions_a_factor_and_few_overlaps() -> None:
    fast, slow = [100.0] * 10, [200.0] * 10
    result = slowdown(fast, slow, factor=1.5)
    assert result is not None and result.factor == 2.0
    assert slowdown(fast, slow[:9], factor=1.5) is None and slowdown(fast, slow, factor=2.5) is None
    wide = [100.0, 1_000.0] * 5
    assert slowdown(wide, [300.0] * 4 + [900.0] * 6, factor=1.5) is None  # half of the pairs are slower: chance


@pytest.mark.django_db(transaction=True)
def test_evolution_pauses_while_the_agent_is_slower_and_goes_on_by_itself(operator: Actor, playbook: Playbook) -> None:
    ran(operator, playbook.agent, 10, 100.0)
    run_to_end(Evolution.objects.get().job)
    playbook.refresh_from_db()
    assert playbook.version == 2
    ran(operator, playbook.agent, 9, 400.0)
    assert evolution_fault(playbook) == ""  # too few to say
    ran(operator, playbook.agent, 1, 400.0)
    with pytest.raises(Slowed, match=r"4\.0 times as long \(median 400 ms, 100 ms before\)"):
        evolution_queue(operator, playbook)
    ran(operator, playbook.agent, 2, 400.0)
    assert Evolution.objects.count() == 1 and "is paused" in evolution_fault(playbook)
    [event] = SiteEvent.objects.filter(type="evolution.paused")
    assert event.agent_id == playbook.agent_id and "times as long" in event.text
    changed = Evolution.objects.get()
    Evolution.objects.update(settled_at=timezone.now() - timedelta(hours=25))
    assert evolution_fault(playbook) == ""  # at the latest a day after the change
    Evolution.objects.update(settled_at=changed.settled_at)
    assert "is paused" in evolution_fault(playbook)
    ran(operator, playbook.agent, 20, 100.0)  # the first of them finds it open, the eleventh or so closes it
    assert "is paused" not in evolution_fault(playbook)


@pytest.mark.django_db(transaction=True)
def test_agents_that_are_used_most_evolve_first_while_money_is_short(
    operator: Actor, adam: Any, playbook: Playbook, server: ModelServer
) -> None:
    busy = playbook.agent
    quiet: Agent = model_agent(Actor(adam), server, "Quiet")
    second = playbook_of(operator, quiet)
    lived(operator, busy, 3)
    lived(operator, quiet, 1)
    each = evolution_worst_case_micros(busy)
    limit = budget_set_limit(Actor(adam), organization=busy.organization_id, limit_micros=10 * each)
    type(limit).objects.filter(pk=limit.pk).update(spent_micros=10 * each - 3 * each // 2)
    with pytest.raises(Insufficient, match="1 agent that is used more may evolve first"):
        evolution_queue(operator, second)
    assert evolution_queue(operator, playbook).job.status == "queued"


@pytest.mark.django_db(transaction=True)
def test_alerts_are_events_once_an_agent_and_month(
    operator: Actor, playbook: Playbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENOUGH", 1), ("LEAST_CONFIDENCE", 0.9), ("MOST_USD", 0.0), ("MOST_WAITING", 0)):
        monkeypatch.setattr(evolution_alerts, name, value)
    for _ in range(2):
        lived(operator, playbook.agent, 2)
        assert run_to_end(evolution_queue(operator, playbook).job).status == "completed"
    result = SiteEvent.objects.filter(type="evolution.alert")
    assert sorted(event.data["alert"] for event in result) == ["confidence", "cost"]
    monkeypatch.setattr(evolution_alerts, "MOST_WAITING", -1)
    lived(operator, playbook.agent, 1)
    evolution_queue(operator, playbook)
    assert result.filter(data__alert="queue", agent_id=None).count() == 1
