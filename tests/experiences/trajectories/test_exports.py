"""Exports as files: every format, by a job that may die, resumed downloads, encryption, and how files end."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.files.storage import default_storage
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.encryption.services import key_rotate
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.retention import rules
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from experiences.models import Agent, AgentRuntime, ExportPart, TrajectoryExport, TrajectoryRecord
from experiences.rollouts.types import Scenario, Step, TrajectoryGroup
from experiences.trajectories import storage
from experiences.trajectories.archive import archive_lifecycle
from experiences.trajectories.exports import execution
from experiences.trajectories.exports.presenters import filters_shown
from experiences.trajectories.exports.services import export_cancel, export_queue
from tests.support.callers import Caller, body_of
from tests.support.pages import html
from tests.support.rows import lived_run, owner_of, trajectory
from tests.support.running import run_to_end, slices_of
from training.models import TrainingRun

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators"),
]
working = pytest.mark.django_db(transaction=True)  # a lease looks at the job by a connection of its own


@pytest.fixture(autouse=True)
def this_month() -> Iterator[date]:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    yield timezone.now().date().replace(day=1)
    storage._known_partitions.clear()
    archive_lifecycle.partitions_ahead()


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


@pytest.fixture
def caller(olivia: Any) -> Caller:
    return Caller(olivia)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and batches of a few rows, so that 24 make many."""
    monkeypatch.setattr(execution, "PART_ROWS", 5)
    monkeypatch.setattr("experiences.trajectories.exports.selection.BATCH", 5)


def group_of(run: TrainingRun, iteration: int, scenario: int, n: int) -> TrajectoryGroup:
    """A group of a language model's rollouts."""
    made = []
    for rollout in range(n):
        state = {"observation": f"question {scenario}", "done": []}
        state["prompt"] = [{"role": "system", "content": "Be brief."}, {"role": "user"}]
        action = {"type": "answer", "tool": "", "parameters": {"text": f"answer {rollout}"}}
        one = trajectory(iteration, scenario, rollout, f"question {scenario}", rollout % 2 == 0)
        one.steps = [Step(state, action, {"success": True, "output": "", "error": ""}, timestamp=1.0)]
        made.append(one)
    storage.trajectories_write(owner_of(run), made)
    return TrajectoryGroup(Scenario(scenario, f"question {scenario}"), made)


def in_words(agent: Agent) -> None:
    """The agent is a language model."""
    Agent.objects.filter(pk=agent.pk).update(runtime=AgentRuntime.LLM)


def exported(operator: Actor, filters: dict[str, Any], format: str = "jsonl") -> TrajectoryExport:
    made = export_queue(operator, filters, format=format)
    job = run_to_end(made.job)
    assert job.status == Status.COMPLETED, job.error
    return TrajectoryExport.objects.select_related("job").get(pk=made.pk)


def streamed(caller: Caller, **query: Any) -> bytes:
    return body_of(caller.get("trajectories/export", **query))


def test_parquet_has_typed_columns_and_the_same_rows(caller: Caller, run: TrainingRun) -> None:
    lines = [json.loads(line) for line in streamed(caller, job=str(run.job_id)).splitlines()]
    response = caller.get("trajectories/export", format="parquet", job=str(run.job_id))
    table = pq.read_table(io.BytesIO(body_of(response)))
    assert response["Content-Type"] == "application/vnd.apache.parquet" and table.num_rows == 24
    assert str(table.schema.field("created_at").type) == "timestamp[us, tz=UTC]"
    assert str(table.schema.field("reward").type) == "double" and str(table.schema.field("success").type) == "bool"
    for row, line in zip(table.to_pylist(), lines, strict=True):
        assert json.loads(row["steps"]) == line["steps"] and row["trajectory_id"] == line["trajectory_id"]
        assert row["step_advantages"] == line["step_advantages"] and row["advantage"] == line["advantage"]
        assert json.loads(row["components"]) == line["components"]


@working
def test_a_job_writes_each_row_once_though_every_slice_is_another_process(
    operator: Actor, caller: Caller, run: TrainingRun, settings: Any, small_parts: None
) -> None:
    made = export_queue(operator, {"job": str(run.job_id)}, format="jsonl")
    with slices_of(settings, 0):
        job = run_to_end(made.job)
    assert (job.status, job.progress) == (Status.COMPLETED, 1.0) and job.attempt > 3
    whole = body_of(caller.get(f"exports/{made.pk}/download"))
    assert whole == streamed(caller, job=str(run.job_id)) and whole.count(b"\n") == 24
    body = caller.get(f"exports/{made.pk}").json()
    assert body["rows"] == sum(one["rows"] for one in body["parts"]) == 24 and len(body["parts"]) == 5
    for one in body["parts"]:
        part = body_of(caller.get(f"exports/{made.pk}/download", part=one["part"]))
        assert hashlib.sha256(part).hexdigest() == one["sha256"] and len(part) == one["size_bytes"]
    downloads = AuditEvent.objects.filter(action="export.downloaded")
    assert downloads.count() == 6


@working
def test_a_worker_that_dies_before_its_part_is_noted_leaves_nothing_behind(
    operator: Actor, run: TrainingRun, settings: Any, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export_queue(operator, {"job": str(run.job_id)}, format="jsonl")
    with slices_of(settings, 0):
        claimed = lifecycle.claim(made.job.id)
        assert claimed is not None and run_slice(claimed) == "given back"
        # The next one stores its part, and is gone before it says so.
        stray = f"{made.folder}/00002-99"
        default_storage.save(stray, io.BytesIO(b"half"))
        run_to_end(made.job)
    assert not default_storage.exists(stray)
    assert TrajectoryExport.objects.get(pk=made.pk).rows == 24
    assert ExportPart.objects.filter(export=made).count() == 5


@working
def test_an_interrupted_download_can_be_continued(operator: Actor, caller: Caller, run: TrainingRun) -> None:
    made = exported(operator, {"job": str(run.job_id)})
    address = f"/api/v1/exports/{made.pk}/download"

    def get(**headers: str) -> Any:
        return caller.client.get(address, headers=caller.headers | {k.replace("_", "-"): v for k, v in headers.items()})

    first = get()
    whole, etag = body_of(first), first["ETag"]
    assert first["Accept-Ranges"] == "bytes" and int(first["Content-Length"]) == len(whole)
    rest = get(Range="bytes=1000-", If_Range=etag)
    assert rest.status_code == 206 and body_of(rest) == whole[1000:]
    assert rest["Content-Range"] == f"bytes 1000-{len(whole) - 1}/{len(whole)}"
    assert body_of(get(Range="bytes=10-19")) == whole[10:20] and body_of(get(Range="bytes=-7")) == whole[-7:]
    other = get(Range="bytes=1000-", If_Range='"another"')
    assert other.status_code == 200 and body_of(other) == whole
    assert get(Range=f"bytes={len(whole)}-").status_code == 416


@working
def test_the_permission_to_export_is_checked_at_each_download(
    operator: Actor, run: TrainingRun, dan: Any, stella: Any, charlie: Any
) -> None:
    made = exported(operator, {"job": str(run.job_id)})
    assert Caller(dan).get(f"exports/{made.pk}/download").status_code == 200
    assert Caller(stella).get(f"exports/{made.pk}/download").status_code == 403
    assert Caller(stella).get("exports").json()["results"]
    assert Caller(charlie).get(f"exports/{made.pk}/download").status_code == 404
    assert Caller(stella).post("exports", {}).status_code == 403


@working
def test_parts_of_parquet_are_files_of_their_own_and_come_as_one_archive(
    operator: Actor, caller: Caller, run: TrainingRun, settings: Any, small_parts: None
) -> None:
    made = exported(operator, {"job": str(run.job_id)}, "parquet")
    body = body_of(caller.get(f"exports/{made.pk}/download"))
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        tables = [pq.read_table(io.BytesIO(archive.extractfile(one).read())) for one in archive]  # type: ignore[union-attr]
    ids = [one for table in tables for one in table["trajectory_id"].to_pylist()]
    assert len(tables) == 5 and len(set(ids)) == len(ids) == 24
    response = caller.client.get(
        f"/api/v1/exports/{made.pk}/download", headers=caller.headers | {"Range": "bytes=700-9000"}
    )
    assert body_of(response) == body[700:9001]


@working
def test_archived_rows_are_exported_and_a_month_that_goes_meanwhile_stops_the_export(
    operator: Actor, caller: Caller, run: TrainingRun, this_month: date, settings: Any, small_parts: None
) -> None:
    before = streamed(caller, job=str(run.job_id))
    made = export_queue(operator, {"job": str(run.job_id)}, format="jsonl")
    with slices_of(settings, 0):
        claimed = lifecycle.claim(made.job.id)
        assert claimed is not None and run_slice(claimed) == "given back"
        list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(this_month)))
        assert archive_lifecycle.month_drop(this_month)
        job = run_to_end(made.job)
    assert job.status == Status.FAILED and "archived" in job.error
    with slices_of(settings, 0):
        again = exported(operator, {"job": str(run.job_id)})
    assert body_of(caller.get(f"exports/{again.pk}/download")) == before


@working
def test_the_file_of_an_organisation_that_encrypts_is_encrypted(
    operator: Actor, adam: Any, acme: Any, caller: Caller, run: TrainingRun, this_month: date
) -> None:
    run_to_end(key_rotate(Actor(adam), acme))
    made = exported(operator, {"job": str(run.job_id)})
    part = made.parts.get()
    stored = default_storage.open(part.path).read()
    assert part.key_version == 1 and b"int_calc" not in stored and b"question" not in stored
    whole = body_of(caller.get(f"exports/{made.pk}/download"))
    assert whole == streamed(caller, job=str(run.job_id)) and b"int_calc" in whole
    # One that was moved here from elsewhere does not open.
    ExportPart.objects.filter(pk=part.pk).update(number=2)
    with pytest.raises(Exception, match="moved here"):
        body_of(caller.get(f"exports/{made.pk}/download"))


@working
def test_files_of_cancelled_expired_or_erased_exports_are_deleted(
    operator: Actor, adam: Any, run: TrainingRun, settings: Any, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with slices_of(settings, 0):
        made = export_queue(operator, {"job": str(run.job_id)}, format="jsonl")
        claimed = lifecycle.claim(made.job.id)
        assert claimed is not None
        run_slice(claimed)
    [part] = ExportPart.objects.filter(export=made)
    with pytest.raises(Conflict, match="being exported"):
        subject_erase(Actor(adam), ["question 1: what"])
    export_cancel(operator, made)
    assert not default_storage.exists(part.path)
    kept = [exported(operator, {"job": str(run.job_id)}, format) for format in ("jsonl", "csv", "parquet")]
    other = exported(operator, {"job": str(run.job_id), "search": "question 2"})
    report = subject_erase(Actor(adam), ["Question 1: What"])
    assert report.found["exports"] == 3 and not report.left["exports"]
    for one in kept:
        one.refresh_from_db()
        assert one.deleted_at is not None and not default_storage.listdir(one.folder)[1]
    path = other.parts.all()[0].path
    assert default_storage.exists(path) and rules.get("exports").age() == 0  # type: ignore[misc]
    later = timezone.now() + timedelta(days=settings.EXPORT_DAYS + 1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert rules.get("exports").due() == rules.get("exports").age() == 1  # type: ignore[misc]
    assert not default_storage.exists(path)


@working
def test_pairs_are_of_whole_groups_wherever_a_part_ends(
    operator: Actor, caller: Caller, run: TrainingRun, settings: Any, small_parts: None
) -> None:
    TrajectoryRecord.objects.all()._raw_delete("default")
    in_words(run.agent)
    for scenario in range(4):
        group_of(run, 0, scenario, 6)
    with slices_of(settings, 0):
        by_job, by_agent = (
            exported(operator, filters, "dpo") for filters in ({"job": str(run.job_id)}, {"agent": run.agent.slug})
        )
    lines = body_of(caller.get(f"exports/{by_job.pk}/download"))
    pairs = [json.loads(line) for line in lines.splitlines()]
    assert len(pairs) == 12 == by_job.rows and by_job.read == 24 and by_job.parts.count() > 1
    assert {one["prompt"][1]["content"] for one in pairs} == {f"question {n}" for n in range(4)}
    assert lines == body_of(caller.get(f"exports/{by_agent.pk}/download"))
    rows = streamed(caller, format="sft", job=str(run.job_id)).splitlines()
    assert len(rows) == 12  # the successes
    assert len(streamed(caller, format="sft", job=str(run.job_id), min_reward="-5").splitlines()) == 24
    assert json.loads(rows[0]) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "question 0"},
            {"role": "assistant", "content": "answer 0"},
        ]
    }


def test_an_agent_that_chooses_actions_has_no_conversations(caller: Caller, run: TrainingRun) -> None:
    for format in ("sft", "dpo"):
        for scope in ({"job": str(run.job_id)}, {"agent": run.agent.slug}):
            response = caller.get("trajectories/export", format=format, **scope)
            assert response.status_code == 400 and "chooses actions" in response.json()["detail"]


@pytest.mark.parametrize(
    ("filters", "format"), [({"sucess": "true"}, "jsonl"), ({"success": "maybe"}, "csv"), ({}, "json"), ({}, "x")]
)
def test_a_wrong_export_is_refused_before_there_is_a_job(
    operator: Actor, run: TrainingRun, filters: dict[str, str], format: str
) -> None:
    with pytest.raises(Invalid):
        export_queue(operator, filters, format=format)
    assert not Job.objects.filter(kind="export").exists()


def test_a_request_that_is_sent_twice_makes_one_export(caller: Caller, run: TrainingRun) -> None:
    body = {"format": "csv", "filters": {"job": str(run.job_id), "success": True, "iteration": 1}}
    first, again = (caller.post("exports", body, Idempotency_Key="k1") for _ in range(2))
    assert first.status_code == again.status_code == 201 and first.json()["id"] == again.json()["id"]
    assert first.json()["filters"] == {"job": str(run.job_id), "success": "true", "iteration": "1"}
    assert caller.post(f"exports/{first.json()['id']}/cancel").json()["status"] == "cancelled"
    assert caller.get(f"exports/{first.json()['id']}/download").status_code in {404, 409}


@working
def test_the_console_leads_from_the_list_to_the_file(olivia: Any, run: TrainingRun) -> None:
    console = Client()
    console.force_login(olivia)
    listed = html(console.get("/trajectories/?outcome=success&q=question+1"))
    assert "/exports/new/?outcome=success&amp;q=question+1" in listed
    page = html(console.get("/exports/new/?outcome=success&q=question+1"))
    assert "4 trajectories." in page and "<dd>succeeded</dd>" in page and 'name="search" value="question 1"' in page
    wrong = console.post("/exports/start/", {"format": "sft", "job": str(run.job_id)})
    assert wrong.status_code == 400 and "chooses actions" in html(wrong)
    sent = {"format": "csv", "outcome": "success", "search": "question 1"}
    assert console.post("/exports/start/", sent)["Location"] == "/exports/"
    assert "CSV: search question 1, succeeded" in html(console.get("/exports/"))
    made = TrajectoryExport.objects.get()
    assert "Cancel" in html(console.get("/exports/"))
    run_to_end(made.job)
    assert f"/exports/{made.pk}/download/" in html(console.get("/exports/"))
    body = body_of(console.get(f"/exports/{made.pk}/download/"))
    assert body.count(b"\n") == 5 and body == body_of(console.get("/exports/stream/", sent))
    assert f"/exports/{made.pk}/" in html(console.get(f"/exports/{made.pk}/"))


def test_the_command_writes_what_is_streamed(caller: Caller, run: TrainingRun, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    call_command("export_trajectories", agent=run.agent.slug, output=path, success="true")
    assert path.read_bytes() == streamed(caller, agent=run.agent.slug, success="true")
    call_command("export_trajectories", job=str(run.job_id), format="csv", output=path)
    assert path.read_bytes() == streamed(caller, format="csv", job=str(run.job_id))
    assert [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]
    with pytest.raises(CommandError, match="There is no job"):
        call_command("export_trajectories", job="x")


def test_the_filters_of_an_export_are_shown_by_names(olivia: Any, charlie: Any, run: TrainingRun) -> None:
    filters = {"job": str(run.job_id), "agent": run.agent.slug, "success": "false", "min_reward": "0.5"}
    [mine] = filters_shown(Actor(olivia), [filters])
    job = f"{run.job.title} ({str(run.job_id)[-6:]})"
    assert mine == [("job", job), ("agent", run.agent.name), ("outcome", "failed"), ("min reward", "0.5")]
    [theirs] = filters_shown(Actor(charlie), [filters])
    assert theirs[:2] == [("job", str(run.job_id)), ("agent", run.agent.slug)]
