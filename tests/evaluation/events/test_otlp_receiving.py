"""Traces by OTLP from the standard's own exporter, to trajectories."""

from __future__ import annotations

import gzip
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent as OtherAgent
from pydantic_ai import InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.rest import throttling
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from budgets.services import price_set
from evaluation.events.models import WaitingSpan
from evaluation.events.otlp import span_intake, trace_collection
from evaluation.events.otlp.trace_collection import traces_collect
from experiences.models import Agent, TrajectoryRecord
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer

pytestmark = pytest.mark.django_db
BINARY = "application/x-protobuf"
ADDRESS = "/api/v1/otlp/v1/traces"


@pytest.fixture
def agent(agent: Agent) -> Agent:
    agent.slug = "support-clerk"
    agent.save()
    return agent


@pytest.fixture(autouse=True)
def empty(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_collection, "SETTLED", -3_600.0)  # a test is one transaction, whose time does not move
    with connection.cursor() as cursor:  # Django doesn't know the table, and doesn't empty it
        cursor.execute("TRUNCATE experiences_trajectory")


def export(*spans: dict[str, Any], service: str = "support-clerk") -> dict[str, Any]:
    name = {"key": "service.name", "value": {"stringValue": service}}
    return {"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [{"spans": list(spans)}]}]}


def span(number: int = 1, *, trace: int = 1, parent: int = 0, asked: str = "Where is it?", at: float = 0.0) -> Any:
    began = int((at or time.time()) * 1e9)
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": asked}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Here."}]}]),
    }
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in about.items()]
    attributes.append({"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1000000"}})
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": "chat",
        "startTimeUnixNano": str(began),
        "endTimeUnixNano": str(began + 10**9),
        "attributes": attributes,
    }


def test_an_instrumented_agent_elsewhere_is_seen_as_a_trajectory(
    live_server: Any, acme: Any, adam: Any, olivia: Any, agent: Agent
) -> None:
    """Another library's agent, its own instrumentation and the standard's exporter, as they are."""
    price_set(Actor(adam), model="small", organization=acme, input_micros=2_000_000, output_micros=8_000_000)
    _, key = api_key_create(Actor(olivia), name="exporter", scopes=["traces:write"])
    provider = TracerProvider(resource=Resource.create({"service.name": agent.slug}))
    exporter = OTLPSpanExporter(f"{live_server.url}{ADDRESS}", headers={"Authorization": f"Bearer {key}"})
    provider.add_span_processor(BatchSpanProcessor(exporter))

    def brain(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return "It is 12 degrees, ann@example.org."
        function = {"name": "weather", "arguments": '{"city": "Bern"}'}
        calls = [{"id": "c1", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    with ModelServer(brain=brain) as server:
        model = OpenAIChatModel("small", provider=OpenAIProvider(base_url=server.base_url, api_key="sk-1"))
        other = OtherAgent(model, name="clerk", system_prompt="You are kind.")
        other.instrument = InstrumentationSettings(tracer_provider=provider)
        other.tool_plain(weather)
        assert "12 degrees" in other.run_sync("How warm is it in Bern?").output
    provider.shutdown()
    assert WaitingSpan.objects.filter(agent=agent).count() == 4
    assert traces_collect() == 1 and not WaitingSpan.objects.exists()
    row = TrajectoryRecord.objects.get(agent_id=agent.pk)
    assert (row.query, row.success, row.reward, row.purpose) == ("How warm is it in Bern?", True, None, "received")
    assert [step["action"]["type"] for step in row.steps] == ["tool", "answer"]
    assert row.steps[0]["result"]["output"] == "12 degrees"
    assert row.steps[1]["action"]["parameters"]["text"] == "It is 12 degrees, [email]."
    assert row.tokens > 0 and row.cost_micros >= 2 * row.tokens
    shown = Caller(olivia).get(f"trajectories/{row.pk}")
    assert shown.status_code == 200 and shown.json()["query"] == row.query
    client = Client()
    client.force_login(olivia)
    page = client.get(f"/trajectories/{row.pk}/").content.decode()
    assert "How warm is it in Bern?" in page and "weather" in page
    assert "recorded elsewhere" in page and "rollout 1 of 1" not in page and "null" not in page


def weather(city: str) -> str:
    """The temperature there."""
    return "12 degrees"


def test_a_trace_waits_for_its_root_and_is_stored_once(olivia: Any, agent: Agent) -> None:
    key = Caller(olivia)
    late = export(span(2, parent=1))
    assert key.post(ADDRESS[8:], late).json() == {}
    assert traces_collect() == 0 and WaitingSpan.objects.count() == 1
    root = {**span(1), "attributes": []}
    for body in (export(root), export(root, span(2, parent=1))):  # the second is what was sent before
        assert key.post(ADDRESS[8:], body).json() == {}
    assert WaitingSpan.objects.count() == 2
    assert traces_collect() == 1
    assert key.post(ADDRESS[8:], late).json() == {}  # once more
    assert traces_collect() == 0 and not WaitingSpan.objects.exists()
    assert TrajectoryRecord.objects.get().n_steps == 1
    stray = {**span(3, trace=2), "attributes": []}
    said = key.post(ADDRESS[8:], export(stray)).json()["partialSuccess"]
    assert "rejectedSpans" not in said and "none of the 1 spans is about a model" in said["errorMessage"]
    assert "(chat)" in said["errorMessage"]
    assert traces_collect() == 0 and not WaitingSpan.objects.exists()  # nothing of an agent


def asking(number: int, **more: Any) -> Any:
    """A call that asks for a tool."""
    found = span(number, **more)
    parts = [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {}}]
    words = {"stringValue": json.dumps([{"role": "assistant", "parts": parts}])}
    found["attributes"] = [
        {**one, "value": words} if one["key"] == "gen_ai.output.messages" else one for one in found["attributes"]
    ]
    return found


def tool(number: int, parent: int) -> Any:
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c1", "gen_ai.tool.name": "weather"}
    about["gen_ai.tool.call.result"] = "sunny"
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in about.items()]
    return {**span(number, parent=parent), "attributes": attributes}


def test_spans_that_come_late_reopen_their_trajectory(
    olivia: Any, adam: Any, acme: Any, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root that arrives first: each later batch makes the trajectory again, in its place. Nothing counts twice."""
    price_set(Actor(adam), model="small", organization=acme, input_micros=1_000_000, output_micros=0)
    key, now = Caller(olivia), time.time()
    root = {**span(1, at=now - 100), "attributes": []}
    key.post(ADDRESS[8:], export(root, asking(2, parent=1, at=now - 90)))
    assert traces_collect() == 1
    first = TrajectoryRecord.objects.get()
    assert (first.n_steps, first.steps[0]["result"]["error"]) == (1, "no result")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE experiences_trajectory SET reward = 0.5")
    key.post(ADDRESS[8:], export(tool(3, 2)))
    key.post(ADDRESS[8:], export(span(4, parent=1)))
    assert traces_collect() == 0 and not WaitingSpan.objects.exists()
    whole = TrajectoryRecord.objects.get()
    assert (whole.pk, whole.n_steps, whole.cost_micros, whole.reward) == (first.pk, 2, 2_000_000, 0.5)
    assert whole.steps[0]["result"]["output"] == "sunny" and whole.steps[1]["action"]["type"] == "answer"
    for name in ("KEPT", "FORSAKEN"):
        monkeypatch.setattr(trace_collection, name, -3_600.0)
    key.post(ADDRESS[8:], export(span(5, parent=1)))
    assert traces_collect() == 0 and not WaitingSpan.objects.exists()  # too late: the others are gone
    assert TrajectoryRecord.objects.get().n_steps == 2


def test_the_root_decides_that_a_trace_is_whole_and_not_silence(olivia: Any, agent: Agent) -> None:
    """A tool of 80 s: nothing comes meanwhile, and nothing is cut."""
    key, ago = Caller(olivia), "UPDATE events_waitingspan SET received_at = now() - make_interval(secs => %s)"
    key.post(ADDRESS[8:], export(asking(2, parent=1)))
    for seconds, stored in ((500, 0), (700, 1)):
        with connection.cursor() as cursor:
            cursor.execute(ago, [seconds])
        assert traces_collect() == stored
    key.post(ADDRESS[8:], export(tool(3, 2), span(4, parent=1), {**span(1), "attributes": []}))
    assert traces_collect() == 0 and TrajectoryRecord.objects.get().n_steps == 2


def test_log_records_join_their_spans(olivia: Any, agent: Agent) -> None:
    """As OpenAI's official instrumentation sends them: words by the log, figures by the span."""
    key = Caller(olivia)
    sent = json.loads((Path(__file__).with_name("recorded") / "openai_v2_2_1.json").read_text())
    spans, logs = ({name: sent[name]} for name in ("resourceSpans", "resourceLogs"))
    assert key.post(ADDRESS[8:], spans).json() == {} and traces_collect() == 1
    assert key.post("otlp/v1/logs", logs).json() == {} and traces_collect() == 0
    row = TrajectoryRecord.objects.get()
    assert (row.query, row.n_steps, row.tokens) == ("What is the weather in Bern?", 2, 50)
    binary = json_format.ParseDict(hexless(logs), ExportLogsServiceRequest()).SerializeToString()
    answer = key.client.generic("POST", "/api/v1/otlp/v1/logs", binary, BINARY, headers=key.headers)
    assert answer.status_code == 200 and ExportLogsServiceResponse.FromString(answer.content) == (
        ExportLogsServiceResponse()
    )
    assert traces_collect() == 0 and TrajectoryRecord.objects.get().n_steps == 2  # the same records once more


def hexless(value: Any) -> Any:
    """JSON of OTLP as protobuf's own JSON, which has ids in base64."""
    if isinstance(value, list):
        return [hexless(one) for one in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId")
    return {
        name: b64encode(bytes.fromhex(one)).decode() if name in ids else hexless(one) for name, one in value.items()
    }


def test_other_records_and_metrics_are_answered_and_not_kept(olivia: Any, agent: Agent) -> None:
    key = Caller(olivia)
    other = {"logRecords": [{"timeUnixNano": "1", "body": {"stringValue": "started"}}]}
    said = key.post("otlp/v1/logs", {"resourceLogs": [{**export()["resourceSpans"][0], "scopeLogs": [other]}]}).json()
    assert "None of the 1 log records is about an agent" in said["partialSuccess"]["errorMessage"]
    assert not WaitingSpan.objects.exists()
    said = key.post("otlp/v1/metrics", {"resourceMetrics": []}).json()["partialSuccess"]
    assert said == {"errorMessage": "Metrics are not kept here. OTEL_METRICS_EXPORTER=none saves sending them."}
    wrong = key.client.generic("POST", "/api/v1/otlp/v1/logs", b"\xff\xff", BINARY, headers=key.headers)
    assert wrong.status_code == 400 and "ExportLogsServiceRequest" in wrong.json()["detail"]


def test_a_trace_that_can_not_be_stored_holds_up_no_other(olivia: Any, agent: Agent) -> None:
    key = Caller(olivia)
    large = [span(number, trace=7, parent=9) for number in (1, 2)]
    for one in large:  # more tokens together than a column holds
        one["attributes"].append({"key": "gen_ai.usage.output_tokens", "value": {"intValue": str(2**31 - 1)}})
    for body in (export(*large, {**span(9, trace=7), "attributes": []}), export(span(3, trace=8))):
        assert key.post(ADDRESS[8:], body).json() == {}
    far = {**span(4, trace=9), "endTimeUnixNano": str(10**30)}
    assert key.post(ADDRESS[8:], export(far)).json()["partialSuccess"]["rejectedSpans"] == "1"
    assert traces_collect() == 1 and not WaitingSpan.objects.exists()
    assert TrajectoryRecord.objects.get().n_steps == 1


def test_traces_wait_for_the_key_that_encrypts_them(olivia: Any, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def keyless(*_: Any) -> int:
        raise KeyUnavailable("The key server does not answer.")

    root = {**span(1), "attributes": []}
    assert Caller(olivia).post(ADDRESS[8:], export(root, span(2, parent=1))).json() == {}
    with monkeypatch.context() as away:
        away.setattr(trace_collection, "trajectories_receive", keyless)
        assert traces_collect() == 0 and WaitingSpan.objects.count() == 2
    assert traces_collect() == 1 and TrajectoryRecord.objects.get().n_steps == 1


def test_refused_spans_are_reported(olivia: Any, charlie: Any, stella: Any, agent: Agent) -> None:
    unknown = Caller(olivia).post(ADDRESS[8:], export(span(), service="nobody"))
    assert unknown.status_code == 200 and unknown.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert "No agent nobody is registered" in unknown.json()["partialSuccess"]["errorMessage"]
    stranger = Caller(charlie).post(ADDRESS[8:], export(span(), service=agent.slug))
    assert f"No agent {agent.slug} is registered" in stranger.json()["partialSuccess"]["errorMessage"]
    for person, scopes in ((stella, None), (olivia, ["training:view"])):
        assert Caller(person, scopes).post(ADDRESS[8:], export(span(), service=agent.slug)).status_code == 403
    Agent.objects.filter(pk=agent.pk).update(collects=False)
    refused = Caller(olivia).post(ADDRESS[8:], export(span(), service=agent.slug)).json()["partialSuccess"]
    assert "may not be recorded" in refused["errorMessage"]
    assert not WaitingSpan.objects.exists()
    assert Caller().post(ADDRESS[8:], {}).status_code == 401


@pytest.fixture
def sent(olivia: Any, agent: Agent) -> Iterator[Any]:
    key = Caller(olivia)

    def send(body: bytes, kind: str = "application/json", **headers: str) -> Any:
        own = {**key.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return key.client.generic("POST", ADDRESS, body, kind, headers=own)

    yield send


def test_bodies_are_binary_or_json_and_may_be_packed(sent: Any, agent: Agent, settings: Any) -> None:
    body = json.dumps(export(span(), service="other")).encode()
    packed = sent(gzip.compress(body), content_encoding="gzip", x_agentcore_agent=agent.slug)
    assert packed.json() == {} and WaitingSpan.objects.count() == 1
    empty = sent(ExportTraceServiceRequest(resource_spans=[ResourceSpans()]).SerializeToString(), BINARY)
    assert empty.status_code == 200 and empty["content-type"] == BINARY
    assert not ExportTraceServiceResponse.FromString(empty.content).partial_success.rejected_spans
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000
    for wrong, kind, headers, status in (
        (b"\xff\xff", BINARY, {}, 400),
        (b"", BINARY, {}, 400),
        (b"", "application/json", {}, 400),
        (gzip.compress(b""), BINARY, {"content_encoding": "gzip"}, 400),
        (b"[1]", "application/json", {}, 400),
        (b"not gzip", "application/json", {"content_encoding": "gzip"}, 400),
        (gzip.compress(body)[:-9], "application/json", {"content_encoding": "gzip"}, 400),
        (b"{}", "application/json", {"content_encoding": "br"}, 400),
        (b"{}", "text/plain", {}, 415),
        (gzip.compress(b"x" * 10_000), "application/json", {"content_encoding": "gzip"}, 413),
        (b"x" * 2_000, "application/json", {}, 413),
    ):
        answer = sent(wrong, kind, **headers)
        assert (answer.status_code, bool(answer.json()["detail"])) == (status, True), wrong


def test_the_size_of_an_export_is_bounded_before_the_search(
    olivia: Any, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Caller(olivia)
    answer = api.post("otlp/v1/traces", export(span(1), span(2, asked="x" * span_intake.MOST_SPAN), span(3)))
    assert answer.status_code == 200, answer.content
    partial = answer.json()["partialSuccess"]
    assert (partial["rejectedSpans"], partial["errorMessage"]) == ("1", "A span has at most 1 MB.")
    assert WaitingSpan.objects.count() == 2
    monkeypatch.setattr(span_intake, "MOST_SPANS", 2)
    refused = api.post("otlp/v1/traces", export(span(4), span(5), span(6)))
    assert refused.status_code == 413 and "at most 2 spans; this one has 3" in refused.json()["detail"]
    assert WaitingSpan.objects.count() == 2


def test_a_key_sends_so_many_bytes_a_minute(
    sent: Any, agent: Agent, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OTLP_MB_PER_MINUTE = 1
    monkeypatch.setattr(throttling, "MINUTE", 86_400)  # so that none begins in the middle of the test
    padded = json.dumps(export(span()) | {"padding": "x" * 600_000}).encode()
    packed, kinds = gzip.compress(padded), {"content_encoding": "gzip"}
    assert [sent(packed, **kinds).status_code for _ in range(2)] == [200, 200]
    refused = sent(packed, **kinds)
    assert refused.status_code == 429 and 0 < int(refused["retry-after"]) <= 86_400
    settings.OTLP_MB_PER_MINUTE = 0
    assert sent(packed, **kinds).status_code == 200
