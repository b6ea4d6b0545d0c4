"""Evidence is of exactly what it measured: a release never carries the proof of another checkpoint."""

from __future__ import annotations

import random
import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from evaluation.models import EvaluationRun, Split
from evaluation.selectors import evaluation_proving
from evaluation.services import evaluation_start
from evaluation.serving.loop.advance import loops_advance
from evaluation.serving.models import LoopTurn, Release, TurnState
from evaluation.serving.releases.bundle_builder import evidence_of, known_of
from evaluation.serving.releases.presenters import proof_of
from evaluation.serving.releases.selectors import release_get
from evaluation.serving.releases.services import Unchanged, release_make
from experiences.models import Agent
from tests import factories
from tests.support.pages import html
from tests.support.rounds import rounds
from tests.support.rows import queued_run
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from training.models import PolicyCheckpoint, TrainingRun
from training.services import checkpoints
from training.services.checkpoints import checkpoint_rewrite
from training.services.runs import run_start, run_verdict_set
from training.services.starting_points import acts_by

pytestmark = pytest.mark.django_db

RUNS, RELEASES = rounds((4, 40), (20, 200))


def states(actor: Actor, agent: Agent) -> list[bytes]:
    """The bytes of the last checkpoints of four runs that learned by different seeds."""
    config = SMALL | {"n_iterations": 2}
    runs = []
    for seed in range(4):
        runs.append(run_start(actor, agent=agent, environment_options=SMALL_POOL, config=config | {"seed": seed}))
        assert run_to_end(runs[-1].job).status == Status.COMPLETED
    return [bytes(PolicyCheckpoint.objects.filter(run=run).latest("iteration").data or b"") for run in runs]


def run_with(actor: Actor, agent: Agent, chosen: list[bytes], scores: random.Random) -> TrainingRun:
    """A completed run whose checkpoints hold these bytes, with scores by which any may be the best."""
    run = queued_run(actor, agent)
    Job.objects.filter(id=run.job_id).update(status=Status.COMPLETED)
    for iteration, data in enumerate(chosen, start=1):
        score = scores.random()
        PolicyCheckpoint.objects.create(
            organization=agent.organization,
            agent=agent,
            run=run,
            iteration=iteration,
            data=data,
            sha256=PolicyCheckpoint.digest(data),
            size=len(data),
            validation_score=score,
            validation_low=score - 0.1,
        )
    TrainingRun.objects.filter(pk=run.pk).update(iteration=len(chosen))
    run.refresh_from_db()
    return run


def proven(checkpoint: PolicyCheckpoint, verdict: str, *, final: bool = False) -> EvaluationRun:
    """A completed evaluation on the held-out queries that says ``verdict``."""
    with transaction.atomic():
        job = lifecycle.submit(None, kind="evaluation", organization=checkpoint.organization, title="Evaluate")
    Job.objects.filter(id=job.id).update(status=Status.COMPLETED, finished_at=timezone.now())
    figures = dict.fromkeys(
        ("trained", "trained_low", "trained_high", "baseline", "improvement", "low", "high", "p_value"), 0.5
    )
    line = {"verdict": verdict, "metrics": {"success_rate": figures}}
    return EvaluationRun.objects.create(
        job=job,
        organization=checkpoint.organization,
        agent=checkpoint.agent,
        run=checkpoint.run,
        checkpoint=checkpoint,
        sha256=checkpoint.sha256,
        split=Split.HELD_OUT,
        samples=1,
        seed=1,
        final=final,
        report={"verdict": verdict, "primary": "held_out", "lines": {"held_out": line}},
    )


@pytest.mark.rounds
def test_no_release_has_the_proof_of_another_checkpoint(operator: Actor, agent: Agent, acme: Any) -> None:
    acme.max_active_jobs = 10_000
    acme.save()
    chance = random.Random(random.getrandbits(32))
    learner = factories.AgentFactory(organization=acme)
    bytes_of = states(operator, learner)
    agents = [factories.AgentFactory(organization=acme) for _ in range(3)]
    runs = [run_with(operator, chance.choice(agents), chance.sample(bytes_of, 3), chance) for _ in range(RUNS)]
    expected: dict[tuple[Any, str], str] = {}
    for number, run in enumerate(runs):
        best = checkpoints.best(run)
        assert best is not None
        others = PolicyCheckpoint.objects.filter(run=run).exclude(pk=best.pk)
        for checkpoint in (best, *chance.sample(list(others), chance.randrange(2))):
            verdict = f"proof {number} of {checkpoint.label}"
            proven(checkpoint, verdict, final=checkpoint == best)
            expected[checkpoint.agent_id, checkpoint.sha256] = verdict
        run_verdict_set(run, {"verdict": f"proof {number} of {best.label}", "success_rate": 0.5, "improvement": 0.5})
    made = 0
    while made < RELEASES:
        run = chance.choice(runs)
        checkpoint = chance.choice(list(PolicyCheckpoint.objects.filter(run=run).select_related("run", "agent")))
        try:
            release = release_make(operator, checkpoint.agent, checkpoint=checkpoint, note=f"{made}")
        except Unchanged as same:
            release = same.release
        made += 1
        result = known_of(release_get(operator, release.pk))
        assert result["held_out"].get("verdict") == expected.get((checkpoint.agent_id, checkpoint.sha256)), (
            checkpoint.label
        )
        assert result["sha256"] == checkpoint.sha256


def test_a_release_is_not_proven_until_its_own_checkpoint_is(
    operator: Actor, client: Any, olivia: Any, acme: Any
) -> None:
    learner = factories.AgentFactory(organization=acme)
    run = run_with(operator, learner, states(operator, learner)[:3], random.Random(7))
    best = checkpoints.best(run)
    assert best is not None
    proven(best, "Better than before.", final=True)
    run_verdict_set(run, {"verdict": "Better than before.", "success_rate": 0.5, "improvement": 0.5})
    last = PolicyCheckpoint.objects.filter(run=run).exclude(pk=best.pk).latest("iteration")
    release = release_make(operator, learner, checkpoint=last)
    client.force_login(olivia)
    page = html(client.get(f"/releases/{release.pk}/"))
    assert "Not proven on held-out queries" in page
    (asks,) = re.findall(rf'href="(/evaluations/start/\?checkpoint={last.pk}[^"]*)"', page)
    assert 'value="held_out" checked' in html(client.get(unescape(asks)))
    assert client.get(f"/api/v1/releases/{release.pk}").json()["evidence"]["held_out"] == {}
    proven(last, "Hardly better.")
    page = html(client.get(f"/releases/{release.pk}/"))
    assert "Hardly better." in page and f"start/?checkpoint={last.pk}" not in page
    assert client.get(f"/api/v1/releases/{release.pk}").json()["evidence"]["held_out"]["verdict"] == "Hardly better."
    assert proof_of(Release.objects.get(pk=release.pk)).text == "Hardly better."


def test_a_proof_by_another_model_is_none(operator: Actor, adam: Any, acme: Any) -> None:
    learner = factories.AgentFactory(organization=acme)
    run = run_with(operator, learner, states(operator, learner)[:1], random.Random(7))
    Agent.objects.filter(pk=learner.pk).update(runtime="llm", model="small")
    evaluation = proven(checkpoint := PolicyCheckpoint.objects.get(run=run), "Better.")
    EvaluationRun.objects.filter(pk=evaluation.pk).update(acts_by=acts_by(checkpoint.agent))
    assert evidence_of(checkpoint)["held_out"]["verdict"] == "Better."
    released = evidence_of(checkpoint)["acts_by"]
    Agent.objects.filter(pk=learner.pk).update(model="large")
    now = PolicyCheckpoint.objects.select_related("run__agent", "agent").get(pk=checkpoint.pk)
    assert (evidence_of(now)["held_out"], evidence_of(now)["moved"]) == ({}, ["model"])
    # A release keeps the model that it was made with, and so does its proof.
    assert evidence_of(now, released)["held_out"]["verdict"] == "Better."
    text = proof_of(Release(evidence=evidence_of(now))).text
    assert text == "Not proven: its agent had another model when it was measured."


def test_bytes_that_an_erasure_rewrote_lose_their_proof(operator: Actor, acme: Any) -> None:
    learner = factories.AgentFactory(organization=acme)
    first, second, *_ = states(operator, learner)
    run = run_with(operator, learner, [first], random.Random(7))
    checkpoint = PolicyCheckpoint.objects.get(run=run)
    proven(checkpoint, "Better.", final=True)
    assert evaluation_proving(checkpoint) is not None
    checkpoint_rewrite(checkpoint, second)
    assert evaluation_proving(PolicyCheckpoint.objects.get(pk=checkpoint.pk)) is None


def test_an_evaluation_whose_bytes_an_erasure_rewrites_meanwhile_proves_neither(operator: Actor, acme: Any) -> None:
    learner = factories.AgentFactory(organization=acme)
    _, other, *_ = states(operator, learner)
    run = TrainingRun.objects.filter(agent=learner).earliest("job__created_at")
    checkpoint = PolicyCheckpoint.objects.filter(run=run).latest("iteration")
    before = checkpoint.sha256
    evaluation = evaluation_start(operator, run=run, checkpoint=checkpoint, samples=1)
    checkpoint_rewrite(checkpoint, other)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    evaluation.refresh_from_db()
    assert evaluation.report and evaluation.sha256 == "" and before != PolicyCheckpoint.digest(other)


def test_a_learning_loop_releases_the_checkpoint_that_was_proven(operator: Actor, acme: Any) -> None:
    """Scores may change after the proof: by then another checkpoint can be the best one."""
    learner = factories.AgentFactory(organization=acme)
    run = run_with(operator, learner, states(operator, learner)[:3], random.Random(7))
    best = checkpoints.best(run)
    assert best is not None
    measured = PolicyCheckpoint.objects.filter(run=run).exclude(pk=best.pk).latest("iteration")
    proven(measured, "Better than before.", final=True)
    run_verdict_set(run, {"verdict": "Better than before.", "success_rate": 0.5, "improvement": 0.5})
    values = {"organization": acme, "agent": learner, "trigger": "person", "created_by": operator.user}
    turn = LoopTurn.objects.create(**values, number=1, state=TurnState.TRAINING, run=run)
    loops_advance()
    turn.refresh_from_db()
    assert turn.release is not None and turn.release.checkpoint == measured
    assert turn.release.evidence["held_out"]["verdict"] == "Better than before."
