"""Spans of a run: what happened, in which epoch, for how much, as a collector gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentcore_site import telemetry
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from experiences.rollouts.structured_output import ModelAnswer
from experiences.rollouts.types import Trajectory
from tests.support.rows import group, queued_run
from training.models import TrainingRun
from training.services.spans import RunSpans
from training.trainer import IterationReport

pytestmark = pytest.mark.django_db


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(operator: Actor, agent: Agent, exporter: InMemorySpanExporter) -> RunSpans:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run = queued_run(operator, agent)
    run.policy_kind = "llm"
    return RunSpans.of(run, provider.get_tracer("test"))


@pytest.fixture
def fresh_tracer() -> Iterator[None]:
    telemetry.tracer.cache_clear()
    yield
    telemetry.tracer.cache_clear()


def report(epoch: int = 2) -> IterationReport:
    made = [group(7, scenario, 4) for scenario in range(2)]
    for of_group in made:
        for one in of_group.trajectories:
            one.steps[0].cost_micros, one.steps[0].timestamp = 250, one.started_at
    return IterationReport(iteration=7, epoch=epoch, groups=made, metrics={"success_rate": 0.5}, rollout_seconds=1.0)


def answered(stage: str) -> ModelAnswer:
    return ModelAnswer(f"{stage}/7", stage, 7, "a", True, {}, tokens=90, cost_micros=400, latency_ms=800.0, own_ms=2.0)


def test_an_iteration_holds_its_tool_calls_and_its_reflection(spans: RunSpans, exporter: InMemorySpanExporter) -> None:
    for stage in ("summary", "lessons"):
        spans.asked(answered(stage))
    spans.iteration(report())
    values = {span.name: span for span in exporter.get_finished_spans()}
    assert set(values) == {"iteration", "tool int_calc", "reflection", "question summary", "question lessons"}
    iteration, reflection = values["iteration"], values["reflection"]
    for span in exporter.get_finished_spans():
        attributes: Any = span.attributes
        assert attributes["tfgrpo_epoch"] == 2 and attributes["group_size"] == 4
        assert attributes["tool_cost_usd"] > 0 and attributes["latency_ms"] > 0
        assert span.start_time < span.end_time  # type: ignore[operator]
        assert span.context.trace_id == iteration.context.trace_id
        assert span is iteration or iteration.start_time <= span.start_time  # type: ignore[operator]
    assert values["tool int_calc"].parent.span_id == iteration.context.span_id  # type: ignore[union-attr]
    assert values["question lessons"].parent.span_id == reflection.context.span_id  # type: ignore[union-attr]
    assert values["question lessons"].attributes["tool_cost_usd"] == 0.0004  # type: ignore[index]
    assert iteration.attributes["tool_cost_usd"] == pytest.approx(8 * 0.00025)  # type: ignore[index]


def test_each_tool_call_is_a_span_and_questions_count_once(spans: RunSpans, exporter: InMemorySpanExporter) -> None:
    spans.asked(answered("summary"))
    spans.iteration(report())
    spans.iteration(report(epoch=3))
    names = [span.name for span in exporter.get_finished_spans()]
    assert names.count("tool int_calc") == 2 * 2 * 4 and names.count("question summary") == 1


def test_no_span_is_made_without_a_listener(operator: Actor, agent: Agent, settings: Any, fresh_tracer: None) -> None:
    settings.OTEL_ENDPOINT = ""
    run = queued_run(operator, agent)
    run.policy_kind = "llm"
    quiet = RunSpans.of(run)
    assert quiet.tracer is None
    quiet.asked(answered("summary"))
    quiet.iteration(report())
    assert quiet._asked == []


def test_agents_that_choose_actions_make_none(
    operator: Actor, agent: Agent, exporter: InMemorySpanExporter, spans: RunSpans
) -> None:
    run = TrainingRun.objects.get()
    assert RunSpans.of(run, spans.tracer).tracer is None


def test_spans_arrive_at_the_endpoint_that_is_set(settings: Any, fresh_tracer: None) -> None:
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            settings.OTEL_ENDPOINT = f"http://127.0.0.1:{server.server_port}/"
            tracer: Any = telemetry.tracer()
            tracer.start_span("hello").end()
            tracer.span_processor.shutdown()
        finally:
            server.shutdown()
            thread.join()
    assert [path for path, _ in got] == ["/v1/traces"] and b"hello" in got[0][1] and b"agentcore" in got[0][1]


def test_a_rollout_that_was_kept_from_before_a_crash_is_inside_its_iteration(
    spans: RunSpans, exporter: InMemorySpanExporter
) -> None:
    made = report()
    first: Trajectory = made.groups[0].trajectories[0]
    spans.iteration(made)
    iteration = next(span for span in exporter.get_finished_spans() if span.name == "iteration")
    assert iteration.start_time <= first.started_at * 1e9  # type: ignore[operator]
