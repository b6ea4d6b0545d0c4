"""JSON-RPC 2.0: the protocol, and each method with the payloads of the public contract."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from jsonschema import ValidationError

from agentcore_site import rpc
from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Priority, Status
from agentcore_site.lib import storable
from agentcore_site.rest.jsonrpc import Method, Params
from agentcore_site.rpc import METHODS
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.openrpc import document_check, result_check
from tests.support.rows import queued_run
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

ROWS = [
    {"query": f"What is {n} + {n}?", "expected_outcome": {"answer": str(2 * n), "correct": True}} for n in range(20)
]
CONFIG = {
    "n_iterations": 1000,
    "batch_size": 16,
    "n_trajectories_per_query": 8,
    "learning_rate": 0.0001,
    "max_budget_usd": 100,
    "checkpoint_interval": 10,
}


def request(method: str, params: Any, **extra: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **extra}


# -- the protocol ------------------------------------------------------------------------------------------------------


def test_rpc_answers_a_batch_in_order_and_leaves_notifications_out(api: Caller) -> None:
    batch = [
        request("training.list_jobs", {}, id="a"),
        request("training.list_jobs", {}),
        request("training.nothing", {}, id=7),
        1,
    ]
    answers = api.post("jsonrpc", batch).json()
    assert [answer["id"] for answer in answers] == ["a", 7, None]
    assert answers[0]["result"]["total_count"] == 0
    assert [answer["error"]["code"] for answer in answers[1:]] == [-32601, -32600]


def test_rpc_answers_nothing_to_notifications(api: Caller, run: TrainingRun) -> None:
    for body in (
        request("training.list_jobs", {}),
        [request("training.nothing", {}), request("training.list_jobs", {})],
    ):
        response = api.post("jsonrpc", body)
        assert (response.status_code, response.content) == (204, b"")


def test_a_notification_acts(api: Caller, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    assert api.post("jsonrpc", request("training.pause", {"job_id": str(run.job_id)})).status_code == 204
    assert Job.objects.get(id=run.job_id).status == Status.PAUSED


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc": "2.0", "method": "training.list_jobs", "params": {"limit": NaN}, "id": 1}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "method": "training.list_jobs", "params": {"agent_id": "\\u0000"}, "id": 1}', -32700),
        (b"[]", -32600),
        (b"null", -32600),
        (b'"training.list_jobs"', -32600),
        (json.dumps([request("training.list_jobs", {}, id=1)] * 51).encode(), -32600),
        (json.dumps({"method": "training.list_jobs", "id": 1}).encode(), -32600),
        (json.dumps({"jsonrpc": "2.0", "method": 5, "id": 1}).encode(), -32600),
        (json.dumps(request("training.list_jobs", "limit", id=1)).encode(), -32600),
        (json.dumps(request("training.list_jobs", {}, id={"a": 1})).encode(), -32600),
        (json.dumps(request("training.list_jobs", {}, id=True)).encode(), -32600),
        (json.dumps(request("training.list", {}, id=1)).encode(), -32601),
        (json.dumps(request("training.list_jobs", {"limit": "50"}, id=1)).encode(), -32602),
        (json.dumps(request("training.list_jobs", {"limits": 50}, id=1)).encode(), -32602),
        (json.dumps(request("training.list_jobs", [None, None, 50, 0, 1], id=1)).encode(), -32602),
        (json.dumps(request("training.get_status", {}, id=1)).encode(), -32602),
    ],
)
def test_rpc_uses_the_standard_codes(api: Caller, body: bytes, code: int) -> None:
    response = api.post("jsonrpc", body)
    assert response.status_code == 200
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["message"]


def test_rpc_takes_parameters_by_position_too(api: Caller) -> None:
    assert api.result("training.list_jobs", [None, "running", 7])["limit"] == 7


def test_rpc_suggests_the_method_and_the_parameter_that_were_meant(api: Caller) -> None:
    assert "training.get_status" in api.error("training.getstatus")["message"]
    assert "did you mean limit" in api.error("training.list_jobs", {"limt": 1})["message"]


def test_rpc_never_reveals_an_internal_error(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any, params: Any) -> dict[str, Any]:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setitem(rpc.METHODS, "training.broken", Method(Params, "view", broken, "", {}))  # type: ignore[arg-type]
    error = api.error("training.broken")
    assert error["code"] == -32603
    assert "swordfish" not in json.dumps(error)
    assert error["data"]["request_id"]


def test_an_unknown_caller_gets_a_401_with_a_json_rpc_error() -> None:
    for headers in ({}, {"Authorization": "Bearer ac_wrong"}, {"Authorization": "Bearer not.a.token"}):
        stranger = Caller()
        stranger.headers = headers
        response = stranger.post("jsonrpc", request("training.list_jobs", {}, id=1))
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == "Bearer"
        assert response.json()["jsonrpc"] == "2.0" and response.json()["error"]["code"] == 401


def test_only_post_is_answered(api: Caller) -> None:
    assert api.get("jsonrpc").status_code == 405


def test_a_trailing_slash_makes_no_difference(api: Caller) -> None:
    assert "result" in api.post("jsonrpc/", request("training.list_jobs", {}, id=1)).json()


def test_a_session_with_its_csrf_token_is_answered(olivia: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(olivia)
    client.get("/agents/new/")
    result = {"jsonrpc": "2.0", "method": "training.list_jobs", "params": {}, "id": 1}
    token = client.cookies["csrftoken"].value
    response = client.post("/api/v1/jsonrpc", result, content_type="application/json", headers={"X-CSRFToken": token})
    assert response.status_code == 200 and "jobs" in response.json()["result"], response.content
    wrong = client.post("/api/v1/jsonrpc", result, content_type="application/json", headers={"X-CSRFToken": "x" * 64})
    assert wrong.status_code == 403


def test_an_empty_body_is_not_json(olivia: Any) -> None:
    response = Caller(olivia).post("jsonrpc", b"")
    assert response.status_code == 200 and response.json()["error"]["code"] == -32700


def test_the_methods_describe_themselves_as_openrpc(stella: Any) -> None:
    described = Caller(stella, ["training:view"]).result("rpc.discover")
    document_check(described)
    assert [one["name"] for one in described["methods"]] == [*METHODS]
    assert all({"$ref"} == set(one["result"]["schema"]) for one in described["methods"])  # and no bare "object"
    assert all(one["errors"] for one in described["methods"])


def test_each_method_answers_by_its_own_description(
    api: Caller, run: TrainingRun, operator: Actor, agent: Agent
) -> None:
    described = api.result("rpc.discover")
    waiting = {"job_id": str(queued_run(operator, agent).job_id)}
    other = factories.AgentFactory(organization=agent.organization)
    values = {
        "training.get_status": {"job_id": str(run.job_id)},
        "training.pause": waiting,
        "training.resume": waiting,
        "training.cancel": waiting,
        "training.start_grpo": {"agent_id": str(other.id), "training_data": ROWS, "config": CONFIG},
        "training.evaluate": {"agent_id": agent.slug, "wait_seconds": 0},
        "training.export_trajectories": {"job_id": str(run.job_id)},
        "training.list_jobs": {},
        "rpc.discover": {},
    }
    # They take a job that learns lessons: test_starting_points.py, tests/evaluation/test_candidates.py.
    assert set(values) | {"training.go_on", "training.try_candidate"} == set(METHODS)
    for method, params in values.items():
        result = api.result(method, params)
        result_check(described, method, result)
        for wrong in (result | {"surprise": 1}, dict(list(result.items())[1:])):
            with pytest.raises(ValidationError):
                result_check(described, method, wrong)


def test_a_session_needs_its_csrf_token(olivia: Any) -> None:

    client = Client(enforce_csrf_checks=True)
    client.force_login(olivia)
    body = json.dumps(request("training.list_jobs", {}, id=1))
    assert client.post("/api/v1/jsonrpc", body, content_type="application/json").status_code == 403


def test_too_large_a_body_is_a_413(api: Caller, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    response = api.post("jsonrpc", request("training.list_jobs", {"agent_id": "x" * 2000}, id=1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == 413


@pytest.mark.parametrize("path", ["jsonrpc", "agents"])
def test_a_body_of_very_many_values_is_a_413_before_any_parsing(
    api: Caller, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(storable, "MOST_VALUES", 1_000)
    response = api.post(path, request("training.list_jobs", {"agent_id": [[]] * 1_000}, id=1))
    assert response.status_code == 413 and "1,000 values" in response.content.decode()


def test_a_key_without_the_permission_to_view_is_refused_with_the_reason(olivia: Any) -> None:
    blind = Caller(olivia, ["training:start"])
    response = blind.post("jsonrpc", request("training.list_jobs", {}, id=1))
    assert response.status_code == 403
    assert "training:view" in response.json()["error"]["message"]


# -- training.start_grpo -----------------------------------------------------------------------------------------------


def test_rpc_starts_a_job_as_the_source_documents_say(api: Caller, agent: Agent) -> None:
    params = {"agent_id": str(agent.id), "training_data": ROWS, "config": CONFIG}
    result = api.result("training.start_grpo", params)
    assert result["status"] == "queued"
    assert result["estimated_cost_usd"] >= 0 and result["estimated_duration_hours"] > 0
    run = TrainingRun.objects.get(job_id=result["training_job_id"])
    assert run.total_iterations == 1000 and run.dataset is not None and run.dataset.size == 20
    assert run.config["learning_rate"] == 0.0001 and run.budget_micros == 100_000_000
    assert any("Only 20 queries" in warning for warning in result["warnings"])


def test_rpc_starts_on_the_agents_environment_or_a_dataset(api: Caller, agent: Agent) -> None:
    first = api.result("training.start_grpo", {"agent_id": agent.slug, "config": {"n_iterations": 1}})
    api.result("training.cancel", {"job_id": first["training_job_id"]})
    made = api.post("datasets", {"name": "sums", "rows": ROWS}).json()
    second = api.result(
        "training.start_grpo", {"agent_id": agent.slug, "dataset_id": made["id"], "preset": "flow_spec"}
    )
    assert TrainingRun.objects.get(job_id=second["training_job_id"]).preset == "flow_spec"


def test_a_job_gets_its_priority_and_its_start(api: Caller, agent: Agent) -> None:
    params = {"agent_id": agent.slug, "priority": "high", "not_before": "2999-01-01T09:00:00+09:00", "title": "Tonight"}
    job_id = api.result("training.start_grpo", params)["training_job_id"]
    job = Job.objects.get(id=job_id)
    assert (job.priority, job.title) == (Priority.HIGH, "Tonight")
    assert job.not_before == datetime(2999, 1, 1, tzinfo=UTC)
    assert lifecycle.claim(job.id) is None, "a worker took it before its start"
    status = api.result("training.get_status", {"job_id": job_id})
    assert (status["priority"], status["not_before"]) == ("high", "2999-01-01T00:00:00Z")
    assert api.get(f"training-jobs/{job_id}").json()["not_before"] == status["not_before"]
    Job.objects.filter(id=job.id).update(not_before=datetime(2026, 1, 1, tzinfo=UTC))
    assert lifecycle.claim(job.id) is not None


@pytest.mark.parametrize("moment", ["tomorrow", "2026-11-21T22:00:00", "0001-01-01T00:00:00+14:00", ""])
def test_a_start_that_is_no_moment_is_a_400_and_starts_nothing(api: Caller, agent: Agent, moment: str) -> None:
    error = api.error("training.start_grpo", {"agent_id": agent.slug, "not_before": moment})
    assert error["code"] == 400 and "not_before" in error["data"]["fields"]
    assert not Job.objects.exists()


def test_a_priority_that_there_is_not_is_refused_by_name(api: Caller, agent: Agent) -> None:
    error = api.error("training.start_grpo", {"agent_id": agent.slug, "priority": "urgent"})
    assert error["code"] == -32602 and "high" in error["data"]["fields"]["priority"]


def test_the_same_idempotency_key_starts_one_job(api: Caller, agent: Agent) -> None:
    params = {"agent_id": agent.slug, "idempotency_key": "monday", "config": {"n_iterations": 5}}
    first = api.result("training.start_grpo", params)
    assert api.result("training.start_grpo", params) == first
    assert Job.objects.count() == 1
    error = api.error("training.start_grpo", params | {"config": {"n_iterations": 6}})
    assert error["code"] == 409 and "idempotency key" in error["message"]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"config": {"n_iterations": 0}}, 400, "n_iterations"),
        ({"config": {"learning_rat": 0.1}}, 400, "learning_rat"),
        ({"config": {"n_trajectories_per_query": 1}}, 400, "n_trajectories_per_query"),
        ({"config": {"n_iterations": True}}, 400, "n_iterations"),
        ({"training_data": []}, 400, "training_data"),
        ({"training_data": [{"query": "  "}]}, 400, "training_data.1"),
        ({"training_data": ["just text"]}, 400, "training_data.1"),
        ({"training_data": ROWS, "environment": "reasoning_gym"}, 400, "data"),
        ({"preset": "nonsense"}, 400, "preset"),
        ({"environment": "nowhere"}, 400, "data"),
        ({"agent_id": "nobody"}, 404, None),
        ({"agent_id": str(uuid4())}, 404, None),
        ({"dataset_id": "x"}, 404, None),
    ],
)
def test_rpc_refuses_a_wrong_start_and_says_where(
    api: Caller, agent: Agent, change: dict[str, Any], code: int, field: str | None
) -> None:
    error = api.error("training.start_grpo", {"agent_id": agent.slug} | change)
    assert error["code"] == code, error
    assert len(error["message"]) > 10
    assert field is None or field in error["data"]["fields"]
    assert not Job.objects.exists()


def test_too_many_queries_are_a_413(api: Caller, agent: Agent) -> None:
    error = api.error("training.start_grpo", {"agent_id": agent.slug, "training_data": [{"query": "q"}] * 10_001})
    assert error["code"] == 413 and "10,000" in error["message"]


def test_a_busy_agent_is_a_409(api: Caller, agent: Agent) -> None:
    api.result("training.start_grpo", {"agent_id": agent.slug})
    error = api.error("training.start_grpo", {"agent_id": agent.slug})
    assert error["code"] == 409 and "already has an active training job" in error["message"]


def test_an_estimate_that_does_not_fit_the_budget_is_a_507(api: Caller, run: TrainingRun, agent: Agent) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(cost_micros=9_000_000)
    Job.objects.filter(pk=run.pk).update(worked_ms=1_000)
    error = api.error("training.start_grpo", {"agent_id": agent.slug, "config": {"max_budget_usd": 0.01}})
    assert error["code"] == 507 and "max_budget_usd" in error["data"]["fields"]


def test_a_first_job_that_cannot_pay_one_iteration_is_a_507_in_rest_and_rpc(
    api: Caller, adam: Any, agent: Agent
) -> None:
    price_set(Actor(adam), model="m", organization=agent.organization, input_micros=150_000, output_micros=600_000)
    endpoint = endpoint_create(Actor(adam), name="e", kind="openai", base_url="http://127.0.0.1:9/v1", model="m")
    reader = agent_create(Actor(adam), name="Reader", runtime="llm", environment="dataset", endpoint=endpoint)
    rows = [{"query": f"What is {n} + {n}?", "expected_outcome": {"answer": str(2 * n)}} for n in range(120)]
    config = {"max_budget_usd": 0.0002}
    error = api.error("training.start_grpo", {"agent_id": reader.slug, "training_data": rows, "config": config})
    assert error["code"] == 507 and "is guessed to cost $" in error["message"] and not Job.objects.exists()
    body = {"agent": reader.slug, "training_data": rows, "config": config}
    assert api.post("training-jobs", body).json()["detail"] == error["message"]


# -- status, moves, list -----------------------------------------------------------------------------------------------


def test_rpc_returns_the_status_of_a_job(api: Caller, run: TrainingRun) -> None:
    status = api.result("training.get_status", {"job_id": str(run.job_id)})
    assert status["status"] == "completed"
    assert status["progress"] == {"current_iteration": 2, "total_iterations": 12, "percent_complete": 100.0}
    assert {"loss", "avg_reward", "std_reward", "eval_success_rate"} <= set(status["metrics"])
    assert status["metrics"]["avg_reward"] == 0.25
    assert status["cost"] == {"tokens_consumed": 77, "cost_usd": 0.003, "budget_remaining_usd": 99.997}
    assert status["best_checkpoint"].startswith("checkpoint-") and status["best_checkpoint"].endswith("-iter2")
    assert status["estimated_completion_time"] is None


def test_rpc_cancels_a_queued_job_at_once(api: Caller, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    result = api.result("training.cancel", {"job_id": str(run.job_id)})
    assert result["status"] == "cancelled" and result["cancelled_at"] and result["checkpoint_saved"] is False
    error = api.error("training.cancel", {"job_id": str(run.job_id)})
    assert error["code"] == 409 and "cancelled" in error["message"]


def test_rpc_pauses_and_resumes(api: Caller, operator: Actor, agent: Agent) -> None:
    params = {"job_id": str(queued_run(operator, agent).job_id)}
    assert api.result("training.pause", params)["status"] == "paused"
    assert api.error("training.pause", params)["code"] == 409
    assert api.result("training.resume", params)["status"] == "queued"
    assert api.error("training.resume", params)["code"] == 409


def test_rpc_lists_jobs_as_the_source_documents_say(
    api: Caller, run: TrainingRun, operator: Actor, agent: Agent
) -> None:
    queued = queued_run(operator, agent)
    everything = api.result("training.list_jobs", {})
    assert everything["total_count"] == 2 and everything["limit"] == 50 and everything["offset"] == 0
    assert [job["job_id"] for job in everything["jobs"]] == [str(queued.job_id), str(run.job_id)]
    assert {"job_id", "agent_id", "status", "progress_percent", "created_at", "cost_usd"} <= set(everything["jobs"][0])
    done = api.result("training.list_jobs", {"agent_id": str(agent.id), "status": "completed"})
    assert [job["job_id"] for job in done["jobs"]] == [str(run.job_id)]
    second = api.result("training.list_jobs", {"limit": 1, "offset": 1})
    assert [job["job_id"] for job in second["jobs"]] == [str(run.job_id)] and second["total_count"] == 2


@pytest.mark.parametrize(
    "filters", [{"status": "asleep"}, {"limit": 0}, {"limit": 1001}, {"offset": -1}, {"offset": 2**40}]
)
def test_wrong_filters_are_a_400(api: Caller, filters: dict[str, Any]) -> None:
    assert api.error("training.list_jobs", filters)["code"] == 400


# -- export ------------------------------------------------------------------------------------------------------------


def test_rpc_exports_as_the_source_documents_say(api: Caller, run: TrainingRun) -> None:
    result = api.result("training.export_trajectories", {"job_id": str(run.job_id)})
    assert result["total_count"] == result["exported_count"] == len(result["trajectories"]) == 24
    first = result["trajectories"][0]
    assert {"trajectory_id", "query", "steps", "reward", "advantage", "success"} <= set(first)
    assert {"state", "action", "result", "timestamp"} <= set(first["steps"][0])
    assert first["steps"][0]["timestamp"].startswith("2025-10-09T")
    assert (first["success"], first["reward"], first["advantage"]) == (True, 1.1, 1.0)
    event = AuditEvent.objects.get(action="trajectories.exported")
    assert event.actor == "olivia" and event.after["format"] == "json-rpc"


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"success_only": True}, 12),
        ({"min_reward": 0.5}, 12),
        ({"iteration": 1}, 12),
        ({"iteration": 1, "success_only": True}, 6),
        ({"since": "2025-10-09T08:53:21Z"}, 12),
        ({"until": "2025-10-09T08:53:21Z"}, 12),
        ({"since": "2030-01-01T00:00:00Z"}, 0),
        ({"min_reward": 5}, 0),
    ],
)
def test_rpc_filters_an_export(api: Caller, run: TrainingRun, filters: dict[str, Any], count: int) -> None:
    result = api.result("training.export_trajectories", {"job_id": str(run.job_id), "filters": filters})
    assert result["total_count"] == result["exported_count"] == len(result["trajectories"]) == count


def test_a_limit_exports_the_first_and_counts_all(api: Caller, run: TrainingRun) -> None:
    result = api.result("training.export_trajectories", {"job_id": str(run.job_id), "filters": {"limit": 5}})
    assert (result["total_count"], result["exported_count"], len(result["trajectories"])) == (24, 5, 5)


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ({"limit": 10_001}, 413),
        ({"limit": 0}, 400),
        ({"since": "yesterday"}, 400),
        ({"iteration": -1}, 400),
        ({"iteration": 2**40}, 400),
        ({"sucess_only": True}, -32602),
        ({"min_reward": "0.5"}, -32602),
    ],
)
def test_rpc_refuses_wrong_export_filters(api: Caller, run: TrainingRun, filters: dict[str, Any], code: int) -> None:
    error = api.error("training.export_trajectories", {"job_id": str(run.job_id), "filters": filters})
    assert error["code"] == code, error
    assert code != 413 or "stream" in error["message"].lower() or "at most" in error["message"]


def test_more_than_ten_thousand_are_a_413(api: Caller, run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiences.trajectories.exports.streams.MAX_AT_ONCE", 23)
    error = api.error("training.export_trajectories", {"job_id": str(run.job_id)})
    assert error["code"] == 413 and "/api/v1/trajectories/export" in error["message"]


def test_an_export_needs_the_data_permission(run: TrainingRun, dan: Any, stella: Any) -> None:
    params = {"job_id": str(run.job_id)}
    assert "result" in Caller(dan).rpc("training.export_trajectories", params)
    dan.memberships.update(can_export=False)
    for person in (dan, stella):
        assert Caller(person).error("training.export_trajectories", params)["code"] == 403
    assert AuditEvent.objects.filter(action="trajectories.exported").count() == 1


# -- who may -----------------------------------------------------------------------------------------------------------


def test_each_role_may_what_the_table_says(run: TrainingRun, agent: Agent, dan: Any, stella: Any) -> None:
    for person in (dan, stella):
        caller = Caller(person)
        assert "result" in caller.rpc("training.get_status", {"job_id": str(run.job_id)})
        assert caller.error("training.start_grpo", {"agent_id": agent.slug})["code"] == 403
        assert caller.error("training.pause", {"job_id": str(run.job_id)})["code"] == 403
        assert caller.error("training.cancel", {"job_id": str(run.job_id)})["code"] == 403
    assert Caller(stella).error("training.evaluate", {"agent_id": agent.slug})["code"] == 403


def test_a_stranger_finds_nothing(run: TrainingRun, agent: Agent, charlie: Any) -> None:
    stranger = Caller(charlie)
    job = {"job_id": str(run.job_id)}
    for method in ("get_status", "cancel", "pause", "resume", "export_trajectories"):
        assert stranger.error(f"training.{method}", job)["code"] == 404
    for method in ("start_grpo", "evaluate"):
        assert stranger.error(f"training.{method}", {"agent_id": str(agent.id)})["code"] == 404
    assert stranger.result("training.list_jobs", {})["total_count"] == 0
    assert stranger.error("training.list_jobs", {"agent_id": str(agent.id)})["code"] == 404


def test_a_scope_narrows_what_a_key_may(olivia: Any, agent: Agent) -> None:
    viewer = Caller(olivia, ["training:view"])
    assert viewer.error("training.start_grpo", {"agent_id": agent.slug})["code"] == 403
    assert viewer.result("training.list_jobs", {})["total_count"] == 0
