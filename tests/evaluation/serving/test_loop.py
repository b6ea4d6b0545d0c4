"""The circle: production traces become rows, a job, a release, a deployment."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from evaluation.models import EvaluationRun
from evaluation.serving.loop.advance import loops_advance
from evaluation.serving.loop.selectors import loop_of
from evaluation.serving.loop.services import loop_change, turn_start
from evaluation.serving.models import AgentServing, LoopTurn
from experiences.models import Agent
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.loops import judged
from tests.support.pages import html
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
    loops_advance()
    return LoopTurn.objects.get(pk=turn.pk)


def trained(turn: LoopTurn) -> LoopTurn:
    """With its job and the proof at their end."""
    assert turn.run is not None
    run_to_end(turn.run.job)
    for proof in EvaluationRun.objects.filter(run=turn.run):
        run_to_end(proof.job)
    return ticked(turn)


def test_production_teaches_the_agent_and_the_learned_context_is_served(operator: Actor, agent: Agent) -> None:
    judged(agent, SUMS)
    loop_change(operator, agent, config=SMALL, monthly_usd=5.0)
    turn = ticked(turn_start(operator, agent))
    assert (turn.state, turn.rows_found, turn.rows_flagged) == ("reviewing", 60, 0)
    turn = ticked(turn)
    assert turn.state == "training" and turn.run is not None and turn.run.dataset is not None
    assert turn.run.dataset.size == 60 and turn.run.limit_micros == 5_000_000
    loops_advance()
    assert LoopTurn.objects.get(pk=turn.pk).waits_for == "its job, queued at 0 %"
    turn = trained(turn)
    assert turn.state == "gating" and turn.gain["improvement"] > 0.2 and turn.gain["low"] > 0
    turn = ticked(ticked(turn))
    assert (turn.state, turn.reason) == ("done", "") and turn.ended_at is not None
    assert AgentServing.objects.get(agent=agent).release == turn.release
    assert promoted(agent) == turn.release.checkpoint  # the next turn goes on from there
    assert loops_advance() == 0


def test_its_page_shows_the_track_the_review_and_what_begins_the_next_turn(
    operator: Actor, agent: Agent, console: Client, charlie: Any
) -> None:
    page = f"/agents/{agent.pk}/loop/"
    assert "has not learned from production" in html(console.get(page))
    settings = {
        "on": "on",
        "after_traces": "100",
        "daily": "on",
        "monthly_usd": "5",
        "least_rows": "20",
        "review": "all",
        "preset": "recommended",
        "config": json.dumps(SMALL),
        "strategy": "canary",
        "shares": "20, 50",
        "minutes": "0",
        "sessions": "5",
        "feedback_minutes": "0",
        "margin": "",
    }
    assert console.post(page, settings | {"shares": "50, 20"}).status_code == 400
    assert console.post(page, settings | {"config": '{"n_iteration": 3}'}).status_code == 400
    assert console.post(page, settings).status_code == 302
    loop = loop_of(agent)
    assert (loop.on, loop.acts_as, loop.rule["stages"][0]["share"]) == (True, operator.user, 0.2)
    judged(agent, SUMS)
    shown = html(console.get(page))
    assert "After 40 more of 100 new traces." in shown and "at 02:00 UTC" in shown
    assert console.post(f"{page}start/").status_code == 302
    loops_advance()
    turn = LoopTurn.objects.get()
    shown = html(console.get(page))
    row = turn.rows.first()
    assert row is not None and row.query in shown
    assert "Approve all 60" in shown and 'aria-current="step">Review' in shown
    console.post(f"/loop-turns/{turn.pk}/rows/", {"row": row.pk, "reject": ""})
    console.post(f"/loop-turns/{turn.pk}/rows/", {"approve": ""})
    assert Counter(turn.rows.values_list("state", flat=True)) == {"approved": 59, "rejected": 1}
    console.post(f"/loop-turns/{turn.pk}/stop/")
    turn.refresh_from_db()
    assert (turn.state, turn.reason) == ("stopped", "By olivia.")
    assert "Stopped at review: By olivia." in html(console.get(page))
    # A key, and another organisation.
    api = Caller(operator.user)
    assert api.get(f"loop-turns/{turn.pk}/rows?state=rejected").json()["results"][0]["decided_by"] == "olivia"
    assert api.patch(f"agents/{agent.slug}/loop", {"monthly_usd": 0}).json()["next"] == [
        "This month's budget is used up."
    ]
    assert api.post(f"agents/{agent.slug}/loop/start", {}).status_code == 409
    assert Caller(charlie).get(f"agents/{agent.pk}/loop").status_code == 404
