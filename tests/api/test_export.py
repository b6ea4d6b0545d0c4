"""Exports over REST: streamed, filtered, logged, in constant memory."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from typing import Any

import pytest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.tenancy.actors import Actor
from experiences.trajectories.exports import selection, streams
from experiences.trajectories.exports.selection import Export, Mark, export_start
from experiences.trajectories.exports.streams import stream
from experiences.trajectories.storage import trajectories_write
from tests.support.callers import Caller, body_of
from tests.support.rows import owner_of, trajectory
from training.exports.metric_files import MetricFile
from training.models import Iteration, TrainingRun

pytestmark = [
    pytest.mark.django_db,
    # Django warns when a sync test reads an async stream; the server reads it as it is.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators"),
]


def test_export_streams_jsonl_with_advantages(api: Caller, run: TrainingRun) -> None:
    response = api.get("trajectories/export", job=str(run.job_id))
    assert response.streaming and response.is_async and response["Content-Type"] == "application/x-ndjson"
    assert response["X-Accel-Buffering"] == "no"
    rows = [json.loads(line) for line in body_of(response).splitlines()]
    places = [(row["iteration"], row["scenario"], row["rollout"]) for row in rows]
    assert places == sorted(places) and len(set(places)) == 24
    assert rows[0]["advantage"] == 1.0 and rows[0]["steps"][0]["timestamp"].endswith("+00:00")
    event = AuditEvent.objects.get(action="trajectories.exported")
    assert event.after == {"format": "jsonl", "filters": {"job": str(run.job_id)}} and event.door.startswith("key")


def test_the_figures_of_a_job_are_sent_while_they_are_read(api: Caller, run: TrainingRun) -> None:
    """A body that is no asynchronous one is put together whole before its first byte is sent."""
    response = api.get(f"training-jobs/{run.pk}/metrics.jsonl")
    assert response.streaming and response.is_async
    lines = [json.loads(line) for line in body_of(response).splitlines()]
    numbers = list(Iteration.objects.filter(run=run).order_by("number").values_list("number", flat=True))
    assert [one["iteration"] for one in lines] == numbers and len(numbers) > 1
    last, rest = MetricFile.of(run).lines(numbers[0])
    assert last == numbers[-1] and [json.loads(line) for line in rest.splitlines()] == lines[1:]


def test_export_streams_csv_that_no_spreadsheet_runs(api: Caller, run: TrainingRun) -> None:
    trajectories_write(owner_of(run), [trajectory(9, 0, 0, '=HYPERLINK("http://x")', True)])
    body = body_of(api.get("trajectories/export", format="csv", job=str(run.job_id))).decode()
    rows = list(csv.DictReader(io.StringIO(body)))
    assert len(rows) == 25 and rows[-1]["query"].startswith("'=HYPERLINK")
    assert json.loads(rows[0]["steps"])[0]["action"]["tool"] == "int_calc"
    assert rows[0]["reward"] == "1.1" and rows[0]["advantage"] == "1.0"


def test_json_is_answered_whole_up_to_the_limit(api: Caller, run: TrainingRun, monkeypatch: Any) -> None:
    body = api.get("trajectories/export", format="json", success="true").json()
    assert body["total_count"] == body["exported_count"] == len(body["trajectories"]) == 12
    monkeypatch.setattr(streams, "MAX_AT_ONCE", 11)
    response = api.get("trajectories/export", format="json", success="true")
    assert response.status_code == 413 and "jsonl" in response.json()["detail"]
    assert len(body_of(api.get("trajectories/export", success="true")).splitlines()) == 12


@pytest.mark.parametrize(
    ("query", "count"),
    [({}, 24), ({"min_reward": 0}, 12), ({"iteration": 0}, 12), ({"search": "question 1"}, 8), ({"max_reward": -5}, 0)],
)
def test_export_takes_the_filters_of_the_list(api: Caller, run: TrainingRun, query: dict[str, Any], count: int) -> None:
    for scope in ({}, {"job": str(run.job_id)}, {"agent": run.agent.slug}):
        assert len(body_of(api.get("trajectories/export", **query, **scope)).splitlines()) == count


@pytest.mark.parametrize(
    "query", [{"format": "parquett"}, {"format": "../etc"}, {"success": "maybe"}, {"sucess": "true"}, {"since": "now"}]
)
def test_export_refuses_before_the_first_byte(api: Caller, run: TrainingRun, query: dict[str, str]) -> None:
    assert api.get("trajectories/export", **query).status_code == 400
    assert not AuditEvent.objects.filter(action="trajectories.exported").exists()


def test_each_role_exports_or_is_refused(run: TrainingRun, dan: Any, stella: Any, charlie: Any, olivia: Any) -> None:
    job = {"job": str(run.job_id)}
    assert Caller(dan).get("trajectories/export", **job).status_code == 200
    assert Caller(stella).get("trajectories/export", **job).status_code == 403
    assert Caller(stella).get("trajectories/export").status_code == 403
    assert Caller(charlie).get("trajectories/export", **job).status_code == 404
    assert body_of(Caller(charlie).get("trajectories/export")) == b""
    assert Caller(olivia, ["training:view"]).get("trajectories/export", **job).status_code == 403


def test_batches_meet_without_a_gap(operator: Actor, run: TrainingRun, monkeypatch: Any) -> None:
    monkeypatch.setattr(selection, "BATCH", 5)
    for filters in ({"job": str(run.job_id)}, {}):
        export = export_start(operator, filters, format="jsonl")
        batches = list(export.batches())
        ids = [row.values["id"] for batch in batches for row in batch.rows]
        assert len(ids) == len(set(ids)) == 24 and len(batches) == 5
        for batch in batches:
            for row in batch.rows:  # from behind any row the others come, and no other
                after = Mark.of(batch.mark(row).stored())
                rest = [one.values["id"] for more in export.batches(after) for one in more.rows]
                assert rest == ids[ids.index(row.values["id"]) + 1 :]


async def _drain(export: Export) -> tuple[int, int]:
    """(bytes, peak of memory in bytes) of a stream that is thrown away."""
    size = 0
    tracemalloc.start()
    try:
        async for part in stream(export, "jsonl"):
            size += len(part)
        return size, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_stays_constant(operator: Actor, run: TrainingRun) -> None:
    """Eight times the rows, about the same peak."""
    from asgiref.sync import async_to_sync

    owner = owner_of(run)

    def write(first: int, last: int) -> None:
        trajectories_write(owner, [trajectory(n, 0, 0, "q" * 50, True) for n in range(first, last)])

    write(100, 1100)
    small = async_to_sync(_drain)(export_start(operator, {"job": str(run.job_id)}, format="jsonl"))
    write(1100, 8100)
    large = async_to_sync(_drain)(export_start(operator, {"job": str(run.job_id)}, format="jsonl"))
    assert large[0] > 7 * small[0]
    assert large[1] < 1.5 * small[1], (small, large)
