"""Training requests: run here where a learner of ours can, else handed over and mirrored as a job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from nats.aio.client import Client as NatsClient
from nats.js import JetStreamContext

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from budgets.ledger.reconciliation import differences
from budgets.models import Budget, EntryKind, LedgerEntry
from budgets.services import budget_set_limit
from evaluation.events.models import DeadLetter, ErasedMessage, EventKind, OutboxEvent, TrainingRequest
from evaluation.events.publishing import messages_of
from evaluation.events.relay import Relay, batch_take
from evaluation.events.stream_erasure import erase_once
from evaluation.events.subjects import REQUEST, STATUS, TRAJECTORY
from evaluation.events.training import status_take, training_request, training_request_cancel
from experiences.agents.services.datasets import dataset_create
from experiences.models import TrajectoryRecord
from tests import factories
from tests.evaluation.events.conftest import Bus
from tests.evaluation.events.test_receiving import consumed, publishing, received
from tests.support.callers import Caller
from tests.support.events import exact, example, stored
from tests.support.pages import html
from tests.support.rows import lived_run

pytestmark = pytest.mark.django_db

WORD_FOR_WORD = b"""{
  "training_job_id": "job-001",
  "timestamp": "2025-12-08T13:00:00Z",
  "requester": "manual-trigger",
  "trigger_reason": "manual",
  "training_config": {
    "algorithm": "ppo",
    "base_model": "qwen2.5-32b-instruct",
    "dataset": {
      "source": "nats_stream",
      "stream_name": "RL_TRAJECTORIES",
      "sample_size": 5000
    },
    "hyperparameters": {
      "learning_rate": 1e-5,
      "batch_size": 32,
      "epochs": 3
    }
  }
}"""


@pytest.fixture
def boss(adam: Any) -> Actor:
    return Actor(adam, interface="test")


@pytest.fixture
def agent(acme: Any, olivia: Any) -> Any:
    return factories.AgentFactory(organization=acme, created_by=olivia, slug="agent-zero-main")


def request(algorithm: str = "ppo", model: str = "qwen2.5-32b-instruct", **more: Any) -> dict[str, Any]:
    dataset = more.pop("dataset", None)
    config = {"algorithm": algorithm, "base_model": model} | ({"dataset": dataset} if dataset else {})
    return {"training_job_id": "t-1", "training_config": config | more.pop("config", {}), **more}


def turn(job: Job) -> Job:
    """One slice, as a worker that the report woke takes it."""
    claimed = lifecycle.claim(job.id)
    if claimed is not None:
        run_slice(claimed)
    job.refresh_from_db()
    return job


def waiting(kind: str) -> list[dict[str, Any]]:
    """Payloads in the outbox."""
    OutboxEvent.objects.update(try_after=timezone.now())
    messages_sent = [one for one in messages_of(batch_take()) if one.body]
    kinds = dict(OutboxEvent.objects.values_list("id", "kind"))
    return [json.loads(one.body) for one in messages_sent if kinds[one.row] == kind]


def test_a_request_for_weights_is_handed_over_and_its_job_follows_the_service(operator: Actor, agent: Any) -> None:
    made = training_request(operator, request(priority="high"))
    assert (made.mode, made.job.kind, made.job.priority) == ("elsewhere", "external_training", 0)
    assert turn(made.job).status == Status.RUNNING
    assert waiting(EventKind.REQUEST) == [made.request]

    def says(status: str, minute: int, **more: Any) -> None:
        payload = {"training_job_id": "t-1", "timestamp": f"2026-01-01T00:{minute:02}:00Z", "status": status, **more}
        status_take(made.organization, payload)

    says("running", 1, progress={"current_step": 50, "total_steps": 200, "percent_complete": 25.0})
    assert turn(made.job).progress == 0.25
    says("running", 3, progress={"current_step": 100, "total_steps": 200, "percent_complete": 50.0})
    says("running", 2, progress={"current_step": 60, "total_steps": 200, "percent_complete": 30.0})  # late
    assert turn(made.job).progress == 0.5
    artifacts = {"final_checkpoint": "s3://models/final.pt", "model_card": "s3://models/README.md"}
    says("completed", 4, artifacts=artifacts, resource_usage={"gpu_hours": 12.5, "cost_usd": 45.3})
    assert turn(made.job).status == Status.COMPLETED
    made.refresh_from_db()
    assert made.cost_micros == 45_300_000
    reported = [event.data.get("artifacts") for event in made.job.events.filter(type="reported")]
    assert reported == [None, None, artifacts]
    assert status_take(made.organization, {"training_job_id": "t-1", "status": "failed"}) is False


def test_a_failure_elsewhere_fails_the_job_and_a_cancel_here_is_sent_there(operator: Actor, agent: Any) -> None:
    failed = training_request(operator, request())
    turn(failed.job)
    error = {"code": "CONVERGENCE", "message": "the loss is not finite"}
    status_take(failed.organization, {"training_job_id": "t-1", "status": "failed", "error": error})
    assert turn(failed.job).status == Status.FAILED
    assert (failed.job.status_reason, failed.job.error) == ("diverged", "CONVERGENCE: the loss is not finite")
    second = training_request(operator, request() | {"training_job_id": "t-2"})
    turn(second.job)
    training_request_cancel(operator, second)
    [status] = waiting(EventKind.STATUS)
    assert (status["training_job_id"], status["status"]) == ("t-2", "cancelled")
    assert [one.message for one in exact(STATUS).iter_errors(status)] == []
    with pytest.raises(Conflict):
        training_request_cancel(operator, second)


def balance(made: TrainingRequest) -> tuple[int, int, int]:
    """Spent, held and owed by the job's budget, in cents."""
    row = Budget.objects.get(job=made.job)
    return tuple(value // 10_000 for value in (row.spent_micros, row.reserved_micros, row.debt_micros))  # type: ignore[return-value]


def says_cost(made: TrainingRequest, minute: int, usd: float, status: str = "running") -> None:
    at = f"2026-01-01T00:{minute:02}:00Z"
    payload = {"training_job_id": made.training_job_id, "timestamp": at, "status": status}
    status_take(made.organization, payload | {"resource_usage": {"cost_usd": usd}})


def test_a_training_elsewhere_is_paid_from_its_budget_as_calls_of_models_are(operator: Actor, agent: Any) -> None:
    made = training_request(operator, request(metadata={"max_cost_usd": 10}))
    turn(made.job)
    assert balance(made) == (0, 1000, 0)
    says_cost(made, 1, 4.0)
    for _ in range(2):  # the same report is booked once
        turn(made.job)
        assert balance(made) == (400, 600, 0)
    says_cost(made, 3, 6.5)
    says_cost(made, 2, 5.0)  # late
    turn(made.job)
    assert balance(made) == (650, 350, 0)
    says_cost(made, 4, 7.0, "completed")
    assert turn(made.job).status == Status.COMPLETED
    assert balance(made) == (700, 0, 0)
    assert differences() == []
    entries = LedgerEntry.objects.filter(job_id=made.job_id, kind=EntryKind.SETTLE)
    assert {(one.model, one.purpose, one.source) for one in entries} == {(made.base_model, "training", "provider")}
    assert sum(one.cost_micros or 0 for one in entries) == 7_000_000


def test_a_training_elsewhere_that_uses_its_budget_up_is_cancelled_there(
    operator: Actor, published: Any, agent: Any, django_capture_on_commit_callbacks: Any
) -> None:
    made = training_request(operator, request(metadata={"max_cost_usd": 10}))
    turn(made.job)
    says_cost(made, 1, 10.4)
    with django_capture_on_commit_callbacks(execute=True):
        assert turn(made.job).status == Status.FAILED
    assert made.job.status_reason == "budget_exceeded" and "$10.40" in made.job.error
    assert balance(made) == (1000, 0, 40)
    [status] = waiting(EventKind.STATUS)
    assert (status["status"], status["metadata"]["status_reason"]) == ("cancelled", "budget_exceeded")
    # Its cost until it received the cancel is owed too, once.
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            says_cost(made, 2, 11.0, "cancelled")
        assert balance(made) == (1000, 0, 100)
    assert differences() == []


def test_a_training_elsewhere_is_not_handed_over_without_room_in_a_budget(
    operator: Actor, adam: Any, acme: Any, agent: Any, django_capture_on_commit_callbacks: Any
) -> None:
    budget_set_limit(Actor(adam), organization=acme, limit_micros=5_000_000)
    with pytest.raises(Insufficient):
        training_request(operator, request(metadata={"max_cost_usd": 6}))
    first = training_request(operator, request(metadata={"max_cost_usd": 3}))
    second = training_request(operator, request(metadata={"max_cost_usd": 3}) | {"training_job_id": "t-2"})
    turn(first.job)
    assert (turn(second.job).status, second.job.status_reason) == (Status.FAILED, "budget_exceeded")
    assert waiting(EventKind.REQUEST) == [first.request]
    # What is given up here gives back what it held, and another has room.
    with django_capture_on_commit_callbacks(execute=True):
        training_request_cancel(operator, first)
    third = training_request(operator, request(metadata={"max_cost_usd": 3}) | {"training_job_id": "t-3"})
    assert turn(third.job).status == Status.RUNNING
    assert waiting(EventKind.REQUEST)[-1] == third.request
    assert waiting(EventKind.STATUS)[-1]["training_job_id"] == "t-1"  # no service received the second


def test_the_share_that_is_held_out_is_the_requests(operator: Actor, acme: Any, agent: Any) -> None:
    made = training_request(operator, request("rloo", agent.slug, evaluation={"holdout_size": 0.5}))
    run = made.job.training_run
    assert (run.n_train, run.n_selection, run.n_held_out) == (200, 48, 248)
    other = factories.AgentFactory(organization=acme, slug="of-rows", environment="dataset")
    rows = [{"query": f"what is {n}?", "expected_outcome": {"answer": "1"}} for n in range(40)]
    dataset_create(operator, name="known", rows=rows)
    request_body = request("grpo", other.slug, evaluation={"holdout_size": 0.5}) | {"training_job_id": "t-2"}
    assert training_request(operator, request_body).job.training_run.n_held_out == 20
    with pytest.raises(Invalid, match="held-out"):
        request_body = request("grpo", other.slug, evaluation={"holdout_size": 0}) | {"training_job_id": "t-3"}
        training_request(operator, request_body)


def test_a_request_that_a_learner_here_supports_runs_here(operator: Actor, published: Any, agent: Any) -> None:
    hyper = {"learning_rate": 0.02, "batch_size": 4, "clip_epsilon": 0.3, "gamma": 0.9}
    made = training_request(operator, request("rloo", agent.slug, config={"hyperparameters": hyper}))
    config = made.job.training_run.configuration
    assert (made.mode, made.job.kind) == ("here", "training")
    assert (config.learning_rate, config.batch_size, config.epsilon, config.gamma) == (0.02, 4, 0.3, 0.9)
    assert (config.baseline, config.scale_rewards) == ("loo", "none")
    # Its events have the id that it was asked for by.
    assert {one["training_job_id"] for one in waiting(EventKind.STATUS)} == {"t-1"}
    assert Caller(operator.user).get("training/t-1/status").json()["status"] == "queued"


def test_unused_options_of_a_request_are_reported(operator: Actor, agent: Any) -> None:
    request_body = request(
        "grpo",
        agent.slug,
        config={
            "hyperparameters": {"gamma": 0.9, "gae_lambda": 0.95},
            "checkpointing": {"save_interval": 3, "max_checkpoints": 5},
            "compute": {"gpu_count": 4},
        },
        evaluation={"holdout_size": 0.2, "metrics": ["success_rate"]},
        dataset={"source": "nats_stream", "sample_size": 10},
    )
    answer = Caller(operator.user).post("training/start", request_body).json()
    assert answer["unused"] == [
        "training_config.compute", "training_config.checkpointing.max_checkpoints", "evaluation.metrics",
        "training_config.hyperparameters.gae_lambda", "training_config.dataset.sample_size",
    ]  # fmt: skip
    job = Job.objects.get(pk=answer["job_id"])
    assert job.training_run.configuration.checkpoint_interval == 3
    assert ", ".join(answer["unused"]) in job.events.get(type="request.unused").message


def test_each_filter_of_the_dataset_selects(bus: Bus, operator: Actor, boss: Actor, agent: Any, published: Any) -> None:
    service = publishing(bus, boss)
    given = example(TRAJECTORY)
    received(
        bus,
        service,
        *(
            (
                TRAJECTORY,
                given
                | {
                    "trajectory_id": f"t-{n}",
                    "subordinate_profile": profile,
                    "turns": given["turns"] if n else [dict(given["turns"][0], turn_id=i) for i in (1, 2, 3)],
                    "start_timestamp": f"2025-12-0{n + 1}T00:00:00Z",
                    "end_timestamp": f"2025-12-0{n + 1}T00:01:00Z",
                    "task_context": {"domain": domain, "instructions": f"task {n}"},
                },
            )
            for n, (profile, domain) in enumerate(
                [("researcher", "coding"), ("developer", "research"), (None, "coding")]
            )
        ),
    )
    rows = {row.query: row for row in TrajectoryRecord.objects.filter(purpose="received")}
    for n, reward in enumerate((0.2, 0.6, 0.9)):
        row = rows[f"task {n}"]
        TrajectoryRecord.objects.filter(pk=row.pk, month=row.month).update(reward=reward)
    counts = {
        json.dumps(asked): training_request(
            operator, request(dataset={"source": "nats_stream", **asked}) | {"training_job_id": f"r-{n}"}
        ).selected
        for n, asked in enumerate(
            (
                {"filter": {}},
                {"filter": {"min_reward": 0.5}},
                {"filter": {"max_trajectory_length": 2}},
                {"filter": {"date_range": {"start": "2025-12-02T00:00:00Z", "end": "2025-12-02T12:00:00Z"}}},
                {"filter": {"task_domains": ["coding"]}},
                {"filter": {"exclude_subordinate_profiles": ["developer"]}},
                {"sample_size": 2},
                {"filter": {"min_reward": 0.5, "task_domains": ["coding"]}, "sample_size": 10},
            )
        )
    }
    assert list(counts.values()) == [3, 2, 2, 1, 2, 2, 2, 1]


def test_tasks_of_the_selected_trajectories_are_what_an_agent_of_datasets_trains_on(
    operator: Actor, acme: Any, agent: Any
) -> None:
    run = lived_run(operator, agent)
    query = TrajectoryRecord.objects.filter(job_id=run.job_id).values_list("query", flat=True).first()
    other = factories.AgentFactory(organization=acme, slug="of-rows", environment="dataset")
    request_body = request("grpo", other.slug, dataset={"source": "nats_stream", "filter": {}}) | {
        "training_job_id": "t-2"
    }
    with pytest.raises(Invalid, match="none has a task of the selected trajectories"):
        training_request(operator, request_body)
    assert not TrainingRequest.objects.exists()
    rows = [{"query": f"{query}" if n == 0 else f"what is {n}?", "expected_outcome": {"answer": "1"}} for n in range(9)]
    dataset_create(operator, name="known", rows=rows)
    without = request("grpo", other.slug) | {"training_job_id": "t-3"}
    made = training_request(operator, without)
    assert made.job.training_run.dataset.size == 9


def test_an_erased_request_to_train_is_deleted_with_the_events_about_the_request(
    bus: Bus, boss: Actor, published: Any
) -> None:
    values = {"training_config": {"algorithm": "dpo", "base_model": "m"}}
    notes = {"training_job_id": "of jane", "metadata": {"notes": "as Jane Quizzlebottom asked"}}
    service = publishing(bus, boss)
    received(bus, service, (REQUEST, values | notes), (REQUEST, values | {"training_job_id": "of others"}))
    for row in TrainingRequest.objects.all():
        turn(row.job)  # it is handed over

    async def kept(ours: NatsClient, js: JetStreamContext) -> list[str]:
        relay = Relay(ours, asyncio.Event())
        while await relay.once():
            pass
        while await erase_once(js):
            pass
        return sorted({payload["training_job_id"] for _, payload in await stored(js, "RL_TRAINING")})

    assert bus.speak(kept) == ["of jane", "of others"]
    subject_erase(boss, ["Quizzlebottom"])
    assert bus.speak(kept) == ["of others"]
    assert not ErasedMessage.objects.exists()


def test_a_request_is_one_by_its_id_and_asks_for_the_right(operator: Actor, dan: Any, agent: Any) -> None:
    made = training_request(operator, request())
    assert training_request(operator, request()).pk == made.pk
    with pytest.raises(Conflict, match="Another request"):
        training_request(operator, request("dpo"))
    with pytest.raises(Forbidden):
        training_request(Actor(dan), request() | {"training_job_id": "t-2"})
    with pytest.raises(Invalid, match="algorithm"):
        training_request(operator, request("sft") | {"training_job_id": "t-3"})
    with pytest.raises(Invalid, match="There is no agent nobody"):
        training_request(operator, request() | {"training_job_id": "t-4", "metadata": {"agent_id": "nobody"}})


def test_the_designs_command_starts_a_training_word_for_word(
    bus: Bus, published: Any, operator: Actor, agent: Any, settings: Any
) -> None:
    settings.NATS_ORGANIZATION = published.slug
    published.event_publisher.created_by = operator.user
    published.event_publisher.save()

    async def talk(ours: Any, js: Any) -> None:
        await ours.publish(REQUEST, WORD_FOR_WORD)
        await ours.flush()
        await consumed(ours)

    bus.speak(talk)
    assert not DeadLetter.objects.exists()
    assert TrainingRequest.objects.get().job.title == "ppo of qwen2.5-32b-instruct, elsewhere"


def test_an_agent_asks_for_itself_and_a_service_reports(bus: Bus, boss: Actor, agent: Any) -> None:
    mine = publishing(bus, boss, agent)
    received(bus, mine, (REQUEST, request()), (REQUEST, request() | {"metadata": {"agent_id": "another"}}))
    made = TrainingRequest.objects.get()
    assert made.agent == agent
    assert DeadLetter.objects.get().reason == "wrong_agent"
    service = publishing(bus, boss)
    status = {"training_job_id": "t-1", "status": "running", "timestamp": "2026-01-01T00:00:00Z"}
    received(bus, service, (STATUS, status), (STATUS, status | {"training_job_id": "of nothing"}))
    made.refresh_from_db()
    assert made.report["status"] == "running"
    assert DeadLetter.objects.latest("sequence").detail == "No training of nothing was handed over."


def test_programs_and_people_see_and_cancel_a_requested_training(
    operator: Actor, agent: Any, olivia: Any, charlie: Any
) -> None:
    api = Caller(olivia)
    started = api.post("training/start", {"training_config": {"algorithm": "dpo", "base_model": "m"}})
    assert started.status_code == 201
    name = started.json()["training_job_id"]
    assert api.get(f"training/{name}/status").json()["status"] == "queued"
    assert Caller(charlie).get(f"training/{name}/status").status_code == 404
    assert api.post("training/start", []).status_code == 400
    console = Client()
    console.force_login(olivia)
    assert "dpo of m" in html(console.get("/events/trainings/"))
    assert "Request" in html(console.get(f"/events/trainings/{started.json()['job_id']}/"))
    assert api.post(f"training/{name}/cancel", {}).json()["status"] == "cancelled"
    assert "dpo of m" not in html(console.get("/events/trainings/?status=queued"))
    assert api.get("models").json()["results"] == []
