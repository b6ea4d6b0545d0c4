"""One trace from a client's request through the job that it launched to the model, in logs, spans and headers."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentcore_site import middleware
from agentcore_site.jobs.models import Job
from agentcore_site.lib import trace_context
from agentcore_site.telemetry import JsonFormatter
from experiences.models import Agent
from tests.support.llm_server import ModelServer
from tests.support.running import run_to_end
from tests.training.services.test_runs_llm import CONFIG, ROWS, model_agent, server
from training.services import run_setup, spans

__all__ = ["model_agent", "server"]
pytestmark = pytest.mark.django_db(transaction=True)
THEIRS = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The logged lines, as the output would show them."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("training.kept")
    log.addHandler(handler)
    yield handler.stream
    log.removeHandler(handler)


def test_a_trace_goes_from_the_request_to_the_model(
    olivia: Any,
    model_agent: Agent,
    server: ModelServer,
    lines: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for module in (middleware, spans):
        monkeypatch.setattr(module, "tracer", lambda: provider.get_tracer("test"))
    client = Client()
    client.force_login(olivia)
    given = {"agent": model_agent.slug, "training_data": ROWS, "config": CONFIG | {"n_iterations": 2}}
    headers = {"traceparent": f"00-{THEIRS}-b7ad6b7169203331-01"}
    made = client.post("/api/v1/training-jobs", given, content_type="application/json", headers=headers)
    assert made.status_code == 201, made.content
    job = Job.objects.get(pk=made.json()["job_id"])

    log = logging.getLogger("training.kept")
    monkeypatch.setattr(run_setup, "trajectory_collected", lambda *_, **__: log.warning("a rollout was kept"))
    run_to_end(job)
    result = exporter.get_finished_spans()
    request = next(one for one in result if one.name == "POST /api/v1/training-jobs")
    iterations = [one for one in result if one.name == "iteration"]
    assert {f"{one.context.trace_id:032x}" for one in result} == {THEIRS}
    assert len(iterations) == 2 and {one.parent.span_id for one in iterations if one.parent} == {
        request.context.span_id
    }
    sent = [trace_context.parsed(call.headers.get("traceparent", "")) for call in server.requests]
    assert sent and {one and one.trace_id for one in sent} == {THEIRS}
    messages = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert {(one["job_id"], one["trace_id"]) for one in messages} == {(str(job.id), THEIRS)}
    assert {one["iteration"] for one in messages} == {"1", "2"}


@pytest.mark.parametrize(
    "given", ["", "00-0-0-00", f"00-{'0' * 32}-b7ad6b7169203331-01", f"ff-{THEIRS}-b7ad6b7169203331-01"]
)
def test_a_job_without_a_trace_has_its_own(given: str) -> None:
    job = UUID("0197a0b4-1c2d-7e3f-8a4b-5c6d7e8f9a0b")
    assert str(trace_context.of_job(job, given)) == f"00-{job.hex}-8a4b5c6d7e8f9a0b-01"
