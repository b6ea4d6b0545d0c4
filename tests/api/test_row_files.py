"""REST: rows of lists as files, and what else the console alone could show."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.rest import row_files
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle import Bundle
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, TrajectoryRecord
from tests import factories
from tests.api.test_rest import problem
from tests.support.callers import Caller, body_of
from tests.support.suites import suite_run_stored
from training.models import JobPin, TrainingRun

pytestmark = pytest.mark.django_db

ROWS = [
    {"query": f"=what is {n}?", "expected_outcome": {"answer": str(n)}, "metadata": {"n": n}} for n in range(7)
]  # a spreadsheet would run them


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows are several batches."""
    monkeypatch.setattr(row_files, "BATCH", 3)


def release_of(agent: Agent, actor: Actor) -> Release:
    bundle = Bundle(runtime="llm", system="You guide tourists.").as_json()
    return Release.objects.create(
        organization=agent.organization, agent=agent, number=1, source="agent", bundle=bundle, created_by=actor.user
    )


def test_a_datasets_rows_go_out_as_they_came_in(api: Caller, operator: Actor) -> None:
    one = dataset_create(operator, name="Sums of 7", rows=ROWS)
    answer = api.get(f"datasets/{one.pk}/download")
    assert answer["Content-Disposition"] == 'attachment; filename="sums-of-7-v1.jsonl"'
    assert [json.loads(line) for line in body_of(answer).splitlines()] == ROWS
    table = list(csv.DictReader(io.StringIO(body_of(api.get(f"datasets/{one.pk}/download", format="csv")).decode())))
    assert [row["query"] for row in table] == [f"'{row['query']}" for row in ROWS]
    assert [json.loads(row["expected_outcome"]) for row in table] == [row["expected_outcome"] for row in ROWS]
    assert AuditEvent.objects.filter(action="dataset.downloaded", target_id=str(one.pk)).count() == 2
    problem(api.get(f"datasets/{one.pk}/download", format="xlsx"), 400)
    assert AuditEvent.objects.filter(action="dataset.downloaded").count() == 2


def test_a_runs_results_go_out_with_the_lists_filters(api: Caller, operator: Actor, agent: Agent) -> None:
    run = suite_run_stored(operator, release_of(agent, operator))
    listed = api.get(f"suite-runs/{run.pk}/results", limit=200).json()["results"]
    lines = body_of(api.get(f"suite-runs/{run.pk}/results/export")).splitlines()
    assert [json.loads(line) for line in lines] == listed and len(listed) > 3
    failed = api.get(f"suite-runs/{run.pk}/results", outcome="failed").json()["results"]
    lines = body_of(api.get(f"suite-runs/{run.pk}/results/export", outcome="failed")).splitlines()
    assert [json.loads(line) for line in lines] == failed and 0 < len(failed) < len(listed)
    problem(api.get(f"suite-runs/{run.pk}/results/export", outcom="failed"), 400)
    assert AuditEvent.objects.filter(action="suite_run.exported").count() == 2


def test_the_list_of_archives_goes_out(api: Caller, agent: Agent, charlie: Any) -> None:
    for month in range(1, 6):
        factories.TrajectoryArchiveFactory(organization=agent.organization, agent=agent, month=f"2026-0{month}-01")
    table = list(csv.DictReader(io.StringIO(body_of(api.get("archives/export", format="csv")).decode())))
    assert {row["month"] for row in table} == {f"2026-0{month}-01" for month in range(1, 6)}
    (line,) = body_of(api.get("archives/export", month="2026-03-01")).splitlines()
    assert json.loads(line)["agent_id"] == str(agent.pk)
    problem(api.get("archives/export", mnth="2026-03-01"), 400)
    assert body_of(Caller(charlie).get("archives/export")) == b""


def test_failures_of_a_job_are_the_tabs(api: Caller, run: TrainingRun, charlie: Any) -> None:
    body = api.get(f"training-jobs/{run.pk}/failures").json()
    rows = TrajectoryRecord.objects.filter(job_id=run.pk, purpose="training")
    assert body["total"] == rows.count() and body["failed"] == rows.filter(success=False).count() > 0
    (wrong,) = body["reasons"]
    assert (wrong["reason"], wrong["n"], wrong["title"]) == ("wrong_answer", body["failed"], "Wrong answer")
    assert wrong["low"] < wrong["share"] < wrong["high"]
    result = api.get("trajectories", job=str(run.pk), reason=wrong["reason"], purpose="training", limit=200).json()
    assert wrong["example"] in {one["trajectory_id"] for one in result["results"]}
    assert len(result["results"]) == wrong["n"]
    problem(Caller(charlie).get(f"training-jobs/{run.pk}/failures"), 404)


def test_a_pin_is_ones_own(api: Caller, run: TrainingRun, dan: Any) -> None:
    for _ in range(2):  # twice is once
        assert api.post(f"training-jobs/{run.pk}/pin").status_code == 204
    assert [one.person.username for one in JobPin.objects.filter(run=run)] == ["olivia"]
    assert Caller(dan).delete(f"training-jobs/{run.pk}/pin").status_code == 204
    assert JobPin.objects.filter(run=run).exists()
    assert api.delete(f"training-jobs/{run.pk}/pin").status_code == 204
    assert not JobPin.objects.filter(run=run).exists()


def test_a_second_person_approves_a_release(api: Caller, operator: Actor, agent: Agent, adam: Any) -> None:
    release = release_of(agent, operator)
    problem(api.post(f"releases/{release.pk}/approve"), 409)
    other = Caller(adam)
    for _ in range(2):
        assert [one["by"] for one in other.post(f"releases/{release.pk}/approve").json()["approvals"]] == ["adam"]
    assert AuditEvent.objects.filter(action="release.approved").count() == 1


def test_an_annotated_trajectory_becomes_a_dataset(api: Caller, run: TrainingRun) -> None:
    row = TrajectoryRecord.objects.filter(job_id=run.pk).first()
    assert row is not None
    body = {"filters": {"trajectory": str(row.pk)}, "answer": "Forty-two.", "name": "judged"}
    made = api.post("datasets/annotated", body, Idempotency_Key="k").json()
    assert (made["name"], made["size"], made["origin"]) == ("judged", 1, "annotated")
    (line,) = body_of(api.get(f"datasets/{made['id']}/download")).splitlines()
    assert json.loads(line)["expected_outcome"] == {"answer": "Forty-two."}
    problem(api.post("datasets/annotated", {"filters": {"sucess": "true"}}), 400)


def test_notice_preferences_are_changed_as_on_the_page(api: Caller, dan: Any) -> None:
    read = api.get("notice-preferences")
    assert read.json()["digest"] is False and read.json()["time_zone"] == "UTC"
    changed = api.send("patch", "notice-preferences", {"time_zone": "Europe/Berlin"}, {"If_Match": read["ETag"]})
    assert changed.json() == read.json() | {"time_zone": "Europe/Berlin"}
    problem(api.send("patch", "notice-preferences", {"digest": True}, {"If_Match": read["ETag"]}), 412)
    problem(api.patch("notice-preferences", {"time_zone": "Berlin"}), 400)
    assert Caller(dan).get("notice-preferences").json() == read.json()


def test_editors_of_budgets_change_the_address_of_alerts(api: Caller, adam: Any) -> None:
    problem(api.get("budget-settings"), 403)
    admin = Caller(adam)
    assert admin.patch("budget-settings", {"most_per_minute_usd": "0.25"}).json() == {
        "email_admins": True, "webhook_url": "", "most_per_minute_usd": 0.25,
    }  # fmt: skip
    assert admin.patch("budget-settings", {"most_per_minute_usd": None}).json()["most_per_minute_usd"] is None
    problem(admin.patch("budget-settings", {"most_per_minute_usd": 0}), 400)
    assert AuditEvent.objects.filter(action="budget.settings_changed").count() == 2
