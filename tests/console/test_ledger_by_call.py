"""The ledger by call: a row for a call, the entries behind it, the trajectory it was made for; small jobs folded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from budgets.ledger import Hold, reserve, settle
from budgets.ledger.accounts import Chain, chain_open
from budgets.models import Budget
from experiences.models import TrajectoryRecord
from experiences.trajectories.call_pages import call_pages
from experiences.trajectories.storage import trajectories_write
from tests.budgets.support import bill
from tests.console.conftest import SignIn
from tests.support.pages import html
from tests.support.rows import group, owner_of
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def paid(run: TrainingRun) -> Chain:
    """A run that paid for one rollout of its own, and holds money for another one that is not kept yet."""
    chain = chain_open(run.organization_id, agent_id=run.agent_id, job_id=run.job_id)
    for key, path, amount in (("a", "1/2/3", 148_083), ("b", "7/0/0", 20_000)):
        reserve(Hold(key, chain, amount, "training", "small", int(path[0]), f"{run.job_id}/w1/training/{path}"))
    settle("a", bill(120_001))
    return chain


def test_a_call_is_one_row_with_its_hold_its_cost_and_the_difference(
    console: Client, paid: Chain, run: TrainingRun
) -> None:
    shown = html(console.get(f"/budgets/{paid.job_budget}/"))
    assert "2 calls" in shown and shown.count('data-label="Reserved"') == 2
    # To the last micro-dollar, with the sign of what was held too much.
    assert "$0.148083" in shown and "$0.120001" in shown and "−$0.028082" in shown
    assert shown.count("on hold</span>") == 1
    # Its entries are behind it, on opening.
    assert "Reserve " in shown and "+$0.148083 on hold" in shown and "+$0.120001 spent," in shown
    kept = TrajectoryRecord.objects.get(job_id=run.job_id, iteration=1, scenario=2, rollout=3)
    assert shown.count("its trajectory") == 1 and f'href="/trajectories/{kept.pk}/"' in shown


def test_the_entries_are_one_click_away_and_a_kind_is_one_of_entries(console: Client, paid: Chain) -> None:
    address = f"/budgets/{paid.job_budget}/"
    shown = html(console.get(f"{address}?lines=entries"))
    assert "3 entries" in shown and "+$0.148083" in shown and "−$0.148083" in shown
    settled = html(console.get(f"{address}?kind=settle&model=small"))
    assert "1 entry" in settled and 'href="?model=small#ledger"' in settled  # by call, without the kind
    assert "No entry matches" in html(console.get(f"{address}?model=other"))


def test_a_call_leads_to_a_trajectory_of_the_reader_only_and_to_none_that_is_not_the_one(
    operator: Actor, charlie: Any, run: TrainingRun, evaluation: Any
) -> None:
    call = (run.job_id, f"{run.job_id}/w1/training/1/2/3")
    assert list(call_pages(operator, {call})) == [call] and call_pages(Actor(charlie), {call}) == {}
    arm = (evaluation.pk, f"{evaluation.pk}/w1/evaluation/trained/0/4/1")
    [trained] = TrajectoryRecord.objects.filter(job_id=evaluation.pk, scenario=4, rollout=1, arm="trained")
    assert call_pages(operator, {arm}) == {arm: f"/trajectories/{trained.pk}/"}
    # Validations, one after each so many iterations, give their rollouts the same numbers.
    for validation in ("0", "12"):
        trajectories_write(replace(owner_of(run), purpose="selection", line=validation), group(0, 4, 2).trajectories)
        [row] = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="selection", line=validation, rollout=1)
        named = (run.job_id, f"{run.job_id}/w1/selection.{validation}/0/4/1")
        assert call_pages(operator, {named}) == {named: f"/trajectories/{row.pk}/"}
    unsaid = (evaluation.pk, f"{evaluation.pk}/w1/evaluation/0/4/1")
    assert call_pages(operator, {unsaid, (run.job_id, "judge"), (run.job_id, "")}) == {}


def test_small_jobs_of_evolutions_are_one_line_until_they_are_asked_for(
    adam: Any, signed_in: SignIn, paid: Chain, run: TrainingRun
) -> None:
    for n in range(3):
        job = Job.objects.create(organization=run.organization, kind="evolution", title=f"Evolution {n}")
        chain = chain_open(run.organization_id, agent_id=run.agent_id, job_id=job.pk)
        reserve(Hold(f"e{n}", chain, 4_000, "evolution", "small"))
        settle(f"e{n}", bill(2_000))
    client = signed_in(adam)
    shown = html(client.get("/budgets/"))
    assert ">3 small jobs</a> of evolutions, $0.006 in all." in shown and ">Evolution 1</a>" not in shown
    assert str(Job.objects.get(pk=run.job_id)) in shown
    unfolded = html(client.get("/budgets/?small=shown"))
    assert unfolded.count(">Evolution ") >= 3 and "small jobs</a>" not in unfolded
    assert ">Evolution 1</a>" in html(client.get("/budgets/?q=Evolution+1"))
    assert b"".join(client.get("/budgets/?as=csv")).count(b"job") >= 4
    # One that is nearly used up asks for something, and is shown by itself.
    Budget.objects.filter(job__title="Evolution 2").update(limit_micros=2_100)
    shown = html(client.get("/budgets/"))
    assert ">2 small jobs</a>" in shown and ">Evolution 2</a>" in shown
