"""Outgoing events: recorded in their own transaction, published once, exactly by their schema."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from nats.aio.client import Client
from nats.js import JetStreamContext

from agentcore_site.health import board
from agentcore_site.jobs import lifecycle
from agentcore_site.lib.heartbeats import heartbeats_send
from agentcore_site.lib.retention import rows_delete
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from evaluation.events.models import EventKind, OutboxEvent
from evaluation.events.relay import Relay, batch_settle, batch_take
from evaluation.events.retention import settled
from evaluation.events.subjects import DEPLOYED, REWARD, STATUS, TRAJECTORY
from evaluation.serving.deployments.services import deployment_roll_back, deployment_start, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.releases.services import release_make
from experiences.models import TrajectoryRecord
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from experiences.trajectories.storage import trajectories_write
from tests import factories
from tests.evaluation.events.conftest import Bus, nats_running
from tests.support.events import exact, stored
from tests.support.rows import lived_run, owner_of, queued_run
from tests.support.workers import Fleet, eventually
from training.services.runs import run_verdict_set

pytestmark = pytest.mark.django_db


def relayed(bus: Bus) -> dict[str, list[dict[str, Any]]]:
    """Publishes all that waits. Returns the payloads in the streams, by plain subject."""
    found: dict[str, list[dict[str, Any]]] = {}

    async def talk(client: Client, js: JetStreamContext) -> None:
        relay = Relay(client, stopping=None)  # type: ignore[arg-type]  # it is asked for single batches
        while await relay.once():
            pass
        for name in ("RL_TRAJECTORIES", "RL_REWARDS", "RL_TRAINING"):
            for subject, payload in await stored(js, name):
                found.setdefault(subject.partition("agent.")[1] + subject.partition("agent.")[2], []).append(payload)

    bus.speak(talk)
    return found


def noted() -> dict[str, int]:
    kinds = list(OutboxEvent.objects.values_list("kind", flat=True))
    return {kind: kinds.count(kind) for kind in set(kinds)}


def test_nothing_is_noted_of_an_organisation_that_does_not_publish(operator: Actor, agent: Any) -> None:
    lived_run(operator, agent)
    assert noted() == {}


def test_a_run_is_published_once_as_its_schemas_say(
    bus: Bus, published: Organization, operator: Actor, agent: Any
) -> None:
    run = lived_run(operator, agent)
    run_verdict_set(run, {"verdict": "Better.", "success_rate": 0.7, "improvement": 0.1})
    found = relayed(bus)
    assert {subject: len(found[subject]) for subject in (TRAJECTORY, REWARD)} == {TRAJECTORY: 24, REWARD: 24}
    for subject, payloads in found.items():
        for payload in payloads:
            assert [error.message for error in exact(subject).iter_errors(payload)] == [], subject
    [first] = [one for one in found[TRAJECTORY] if one["trajectory_id"] == found[REWARD][0]["trajectory_id"]]
    row = TrajectoryRecord.objects.get(id=first["trajectory_id"])
    assert first["agent_id"] == agent.slug
    assert first["task_context"]["instructions"] == row.query
    assert [turn["turn_id"] for turn in first["turns"]] == list(range(1, row.n_steps + 1))
    assert found[REWARD][0]["total_reward"] == row.reward
    statuses = found[STATUS]
    assert statuses[0]["status"] == "queued"
    assert statuses[-1]["evaluation_results"]["holdout_reward"] == 0.7
    assert {one["training_job_id"] for one in statuses} == {str(run.job_id)}
    # A second look finds nothing that waits.
    assert relayed(bus) == found


def test_a_rolled_back_change_is_not_noted(published: Organization, operator: Actor, agent: Any) -> None:
    run = queued_run(operator, agent)
    before = noted()
    with pytest.raises(RuntimeError), transaction.atomic():
        trajectories_write(owner_of(run), [Trajectory(RolloutKey(0, 0, 0), "1 + 1?", [])])
        assert noted() != before
        raise RuntimeError
    assert noted() == before


def test_trajectories_of_evaluations_are_not_published(published: Organization, operator: Actor, agent: Any) -> None:
    run = queued_run(operator, agent)
    tested = replace(owner_of(run), purpose="evaluation", line="held_out")
    trajectories_write(tested, [Trajectory(RolloutKey(0, 0, 0), "1 + 1?", [])])
    assert EventKind.TRAJECTORY not in noted()


def test_a_rollout_goes_out_without_personal_data_and_not_at_all_without_consent_to_record(
    bus: Bus, published: Organization, operator: Actor, agent: Any
) -> None:
    run = queued_run(operator, agent)
    said = Step({"observation": "write to jane.doe@example.org"}, {"type": "answer", "parameters": {"text": "ok"}}, {})
    trajectories_write(owner_of(run), [Trajectory(RolloutKey(0, 0, 0), "who is jane.doe@example.org?", [said])])
    [payload] = relayed(bus)[TRAJECTORY]
    assert "jane.doe" not in str(payload)
    assert payload["turns"][0]["action"] == {
        "type": "response", "tool_name": None, "tool_args": {}, "raw_response": "ok",
    }  # fmt: skip
    trajectories_write(owner_of(run), [Trajectory(RolloutKey(0, 0, 1), "1 + 1?", [])])
    agent.collects = False
    agent.save()
    assert len(relayed(bus)[TRAJECTORY]) == 1
    assert OutboxEvent.objects.get(kind="trajectory", withheld__gt="").withheld == "its agent may not be recorded"


def test_a_row_that_was_sent_but_not_settled_is_stored_once(
    bus: Bus, published: Organization, operator: Actor, agent: Any
) -> None:
    queued_run(operator, agent)
    before = relayed(bus)
    OutboxEvent.objects.update(settled_at=None, try_after="2020-01-01T00:00Z")  # the relay died between the two
    assert relayed(bus) == before


def test_two_relays_never_take_the_same_row(published: Organization, operator: Actor, agent: Any) -> None:
    lived_run(operator, agent)
    first, second = batch_take(30), batch_take(1000)
    assert len(first) == 30
    assert {one.id for one in first}.isdisjoint(one.id for one in second)
    assert batch_take() == []  # all are leased


def test_each_step_of_a_deployment_is_published(bus: Bus, published: Organization, operator: Actor) -> None:
    agent = factories.AgentFactory(organization=published, runtime="llm", environment="dataset")
    serving_change(operator, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
    first = release_make(operator, agent)
    factories.ExperienceFactory(agent=agent, handle="x0000000009")
    second = release_make(operator, agent)
    deployment_start(operator, first, strategy="immediate")
    relayed(bus)
    OutboxEvent.objects.all().delete()
    deployment = deployment_start(operator, second, strategy="canary")
    deployment_roll_back(operator, deployment)
    steps = relayed(bus)[DEPLOYED][-2:]
    assert [(one["metadata"]["step"], one["deployment_config"]["traffic_percentage"]) for one in steps] == [
        ("started", 10.0), ("rolled_back", 0.0),
    ]  # fmt: skip
    for payload in steps:
        assert [error.message for error in exact(DEPLOYED).iter_errors(payload)] == []
    assert [one["percentage"] for one in steps[0]["deployment_config"]["ramp_schedule"]] == [10.0, 25.0, 50.0, 100.0]


def test_a_paused_job_is_reported_as_queued(bus: Bus, published: Organization, operator: Actor, agent: Any) -> None:
    lifecycle.pause(operator, queued_run(operator, agent).job)
    last = relayed(bus)[STATUS][-1]
    assert (last["status"], last["metadata"]["status_reason"]) == ("queued", "user")


def test_events_published_a_day_ago_are_deleted(published: Organization, operator: Actor, agent: Any) -> None:
    queued_run(operator, agent)
    assert rows_delete(settled(), raw=True) == 0
    OutboxEvent.objects.update(settled_at="2020-01-01T00:00Z")
    assert rows_delete(settled(), raw=True) == 1


def test_the_streams_are_made_by_one_command_as_the_design_has_them(bus: Bus) -> None:
    async def without(client: Client, js: JetStreamContext) -> None:
        for stream in await js.streams_info():
            await js.delete_stream(stream.config.name or "")

    async def found(client: Client, js: JetStreamContext) -> dict[str, tuple[Any, ...]]:
        configs = [one.config for one in await js.streams_info()]
        return {str(one.name): (one.max_age, one.max_msgs, str(one.storage)) for one in configs}

    bus.speak(without)
    call_command("events_setup")
    call_command("events_setup")
    day = 86_400
    assert {name: values for name, values in bus.speak(found).items() if name != "RL_DEAD_LETTERS"} == {
        "RL_TRAJECTORIES": (30 * day, 1_000_000, "file"),
        "RL_REWARDS": (30 * day, 500_000, "file"),
        "RL_TRAINING": (7 * day, 10_000, "file"),
    }


def test_a_failed_row_is_tried_again_by_the_databases_clock(
    published: Organization, operator: Actor, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued_run(operator, agent)
    monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + timedelta(days=1))
    batch_settle({}, [], [row.id for row in batch_take()])
    assert not OutboxEvent.objects.filter(try_after__gt=Now() + timedelta(seconds=5)).exists()


@pytest.mark.thorough(reason="a server is killed, and stays away")
@pytest.mark.django_db(transaction=True)
def test_while_nats_is_away_events_wait_and_each_comes_once(
    fleet: Fleet, published: Organization, operator: Actor, agent: Any, settings: Any
) -> None:
    draw = random.Random(seed := random.randrange(10**6))
    print("seed", seed)
    with nats_running() as (server, keeper):
        settings.NATS_URL = server.url()
        fleet.feedback_loop("--only", "relay", NATS_URL=server.url())
        for away in range(3):
            lived_run(operator, agent)
            time.sleep(draw.uniform(0, 2))
            keeper.running[0].handle.kill()
            keeper.running[0].handle.wait()
            lived_run(operator, factories.AgentFactory(organization=published))
            time.sleep(draw.uniform(0, 5))
            board().forget()
            found = board().found()["nats"]
            assert (found["status"], found["detail"]) == ("degraded", "away: events wait in the outbox")
            waiting = OutboxEvent.objects.filter(settled_at=None)
            waiting.update(created_at=timezone.now() - timedelta(days=40 * away))  # however long it is away
            count = waiting.count()
            assert count >= 24
            rows_delete(settled(), raw=True)
            assert waiting.count() == count
            eventually(lambda: keeper.watch() or server.ready(), seconds=30)
            eventually(lambda: not OutboxEvent.objects.filter(settled_at=None).exists(), seconds=60)

        async def ids(_: Client, js: JetStreamContext) -> list[str]:
            return [payload["trajectory_id"] for _, payload in await stored(js, "RL_TRAJECTORIES")]

        came = Bus(server).speak(ids)
    assert len(came) == len(set(came)) == 6 * 24
    assert set(came) == set(map(str, TrajectoryRecord.objects.values_list("id", flat=True)))


def test_health_names_nats_and_each_part(bus: Bus) -> None:
    board().forget()
    heartbeats_send(("relay",))
    found = board().found()
    assert (found["nats"]["status"], found["relay"]["status"]) == ("ok", "ok")
    assert found["consumers"]["detail"] == "not seen: run manage.py feedback_loop"
