"""The circle: production traces become rows, a job, a release, a deployment."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from evaluation.models import EvaluationRun
from experiences.models import Agent
from serving.loop.services import loop_change, turn_start
from serving.loop.ticking import loops_tick
from serving.models import AgentServing, LoopTurn
from tests.factories import AgentFactory
from tests.support.loops import judged
from tests.support.running import SMALL, run_to_end
from training.services.promotion import promoted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def agent(acme: Organization, olivia: Any) -> Agent:
    """One that chooses actions: its jobs take a second."""
    made: Agent = AgentFactory(organization=acme, created_by=olivia, environment="dataset")
    return made


SUMS = [(f"What is {n} + 4?", str(n + 4)) for n in range(60)]


def ticked(turn: LoopTurn) -> LoopTurn:
    loops_tick()
    return LoopTurn.objects.get(pk=turn.pk)


def trained(turn: LoopTurn) -> LoopTurn:
    """With its job and the proof at their end."""
    assert turn.run is not None
    run_to_end(turn.run.job)
    for proof in EvaluationRun.objects.filter(run=turn.run):
        run_to_end(proof.job)
    return ticked(turn)


def test_production_teaches_the_agent_and_what_it_learned_is_served(operator: Actor, agent: Agent) -> None:
    judged(agent, SUMS)
    loop_change(operator, agent, config=SMALL, monthly_usd=5.0)
    turn = ticked(turn_start(operator, agent))
    assert (turn.state, turn.rows_found, turn.rows_flagged) == ("reviewing", 60, 0)
    turn = ticked(turn)
    assert turn.state == "training" and turn.run is not None and turn.run.dataset is not None
    assert turn.run.dataset.size == 60 and turn.run.limit_micros == 5_000_000
    loops_tick()
    assert LoopTurn.objects.get(pk=turn.pk).waits_for == "its job, queued at 0 %"
    turn = trained(turn)
    assert turn.state == "gating" and turn.gain["improvement"] > 0.2 and turn.gain["low"] > 0
    turn = ticked(ticked(turn))
    assert (turn.state, turn.reason) == ("done", "") and turn.ended_at is not None
    assert AgentServing.objects.get(agent=agent).release == turn.release
    assert promoted(agent) == turn.release.checkpoint  # the next turn goes on from there
    assert loops_tick() == 0
