"""A later run of an agent goes on from the earlier one: its split, its evidence, what its gate refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from evaluation.serving.releases.skill import Skill, skill_archive
from evaluation.serving.releases.skill_imports import skill_import
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.endpoints import endpoint_create
from experiences.lessons.services.lessons import (
    experience_approve,
    experience_prune,
    experience_quarantine,
    experience_restore,
)
from experiences.models import Agent, Experience, ExperienceChange
from tests.factories import ExperienceFactory
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.running import run_to_end
from tests.support.simulated_adviser import Adviser
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import Epoch, PolicyCheckpoint, TrainingRun
from training.policies.context import ContextPolicy
from training.presenters.epochs import went_on_words
from training.services import checkpoints
from training.services.pools import run_pools
from training.services.removed_lessons import WAITING, memory_of_run
from training.services.run_setup import setup_of
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

WORLD = World(7)
ROWS = WORLD.rows(60, 7)
CONFIG = {
    "n_iterations": 3,
    "batch_size": 8,
    "n_trajectories_per_query": 6,
    "max_concurrent_rollouts": 32,
    "max_budget_usd": 5.0,
    # Its gate lets nothing through.
    "context": {"epochs": 1, "gate_samples": 4, "gate_alpha": 1e-9, "accept_weak_gate": True},
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD) as running:
        running.brain = Adviser(WORLD, WORLD.helpful[:3])
        yield running


@pytest.fixture
def agent(adam: Any, server: ModelServer, settings: Any) -> Agent:
    settings.JOB_SLICE_SECONDS = settings.JOB_ROUND_SECONDS = 600
    actor = Actor(adam)
    for model in ("small", "large"):
        price_set(
            actor,
            model=model,
            organization=adam.memberships.get().organization,
            input_micros=1_000,
            output_micros=1_000,
        )
    endpoint = endpoint_create(actor, name="local", base_url=server.base_url, model="small", api_key="sk-test-123")
    return agent_create(
        actor, name="Learner", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=200
    )


@pytest.fixture
def first(operator: Actor, agent: Agent) -> TrainingRun:
    """A run whose gate refused what helps."""
    run = start(operator, agent)
    assert run_to_end(run.job).status == Status.COMPLETED
    gate = Epoch.objects.get(run=run).gate
    assert gate is not None and not gate["accepted"] and gate["candidate"]
    return run


def start(actor: Actor, agent: Agent, **changes: Any) -> TrainingRun:
    context = CONFIG["context"] | changes.pop("context", {})  # type: ignore[operator]
    return run_start(actor, agent=agent, rows=ROWS, config={**CONFIG, **changes, "context": context})


def started(actor: Actor, agent: Agent, **changes: Any) -> TrainingRun:
    """A later run as it begins: it ends before it does anything."""
    run = start(actor, agent, **changes)
    job_cancel(actor, run.job)
    return run


def began(run: TrainingRun) -> ContextPolicy:
    policy = setup_of(run, work="1").fresh_state().policy
    assert isinstance(policy, ContextPolicy)
    return policy


def ended(run: TrainingRun) -> ContextPolicy:
    policy = policy_of(checkpoint_load(checkpoints.latest(run)))  # type: ignore[arg-type]
    assert isinstance(policy, ContextPolicy)
    return policy


def test_a_finished_run_goes_on_by_one_click_with_all_that_it_still_tried(
    operator: Actor, agent: Agent, first: TrainingRun, client: Client, olivia: Any, stella: Any
) -> None:
    """By the page, by REST and by JSON-RPC; the amount decides how many iterations there are."""
    client.force_login(olivia)
    page, door = f"/jobs/{first.pk}/", f"/api/v1/training-jobs/{first.pk}/go-on"
    seen = client.get(door).json()
    assert seen["can_go_on"] and seen["lessons"] == int(ended(first).live.sum()) and seen["gain"]["expected"] >= 0
    assert seen["rollouts"] > 0 and seen["text"] in html(client.get(page)).replace("&#x27;", "'")
    more = client.get(door, {"amount_usd": 10 * seen["amount_usd"]}).json()
    assert more["gain"]["expected"] >= seen["gain"]["expected"] and more["rollouts"] > seen["rollouts"]
    assert [client.get(door, {"amount_usd": odd}).status_code for odd in ("nan", "-1", "inf", "x")] == [400] * 4
    odd = client.post(door, {"max_budget_usd": "nan"}, "application/json")
    assert odd.status_code == 400 and client.post(f"{page}go-on/", {"max_budget_usd": "nan"}).status_code == 400
    wrong = client.post(f"{page}go-on/", {"max_budget_usd": "much"})
    assert wrong.status_code == 400 and 'value="much"' in html(wrong)
    assert "Give an amount in dollars" in html(wrong) and "Learning curves" in html(wrong)
    # The page starts it.
    answer = client.post(f"{page}go-on/", {"max_budget_usd": seen["amount_usd"]})
    second = TrainingRun.objects.exclude(pk=first.pk).get()
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{second.pk}/")
    assert (second.continues, second.dataset, second.seed) == (first, first.dataset, first.seed)
    assert second.job.title == f"{first.job.title}, further"
    mine, theirs = second.configuration.as_dict(), first.configuration.as_dict()
    changed = {name for name in mine if mine[name] != theirs[name]}
    assert changed <= {"max_budget_usd", "n_iterations"} and mine["max_budget_usd"] == seen["amount_usd"]
    before, now = ended(first), began(second)
    live = {lesson.handle for lesson in before.library if lesson.live}
    assert {one.handle for one in now.library} == live and np.array_equal(now.evidence.group, before.evidence.group)
    assert f'href="/jobs/{second.pk}/"' in html(client.get(page))
    assert client.get(f"/api/v1/training-jobs/{first.pk}").json()["continued_by"] == [str(second.pk)]
    assert 'id="go-on"' not in html(client.get(f"/jobs/{second.pk}/"))  # it is not done
    refused = client.post(door.replace(str(first.pk), str(second.pk)), {"max_budget_usd": 1}, "application/json")
    assert refused.status_code == 409 and "has not completed" in refused.json()["detail"]
    busy = client.post(f"{page}go-on/", {"max_budget_usd": "3.5"})
    assert busy.status_code == 409 and "already has an active training job" in html(busy)
    assert 'value="3.5"' in html(busy)
    job_cancel(operator, second.job)
    # Twice the money pays for more iterations; an amount that is none is refused with the field.
    wrong = client.post(door, {"max_budget_usd": -1}, "application/json")
    assert wrong.status_code == 400 and "max_budget_usd" in wrong.content.decode()
    twice = client.post(door, {"max_budget_usd": 2 * seen["amount_usd"]}, "application/json")
    assert twice.status_code == 201 and twice.json()["config"]["n_iterations"] > second.total_iterations
    job_cancel(operator, TrainingRun.objects.get(pk=twice.json()["id"]).job)
    called = client.post(
        "/api/v1/jsonrpc",
        {"jsonrpc": "2.0", "id": 1, "method": "training.go_on", "params": [str(first.pk), seen["amount_usd"], "Third"]},
        "application/json",
    ).json()
    third = TrainingRun.objects.get(pk=called["result"]["training_job_id"])
    assert third.continues == first and third.job.title == "Third"
    job_cancel(operator, third.job)
    # A viewer sees neither the button nor the door.
    client.force_login(stella)
    assert 'id="go-on"' not in html(client.get(page))
    assert client.post(door, {"max_budget_usd": 1}, "application/json").status_code == 403


def test_the_next_run_tries_again_what_was_refused_and_counts_what_was_paid_for(
    operator: Actor, agent: Agent, first: TrainingRun, client: Client, olivia: Any
) -> None:
    second = start(operator, agent)
    before, now = ended(first), began(second)
    refused = set(Epoch.objects.get(run=first).gate["candidate"])  # type: ignore[index]
    assert {one.handle for one in now.library} == refused and now.start == () and second.continues == first
    places = [before.library.position[one.handle] for one in now.library]
    # All earlier rollouts are there, with the words of their queries: effects on each query are what they were.
    if len(places) == len(before.library):
        assert now.by_query().mean == pytest.approx(before.by_query().mean[places], abs=1e-3)
    assert np.array_equal(now.evidence.group, before.evidence.group) and len(now.evidence.names)
    assert now.effects.gram == pytest.approx(before.effects.gram[np.ix_(places, places)])
    assert np.abs(now.estimate().beta).min() > 0
    assert second.origin["refused"] == len(refused) and second.origin["weight"] == 1.0 and second.origin["rollouts"] > 0
    # It is compared with the former context, which is empty; and on queries that taught nothing so far.
    assert second.baseline == "the untrained baseline"
    assert run_pools(second).selection == run_pools(first).selection
    assert run_to_end(second.job).status == Status.COMPLETED
    known = began(second).effects.rollouts.max()
    assert ended(second).effects.rollouts.max() == known + 3 * 8 * 6
    # Both are said.
    client.force_login(olivia)
    shown = html(client.get(f"/jobs/{second.pk}/?tab=learned"))
    assert f'href="/jobs/{first.pk}/?tab=learned"' in shown and "that its gate refused" in shown
    answer = client.get(f"/api/v1/training-jobs/{second.pk}").json()
    assert answer["continues"]["job_id"] == str(first.pk)
    assert client.get(f"/api/v1/training-jobs/{first.pk}").json()["continues"] is None


def test_its_starting_point_depends_on_the_person_the_changes_and_the_tests(
    operator: Actor, adam: Any, agent: Agent, first: TrainingRun
) -> None:
    alone = started(operator, agent, context={"reuse": False})
    assert (alone.continues, alone.known, alone.library, alone.warnings) == (None, None, [], first.warnings)
    # What tests a run never taught one whose evidence it holds.
    other = started(operator, agent, seed=first.seed + 1)
    assert (other.continues, other.known, other.library) == (None, None, [])
    assert f"taught that one. With its data and the seed {first.seed} they would be split" in other.warnings[-1]
    # What a person took out is not tried again.
    handles = [one.handle for one in began(started(operator, agent)).library]
    Experience.objects.filter(agent=agent, handle=handles[0]).update(status="pruned")
    assert [one.handle for one in began(started(operator, agent)).library] == handles[1:]
    # What was measured of another model counts a quarter.
    agent_update(Actor(adam), agent, model="large")
    changed = started(operator, Agent.objects.get(pk=agent.pk))
    assert changed.origin["changed"] == ["model"] and changed.origin["weight"] == 0.25
    assert began(changed).effects.rollouts.max() == 0.25 * ended(first).effects.rollouts.max()
    assert "each at 25 % of its weight since the agent's model changed" in went_on_words(changed)
    # A launch goes through even if the things it was measured with have changed, and says so.
    checkpoint = checkpoints.latest(first)
    PolicyCheckpoint.objects.filter(pk=checkpoint.pk).update(sha256="0" * 64)  # type: ignore[union-attr]
    damaged = started(operator, Agent.objects.get(pk=agent.pk))
    assert damaged.continues is None and "could not be read and is not used" in damaged.warnings[-1]


def test_a_removed_lesson_is_not_tried_again_as_a_new_one(
    operator: Actor, adam: Any, agent: Agent, first: TrainingRun
) -> None:
    by_person, measured, waiting = Experience.objects.filter(agent=agent).order_by("handle")
    harmless = ExperienceFactory(agent=agent, job=first.job)
    experience_prune(operator, by_person, why="it costs a day")
    for row, effect in ((measured, -0.2), (harmless, -0.01)):
        Experience.objects.filter(pk=row.pk).update(status="pruned", effect=effect, effect_error=0.05)
        line = {"action": "pruned", "version": 1, "by": "iteration 3", "job": first.job}
        ExperienceChange.objects.create(experience=row, **line)
    experience_quarantine(operator, waiting, why="who says so?")

    def known(run: TrainingRun) -> dict[str, str]:
        return {one.text: one.why for one in memory_of_run(run).lessons}

    estimates = known(started(operator, agent))
    assert estimates == {
        by_person.summary: "a person took it out: it costs a day",
        measured.summary: "an earlier job measured it and took it out (-0.200 of reward, standard error 0.050)",
        waiting.summary: "a person has yet to decide about a lesson of an earlier job that says the same",
    }
    # What a job took out whose row is gone was no person's word, and the conditions of its measurement are unknown.
    of_gone = ExperienceFactory(agent=agent, status="pruned", effect=-0.2, effect_error=0.05)
    ExperienceChange.objects.create(experience=of_gone, action="pruned", version=1, by="iteration 3", job=None)
    assert of_gone.summary not in known(started(operator, agent))
    # A person's word holds for a run from the start too; what was measured of another model may be tried again.
    assert set(known(started(operator, agent, context={"reuse": False}))) == {by_person.summary, waiting.summary}
    agent_update(Actor(adam), agent, model="large")
    agent = Agent.objects.get(pk=agent.pk)
    assert set(known(started(operator, agent))) == {by_person.summary, waiting.summary}
    # Restored: it may be proposed again.
    experience_restore(operator, Experience.objects.get(pk=by_person.pk))
    assert set(known(started(operator, agent))) == {waiting.summary}
    # What a job took out and a person restored is tried again, once, as the console says.
    Experience.objects.filter(pk=harmless.pk).update(rollouts=40)
    experience_restore(operator, Experience.objects.get(pk=harmless.pk))
    assert harmless.handle in {one["lesson"]["handle"] for one in started(operator, agent).library}
    Experience.objects.filter(pk=harmless.pk).update(updated_at=timezone.now())  # as a job that measured it does
    assert harmless.handle not in {one["lesson"]["handle"] for one in started(operator, agent).library}
    # A job that is taught the same lesson again says so, and does not try it.
    job = start(operator, agent)
    assert run_to_end(job.job).status == Status.COMPLETED
    changes = [change for epoch in Epoch.objects.filter(run=job) for change in epoch.changes]
    assert any(change["why"] == WAITING and not change["taken"] for change in changes)


def test_training_free_grpo_goes_on_from_what_its_search_kept(operator: Actor, agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(grouped_execution=True)
    agent.refresh_from_db()
    first = start(operator, agent, algorithm="tfgrpo", n_iterations=2)
    assert run_to_end(first.job).status == Status.COMPLETED
    kept = ended(first).kept
    assert kept and not ended(first).shipped
    second = began(started(operator, agent, algorithm="tfgrpo"))
    assert {one.handle for one in second.library if one.status == "proposed"} == set(kept) and not second.start


def test_a_job_measures_imported_lessons_one_by_one_once_a_person_approved_them(
    operator: Actor, adam: Any, agent: Agent
) -> None:
    """The gain that the skill states is no evidence, and what waits for a person is in no prompt."""
    rng = random.Random(3)
    good, bad, waiting = (WORLD.lesson(one, WORLD.kinds[0], rng) for one in (*WORLD.helpful[3:5], WORLD.harmful[0]))
    facts = {"agentcore-gain": "90.0 points (95 % interval 89.0 to 91.0)"}
    data = skill_archive(
        Skill("theirs", "", "Another prompt.", [good, bad, waiting], facts), Ed25519PrivateKey.generate()
    )
    assert all(one.is_new and not one.suspicion for one in skill_import(operator, agent, data).proposed)
    assert started(operator, agent).library == []
    rows = {row.summary: row for row in Experience.objects.filter(agent=agent)}
    for text in (good, bad):
        experience_approve(operator, rows[text])
    # A search compares whole contexts, and measures no single lesson.
    Agent.objects.filter(pk=agent.pk).update(grouped_execution=True)
    agent.refresh_from_db()
    assert started(operator, agent, algorithm="tfgrpo").library == []
    # Where there is room for one, the first comes.
    room = started(operator, agent, context={"max_items": 1}).library
    assert [(one["lesson"]["text"], one["lesson"]["status"]) for one in room] == [(good, "proposed")]
    few = started(operator, agent, context={"max_tokens": 100, "max_words": 100})
    assert [one["lesson"]["text"] for one in few.library] == [good, bad]
    run = start(operator, agent)
    assert [(one["effect"], one["rollouts"]) for one in run.library] == [(None, 0)] * 2
    assert run_to_end(run.job).status == Status.COMPLETED
    for text, row in rows.items():
        row.refresh_from_db()
        assert "from the skill theirs" in row.why and "signed by the key" in row.why
        assert (row.rollouts > 0, row.effect is not None) == (text != waiting, text != waiting)
    tried = began(run).library
    assert [one.text for one in tried] == [good, bad] and not began(run).start
    included = ended(run).evidence.included
    places = [ended(run).library.position[rows[text].handle] for text in (good, bad)]
    assert 0 < included[:, places].mean() < 1 and (included[:, places[0]] != included[:, places[1]]).any()
    assert waiting not in {one.text for one in ended(run).library}
    # What was measured is left to the next run's own starting point.
    assert {one["lesson"]["handle"] for one in started(operator, agent, context={"reuse": False}).library} == set()
