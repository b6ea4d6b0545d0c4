"""REST: every resource, its filters, its pages and its refusals."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.error_metrics import errors
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey
from experiences.models import Agent, Dataset, TrajectoryRecord
from tests import factories
from tests.support.callers import Caller, pages
from tests.support.rows import checkpoint_of_run, lived_run, queued_run
from training.models import PolicyCheckpoint, TrainingRun

pytestmark = pytest.mark.django_db

ROWS = [{"query": f"What is {n} + {n}?", "expected_outcome": {"answer": str(2 * n)}} for n in range(20)]


def problem(response: Any, status: int) -> dict[str, Any]:
    """The problem details of a refused request."""
    assert response.status_code == status, (response.status_code, response.content[:500])
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status and body["title"] and body["detail"] and body["request_id"]
    return body


# -- agents ------------------------------------------------------------------------------------------------------------


def test_an_agent_is_made_read_changed_and_archived(api: Caller) -> None:
    made = api.post("agents", {"name": "Tool router", "environment": "reasoning_gym"})
    assert made.status_code == 201 and made.json()["slug"] == "tool-router"
    by_slug, by_id = api.get("agents/tool-router").json(), api.get(f"agents/{made.json()['id']}").json()
    assert by_slug == by_id
    assert api.patch("agents/tool-router", {"description": "routes"}).json()["description"] == "routes"
    assert api.delete("agents/tool-router").status_code == 204
    assert api.get("agents/tool-router").json()["archived_at"]
    assert Agent.objects.count() == 1
    assert [agent["slug"] for agent in api.get("agents", archived="true").json()["results"]] == ["tool-router"]
    assert api.get("agents", archived="false").json()["results"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 121}, "name"),
        ({"name": "a", "slug": "Not A Slug"}, "slug"),
        ({"name": "a", "philosophy": "stoic"}, "philosophy"),
        ({"name": "a", "environment": "nowhere"}, "environment"),
        ({"name": "a", "environment_options": {"nonsense": 1}}, "environment"),
        ({"name": "a", "colour": "red"}, "colour"),
        ({"name": ["a"]}, "name"),
    ],
)
def test_a_wrong_agent_is_refused_by_field(api: Caller, body: dict[str, Any], field: str) -> None:
    assert field in problem(api.post("agents", body), 400)["errors"]
    assert not Agent.objects.exists()


def test_a_slug_that_is_taken_is_a_conflict(api: Caller, agent: Agent) -> None:
    assert "slug" in problem(api.post("agents", {"name": "x", "slug": agent.slug}), 409)["errors"]


# -- datasets ----------------------------------------------------------------------------------------------------------


def test_a_dataset_comes_from_rows_jsonl_or_csv(api: Caller) -> None:
    made = api.post("datasets", {"name": "sums", "rows": ROWS})
    assert made.status_code == 201 and made.json()["size"] == 20
    lines = "\n".join(json.dumps(row) for row in ROWS[:5])
    csv = "query,expected_outcome,level\nWhat is 1 + 1?,2,easy\n"
    for name, content, size in (("five.jsonl", lines, 5), ("one.csv", csv, 1)):
        upload = SimpleUploadedFile(name, content.encode())
        response = api.client.post("/api/v1/datasets", {"file": upload}, headers=api.headers)
        assert response.status_code == 201, response.content
        assert (response.json()["name"], response.json()["size"]) == (name, size)
    rows = api.get(f"datasets/{made.json()['id']}/rows", limit=3).json()
    assert [row["index"] for row in rows["results"]] == [0, 1, 2]
    assert rows["results"][1]["expected_outcome"] == {"answer": "2"}
    assert [row["name"] for row in api.get("datasets", search="csv").json()["results"]] == ["one.csv"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"query": "a"}\n{"query": ', "Line 2 is not JSON"),
        ("a.jsonl", b'{"query": "a\\u0000b"}', "Row 1 can't be stored: it has a NUL"),
        ("a.jsonl", b'{"query": "a", "metadata": {"x": NaN}}', "not finite"),
        ("a.jsonl", b'{"query": "\\ud800"}', "surrogate"),
        ("a.jsonl", b'{"query": "a", "metadata": {"x": 99999999999999999999999}}', "64 bits"),
        ("a.jsonl", b"\xff\xfe\x00", "not UTF-8"),
        ("a.jsonl", b'{"query": "a", "x": ' + b"[" * 3000 + b"]" * 3000 + b"}", "Line 1"),
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"\n\n", "At least one query"),
        ("a.csv", b"alpha\nx\n", "No column is named like a query"),
        ("a.csv", b"query,expected_outcome\nx\n", "another number of columns"),
        ("a.csv", b"query,expected_outcome\n" + b"x" * 200_000 + b",1\n", "not CSV"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(api: Caller, name: str, content: bytes, words: str) -> None:
    upload = SimpleUploadedFile(name, content)
    response = api.client.post("/api/v1/datasets", {"file": upload}, headers=api.headers)
    assert words in problem(response, 400)["detail"]
    assert not Dataset.objects.exists()


def test_too_many_rows_are_a_413(api: Caller) -> None:
    assert "10,000" in problem(api.post("datasets", {"name": "x", "rows": [{"query": "q"}] * 10_001}), 413)["detail"]


# -- training jobs -----------------------------------------------------------------------------------------------------


def test_a_job_is_estimated_started_and_steered(api: Caller, agent: Agent) -> None:
    plan = {"agent": agent.slug, "config": {"n_iterations": 5, "max_budget_usd": 3}}
    estimate = api.post("training-jobs/estimate", plan).json()
    assert estimate["trajectories"] > 0 and estimate["config"]["n_iterations"] == 5
    made = api.post("training-jobs", plan | {"title": "mine", "priority": "high"})
    assert made.status_code == 201, made.content
    job = made.json()
    assert (job["status"], job["title"], job["priority"], job["agent"]) == ("queued", "mine", "high", agent.slug)
    assert made["Location"] == f"/api/v1/training-jobs/{job['job_id']}"
    path = f"training-jobs/{job['job_id']}"
    assert api.post(f"{path}/pause").json()["status"] == "paused"
    assert api.post(f"{path}/resume").json()["status"] == "queued"
    assert api.post(f"{path}/cancel").json()["status"] == "cancelled"
    assert "can't be" in problem(api.post(f"{path}/cancel"), 409)["detail"]


def test_rest_and_json_rpc_refuse_with_the_same_words(api: Caller, agent: Agent) -> None:
    config = {"n_iterations": 0}
    by_rest = problem(api.post("training-jobs", {"agent": agent.slug, "config": config}), 400)
    by_rpc = api.error("training.start_grpo", {"agent_id": agent.slug, "config": config})
    assert by_rest["detail"] == by_rpc["message"] and by_rest["errors"] == by_rpc["data"]["fields"]


def test_jobs_are_filtered_searched_and_sorted(api: Caller, run: TrainingRun, operator: Actor, agent: Agent) -> None:
    queued = queued_run(operator, agent, title="second look")
    ids = lambda **query: [row["id"] for row in api.get("training-jobs", **query).json()["results"]]  # noqa: E731
    assert ids() == [str(queued.job_id), str(run.job_id)]
    assert ids(ordering="created_at") == [str(run.job_id), str(queued.job_id)]
    assert ids(ordering="-cost") == [str(run.job_id), str(queued.job_id)]
    assert ids(status="queued") == [str(queued.job_id)]
    assert ids(status=["queued", "completed"]) == ids()
    assert ids(search="second") == [str(queued.job_id)]
    assert ids(agent=agent.slug) == ids()
    problem(api.get("training-jobs", status="asleep"), 400)
    problem(api.get("training-jobs", agent="nobody"), 404)
    assert "did you mean status" in problem(api.get("training-jobs", statu="queued"), 400)["detail"]
    assert "ordering" in problem(api.get("training-jobs", ordering="colour"), 400)["errors"]


def test_a_job_shows_curves_groups_and_events(api: Caller, run: TrainingRun) -> None:
    job = api.get(f"training-jobs/{run.job_id}").json()
    assert job["progress"]["percent_complete"] == 100.0 and job["cost"]["cost_usd"] == 0.003
    assert {criterion["name"] for criterion in job["criteria"]} >= {
        "All iterations ran",
        "Trajectories can be exported",
    }
    series = api.get(f"training-jobs/{run.job_id}/series").json()
    assert [point["n"] for point in series["iterations"]] == [1, 2]
    assert [point["n"] for point in api.get(f"training-jobs/{run.job_id}/series", after=1).json()["iterations"]] == [2]
    groups = api.get(f"training-jobs/{run.job_id}/groups", first=0, last=0).json()
    assert len(groups["queries"]) == 3
    assert groups["queries"][0]["groups"][0]["advantages"] == [1.0, 1.0, -1.0, -1.0]
    events = api.get(f"jobs/{run.job_id}/events", limit=2).json()
    assert [event["seq"] for event in events["results"]] == [1, 2] and events["last_seq"] == 2
    rest = api.client.get(events["next"], headers=api.headers).json()
    assert [event["seq"] for event in rest["results"]] == [3, 4]
    later = api.get(f"jobs/{run.job_id}/events", after=rest["last_seq"]).json()
    assert later == {"next": None, "previous": None, "results": [], "last_seq": 4}


def test_a_request_for_headers_alone_makes_no_link(api: Caller, run: TrainingRun) -> None:
    """HEAD is a read: browsers send it across sites without a CSRF token."""
    answer = api.client.head(f"/api/v1/jobs/{run.job_id}/share", headers=api.headers)
    assert answer.status_code == 200
    assert not run.job.share_links.exists()


def test_a_job_is_shared_and_unshared(api: Caller, run: TrainingRun) -> None:
    made = api.post(f"jobs/{run.job_id}/share")
    assert made.status_code == 201 and "/shared/" in made.json()["url"]
    assert api.delete(f"jobs/{run.job_id}/share").status_code == 204
    assert run.job.share_links.get().revoked_at is not None


# -- trajectories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 24),
        ({"iteration": 1}, 12),
        ({"success": "true"}, 12),
        ({"success": "false", "iteration": 0}, 6),
        ({"min_reward": "0"}, 12),
        ({"max_reward": "0"}, 12),
        ({"purpose": "training"}, 24),
        ({"purpose": "evaluation"}, 0),
        ({"search": "question 2"}, 8),
        ({"since": "2025-10-09T08:53:21Z"}, 12),
        ({"until": "2025-10-09T08:53:21Z"}, 12),
    ],
)
def test_trajectories_are_filtered(api: Caller, run: TrainingRun, query: dict[str, Any], count: int) -> None:
    for scope in ({}, {"job": str(run.job_id)}, {"agent": run.agent.slug}):
        result = pages(api, "trajectories", limit=7, **query, **scope)
        assert sum(len(page) for page in result) == count
        assert len({row["trajectory_id"] for page in result for row in page}) == count


def test_wrong_filters_get_a_reason(api: Caller, run: TrainingRun) -> None:
    wrong: list[dict[str, str]] = [
        {"success": "maybe"},
        {"iteration": "-1"},
        {"iteration": "1.5"},
        {"iteration": "9" * 30},
        {"min_reward": "nan"},
        {"min_reward": "a lot"},
        {"since": "yesterday"},
        {"purpose": "fun"},
        {"job": "not-a-uuid"},
        {"search": "\x00"},
        {"sucess": "true"},
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "ten"},
        {"limit": "²"},
        {"cursor": "nonsense"},
        {"cursor": "eyJhIjoxfQ=="},
        {"cursor": "W1siLWNyZWF0ZWRfYXQiLCItaWQiXSxbIngiLCJ5Il0sZmFsc2Vd"},
    ]
    for query in wrong:
        problem(api.get("trajectories", **query), 400)


def test_a_list_is_narrow_and_a_detail_whole(api: Caller, run: TrainingRun) -> None:
    row = api.get("trajectories", job=str(run.job_id), limit=1).json()["results"][0]
    assert "steps" not in row and len(row["query"]) <= 200
    whole = api.get(f"trajectories/{row['trajectory_id']}").json()
    assert [step["action"]["type"] for step in whole["steps"]] == ["tool", "answer"]
    assert whole["advantage"] == whole["step_advantages"][0] and len(whole["group"]) == 4
    assert whole["trajectory_id"] in whole["group"] and whole["has_signal"] is True


def test_pages_go_forwards_and_back_without_a_gap(api: Caller, run: TrainingRun) -> None:
    forwards = pages(api, "trajectories", limit=5)
    assert [len(page) for page in forwards] == [5, 5, 5, 5, 4]
    page = api.get("trajectories", limit=5).json()
    assert page["previous"] is None
    seen = [page["results"]]
    while page["next"]:
        page = api.client.get(page["next"], headers=api.headers).json()
        seen.append(page["results"])
    back = [page["results"]]
    while page["previous"]:
        page = api.client.get(page["previous"], headers=api.headers).json()
        back.append(page["results"])
    assert back[::-1] == seen == forwards


def test_rows_that_arrive_meanwhile_shift_no_page(api: Caller, acme: Any) -> None:
    for number in range(4):
        factories.AgentFactory(organization=acme, slug=f"first-{number}")
    page = api.get("agents", limit=2).json()
    factories.AgentFactory(organization=acme, slug="late")
    following = api.client.get(page["next"], headers=api.headers).json()
    slugs = [row["slug"] for row in [*page["results"], *following["results"]]]
    assert slugs == ["first-3", "first-2", "first-1", "first-0"]


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_tagged_downloaded_and_compared(api: Caller, run: TrainingRun) -> None:
    checkpoint = checkpoint_of_run(run)
    path = f"checkpoints/{checkpoint.id}"
    assert api.get(path).json()["label"] == checkpoint.label
    assert api.patch(path, {"tags": ["keep", " keep ", ""]}).json()["tags"] == ["keep"]
    assert "tags.0" in problem(api.patch(path, {"tags": ["x" * 41]}), 400)["errors"]
    assert [row["id"] for row in api.get("checkpoints", tag="keep", job=str(run.job_id)).json()["results"]] == [
        str(checkpoint.id)
    ]
    best = {"agent": run.agent.slug, "ordering": "-validation_low"}
    assert [row["id"] for row in api.get("checkpoints", **best).json()["results"]] == [str(checkpoint.id)]
    PolicyCheckpoint.objects.filter(pk=checkpoint.pk).update(validation_low=None)
    assert api.get("checkpoints", **best).json()["results"] == []  # it has no score
    response = api.get(f"{path}/download")
    assert response.content == b"policy" and response["ETag"] == f'"{checkpoint.sha256}"'
    api.headers["If-None-Match"] = response["ETag"]
    assert api.get(f"{path}/download").status_code == 304
    del api.headers["If-None-Match"]
    assert AuditEvent.objects.filter(action="checkpoint.downloaded").count() == 1
    same = api.get("checkpoints/compare", a=str(checkpoint.id), b=str(checkpoint.id)).json()
    assert same["same_bytes"] is True and same["settings"] == []
    assert {"name": "iteration", "a": 2, "b": 2, "difference": 0} in same["metrics"]
    assert same["told"] is same["context_differences"] is None  # the former name
    problem(api.get("checkpoints/compare", a=str(checkpoint.id)), 400)
    problem(api.get("checkpoints/compare", a=str(checkpoint.id), b=str(uuid4())), 404)


def test_checkpoints_of_two_runs_show_the_settings_that_differ(api: Caller, run: TrainingRun, operator: Actor) -> None:
    other = lived_run(operator, run.agent)
    TrainingRun.objects.filter(job=other.job).update(config=other.config | {"learning_rate": 0.02})
    compared = api.get(
        "checkpoints/compare", a=str(checkpoint_of_run(run).id), b=str(checkpoint_of_run(other).id)
    ).json()
    assert compared["same_run"] is False
    assert compared["settings"] == [{"name": "learning_rate", "a": 0.03, "b": 0.02}]


def test_a_damaged_checkpoint_is_not_handed_out(api: Caller, run: TrainingRun) -> None:
    PolicyCheckpoint.objects.filter(run=run).update(data=b"other bytes")
    assert "SHA-256" in problem(api.get(f"checkpoints/{checkpoint_of_run(run).id}/download"), 409)["detail"]


def test_a_stakeholder_downloads_nothing(run: TrainingRun, stella: Any) -> None:
    problem(Caller(stella).get(f"checkpoints/{checkpoint_of_run(run).id}/download"), 403)


# -- evaluations -------------------------------------------------------------------------------------------------------


def test_an_evaluation_is_asked_for_and_read(api: Caller, run: TrainingRun) -> None:
    made = api.post("evaluations", {"training_job_id": str(run.job_id), "samples": 2})
    assert made.status_code == 201, made.content
    evaluation = made.json()
    assert (evaluation["status"], evaluation["samples"], evaluation["report"]) == ("queued", 2, {})
    assert evaluation["lines"][0] == "held_out"
    path = f"evaluations/{evaluation['evaluation_id']}"
    assert api.get(path).json()["checkpoint_id"] == str(checkpoint_of_run(run).id)
    assert api.get(f"{path}/queries").json() == {"line": "held_out", "queries": []}
    problem(api.get(f"{path}/queries", line="nonsense"), 400)
    listed = api.get("evaluations", agent=run.agent.slug, status="queued").json()["results"]
    assert [row["evaluation_id"] for row in listed] == [evaluation["evaluation_id"]]
    by_checkpoint = api.post("evaluations", {"checkpoint_id": str(checkpoint_of_run(run).id), "split": "selection"})
    assert by_checkpoint.json()["lines"] == ["selection"]
    assert (
        "not among"
        in problem(api.post("evaluations", {"training_job_id": str(run.job_id), "queries": ["What is love?"]}), 400)[
            "detail"
        ]
    )
    problem(api.post("evaluations", {}), 400)
    problem(api.post("evaluations", {"training_job_id": str(run.job_id), "samples": 65}), 400)
    problem(api.post("evaluations", {"training_job_id": str(uuid4())}), 404)


# -- the catalogue and myself ------------------------------------------------------------------------------------------


def test_the_catalogue_says_what_there_is(api: Caller) -> None:
    assert "reasoning_gym" in {row["name"] for row in api.get("environments").json()}
    assert "shaped" in {row["name"] for row in api.get("rewards").json()}
    presets = {row["name"]: row for row in api.get("presets").json()}
    assert presets["recommended"]["default"] and presets["flow_spec"]["config"]["advantage_filter"] == "positive"
    schema = api.get("config-schema").json()
    assert schema["properties"]["n_iterations"]["maximum"] == 10_000 and schema["additionalProperties"] is False


def test_a_token_opens_what_its_owner_may(olivia: Any) -> None:
    stranger = Caller()
    given = stranger.post("token", {"username": "olivia", "password": factories.PASSWORD}).json()
    stranger.headers = {"Authorization": f"Bearer {given['access']}"}
    me = stranger.get("me").json()
    assert me["username"] == "olivia" and me["scopes"] is None
    assert me["organizations"][0]["role"] == "operator" and "run.start" in me["organizations"][0]["may"]
    renewed = Caller().post("token/refresh", {"refresh": given["refresh"]}).json()
    stranger.headers = {"Authorization": f"Bearer {renewed['access']}"}
    assert stranger.get("agents").status_code == 200
    stranger.headers = {"Authorization": f"Bearer {given['refresh']}"}
    assert "token" in problem(stranger.get("agents"), 401)["detail"].lower()


def test_wrong_passwords_are_refused_slowed_and_logged(olivia: Any) -> None:
    statuses = [Caller().post("token", {"username": "olivia", "password": "wrong"}).status_code for _ in range(31)]
    assert statuses[0] == 401 and statuses[-1] == 429
    assert AuditEvent.objects.filter(action="person.sign_in_failed").count() == 10


def test_keys_are_made_listed_and_revoked(api: Caller) -> None:
    made = api.post("api-keys", {"name": "ci", "scopes": ["training:view"], "days": 1})
    assert made.status_code == 201 and made.json()["key"].startswith("ac_")
    listed = api.get("api-keys").json()["results"]
    assert "ci" in {row["name"] for row in listed} and "key" not in listed[0]
    assert api.delete(f"api-keys/{made.json()['id']}").status_code == 204
    assert ApiKey.objects.get(id=made.json()["id"]).revoked_at is not None
    problem(api.post("api-keys", {"name": "x", "scopes": ["everything"]}), 400)
    problem(api.post("api-keys", {"name": "x", "scopes": ["training:view"], "days": 0}), 400)
    problem(api.delete(f"api-keys/{uuid4()}"), 404)


def test_a_key_makes_no_key_that_may_more(olivia: Any) -> None:
    small = Caller(olivia, ["training:view", "training:manage"])
    assert small.post("api-keys", {"name": "x", "scopes": ["training:view"]}).status_code == 201
    problem(small.post("api-keys", {"name": "x", "scopes": ["training:start"]}), 403)
    viewer = Caller(olivia, ["training:view"])
    problem(viewer.post("api-keys", {"name": "x", "scopes": ["training:view"]}), 403)
    problem(viewer.delete(f"api-keys/{ApiKey.objects.first().id}"), 403)


# -- idempotency -------------------------------------------------------------------------------------------------------


def test_the_same_key_and_body_give_the_same_answer_once(api: Caller, agent: Agent) -> None:
    for path, body in (
        ("agents", {"name": "Twice"}),
        ("datasets", {"name": "sums", "rows": ROWS}),
        ("training-jobs", {"agent": agent.slug, "config": {"n_iterations": 3}}),
    ):
        first = api.post(path, body, Idempotency_Key=f"key-{path}")
        again = api.post(path, dict(reversed(body.items())), Idempotency_Key=f"key-{path}")
        assert first.status_code == again.status_code == 201
        assert first.json() == again.json()
        assert "Idempotent-Replayed" not in first and again["Idempotent-Replayed"] == "true"
    assert Job.objects.count() == 1 and Agent.objects.filter(name="Twice").count() == 1


def test_the_same_key_with_another_body_is_a_conflict(api: Caller) -> None:
    assert api.post("agents", {"name": "One"}, Idempotency_Key="k").status_code == 201
    assert "idempotency key" in problem(api.post("agents", {"name": "Two"}, Idempotency_Key="k"), 409)["detail"]
    problem(api.post("datasets", {"name": "x", "rows": ROWS}, Idempotency_Key="k"), 409)


def test_another_file_under_the_same_key_is_a_conflict(api: Caller) -> None:
    headers = api.headers | {"Idempotency-Key": "file"}
    for content, status in ((b'{"query": "a"}', 201), (b'{"query": "a"}', 201), (b'{"query": "b"}', 409)):
        upload = SimpleUploadedFile("a.jsonl", content)
        assert api.client.post("/api/v1/datasets", {"file": upload}, headers=headers).status_code == status


def test_keys_of_two_people_do_not_meet(api: Caller, adam: Any, charlie: Any) -> None:
    for caller in (api, Caller(adam), Caller(charlie)):
        made = caller.post("agents", {"name": f"Agent {id(caller)}"}, Idempotency_Key="k")
        assert made.status_code == 201 and "Idempotent-Replayed" not in made


def test_a_request_that_failed_may_be_tried_again(api: Caller, agent: Agent) -> None:
    body = {"name": "x", "slug": agent.slug}
    assert api.post("agents", body, Idempotency_Key="k").status_code == 409
    Agent.objects.filter(id=agent.id).update(slug="moved-away")
    assert api.post("agents", body, Idempotency_Key="k").status_code == 201


def test_an_answer_is_forgotten_after_a_day(api: Caller) -> None:
    from datetime import timedelta

    from django.utils import timezone

    from agentcore_site.models import IdempotencyRecord

    assert api.post("agents", {"name": "One"}, Idempotency_Key="k").status_code == 201
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert api.post("agents", {"name": "Two"}, Idempotency_Key="k").json()["slug"] == "two"


@pytest.mark.parametrize("key", ["", "x" * 201, "ключ"])
def test_a_key_that_is_none_is_refused(api: Caller, key: str) -> None:
    problem(api.post("agents", {"name": "x"}, Idempotency_Key=key), 400)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_every_error_is_a_problem(api: Caller, charlie: Any, stella: Any, run: TrainingRun) -> None:
    problem(Caller().get("agents"), 401)
    problem(api.get("nothing-here"), 404)
    problem(api.client.get("/api/v2/agents"), 404)
    problem(api.get("agents/nobody"), 404)
    problem(api.get("training-jobs/not-a-uuid"), 404)
    problem(api.delete("datasets"), 405)
    problem(api.post("agents", b"{"), 400)
    problem(api.client.post("/api/v1/agents", "a=b", content_type="text/plain", headers=api.headers), 415)
    problem(Caller(stella).post("agents", {"name": "x"}), 403)
    problem(Caller(charlie).get(f"training-jobs/{run.job_id}"), 404)
    problem(api.client.get("/api/v1/me", headers=api.headers | {"Host": "elsewhere.example"}), 400)


def test_an_internal_error_is_not_revealed(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr("experiences.agents.services.agents.grants_wanted", broken)
    response = api.post("agents", {"name": "x"})
    assert problem(response, 500)["request_id"] == response["X-Request-Id"]
    assert b"swordfish" not in response.content


def test_the_database_away_is_a_503(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("server closed the connection: host=10.0.0.1 user=secret")

    monkeypatch.setattr("experiences.agents.api.agents.agents_visible", away)
    response = api.get("agents")
    assert response.status_code == 503 and response["Retry-After"] == "30" and b"secret" not in response.content
    monkeypatch.setattr("training.rpc.methods.runs_visible", away)
    body = {"jsonrpc": "2.0", "method": "training.list_jobs", "id": 1}
    response = api.post("jsonrpc", body)
    assert response.status_code == 503 and b"secret" not in response.content


def test_a_change_that_another_crossed_is_asked_for_again_at_once(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def crossed(*_: Any, **__: Any) -> None:
        raise OperationalError("deadlock detected") from psycopg.errors.DeadlockDetected()

    monkeypatch.setattr("experiences.agents.services.agents.grants_wanted", crossed)
    counted = errors.labels(error_type="database_busy", component="web")._value
    before = counted.get()
    response = api.post("agents", {"name": "x"})
    assert (response.status_code, response["Retry-After"]) == (503, "1")
    assert counted.get() == before + 1  # and no alert of a database that is away
    answer = response.json()
    assert answer["title"] == "Database busy"
    assert answer["detail"] == "Someone else is changing the same at this moment. Nothing was changed. Try again."


def test_a_trailing_slash_makes_no_difference(api: Caller, agent: Agent) -> None:
    assert api.get("agents/").json() == api.get("agents").json()
    assert api.get(f"agents/{agent.slug}/").json() == api.get(f"agents/{agent.slug}").json()
    assert api.post("agents/", {"name": "slashed"}).status_code == 201


def test_too_large_a_body_is_a_413(api: Caller, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    problem(api.post("agents", {"name": "x" * 2000}), 413)


def test_a_key_without_the_permission_to_view_is_refused_with_the_reason(olivia: Any) -> None:
    assert "training:view" in problem(Caller(olivia, ["training:start"]).get("agents"), 403)["detail"]


def test_requests_beyond_the_rate_wait(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcore_site.rest.throttling import KeyThrottle

    monkeypatch.setattr(KeyThrottle, "THROTTLE_RATES", {"key": "3/min", "token": "3/min"})
    statuses = [api.get("me").status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    response = api.get("me")
    assert int(response["Retry-After"]) > 0 and problem(response, 429)
    assert api.post("jsonrpc", {"jsonrpc": "2.0", "method": "training.list_jobs", "id": 1}).status_code == 429


def test_every_interface_works_without_redis(api: Caller, monkeypatch: pytest.MonkeyPatch, agent: Agent) -> None:
    from django.core.cache import cache
    from redis.exceptions import ConnectionError

    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("away")

    monkeypatch.setattr(cache, "get", away)
    made = api.post("training-jobs", {"agent": agent.slug, "config": {"n_iterations": 3}}, Idempotency_Key="k")
    assert made.status_code == 201 and Job.objects.get().status == Status.QUEUED


def test_two_organisations_never_see_each_others_rows(
    api: Caller, run: TrainingRun, charlie: Any, elsewhere: Any
) -> None:
    theirs = factories.AgentFactory(organization=elsewhere)
    other = lived_run(Actor(charlie), theirs)
    stranger = Caller(charlie)
    for path in ("agents", "datasets", "training-jobs", "trajectories", "checkpoints", "evaluations"):
        mine, yours = api.get(path).content.decode(), stranger.get(path).content.decode()
        for secret in (str(run.job_id), str(run.agent_id)):
            assert secret not in yours
        for secret in (str(other.job_id), str(theirs.id)):
            assert secret not in mine
    assert TrajectoryRecord.objects.count() == 48
    assert len(pages(stranger, "trajectories", limit=200)[0]) == 24


def test_a_tool_servers_token_goes_to_no_other_host(adam: Any) -> None:
    """The same rule as an endpoint's key: a key that was entered for one host is entered again for the next."""
    admin = Caller(adam)
    made = admin.post("tool-servers", {"name": "search", "url": "http://127.0.0.1:9/mcp", "token": "s3cret"})
    assert made.status_code == 201
    address = f"tool-servers/{made.json()['id']}"
    moved = admin.patch(address, {"url": "http://127.0.0.2:9/mcp"})
    assert moved.status_code == 400 and "enter it again" in moved.json()["errors"]["token"]
    assert admin.patch(address, {"url": "http://127.0.0.1:9/other"}).json()["has_token"]
    assert admin.patch(address, {"url": "http://127.0.0.2:9/mcp", "token": "new"}).status_code == 200


# -- what is refused instead of guessed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("trajectories", "job"),
        ("trajectories", "until"),
        ("trajectories", "ordering"),
        ("trajectories/export", "job"),
        ("evaluations", "training_job"),
        ("agents", "cursor"),
        ("agents", "archived"),
    ],
)
def test_an_empty_value_does_not_mean_everything(path: str, name: str, api: Caller) -> None:
    response = api.get(path, **{name: ""})
    assert response.status_code == 400 and name in response.json()["errors"], response.content
    assert api.get("agents", search="").status_code == 200


def test_a_number_is_no_text(api: Caller) -> None:
    for path, body, field in (
        ("agents", {"name": 5}, "name"),
        ("agents", {"name": "x", "tools": ["a", 1.5]}, "tools"),
        ("agents", {"name": True}, "name"),
        ("rewards/run", {"reward": "composite", "job": 5}, "job"),
    ):
        response = api.post(path, body)
        assert response.status_code == 400 and field in response.json()["errors"], (path, body, response.content)


def test_a_method_that_is_not_there_is_said_before_anything_about_its_query(api: Caller) -> None:
    response = api.client.generic("TRACE", "/api/v1/agents?x=1", headers=api.headers)
    assert response.status_code == 405
    assert api.client.options("/api/v1/datasets", headers=api.headers).json() == {
        "methods": ["GET", "POST", "HEAD", "OPTIONS"]
    }
