"""P13: spans taken by OTLP from exporters over HTTP, and until they are trajectories.

An export holds 512 spans, as the standard's exporter sends them: traces of ten spans with messages of some hundred
characters, packed. Two exporters send at once to one process of the site. ``OTLP_RIVALS`` names others that take the
same bodies in the same rounds, as many of them as they take in twenty seconds: ``name=http://127.0.0.1:6006/v1/traces``
with commas between.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, Final
from uuid import uuid4

from django.db import connection
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_create
from evaluation.events.models import WaitingSpan
from evaluation.events.otlp.trace_collection import traces_collect
from experiences.models import TrajectoryRecord
from tests import factories
from tests.performance.table import Figure, at_least
from tests.support.workers import Fleet, eventually

EXPORTS: Final = 24  # of a round
SPANS: Final = 512  # of an export
OF_A_TRACE: Final = 10
ROUNDS: Final = 3
EXPORTERS: Final = 2
SECONDS: Final = 20.0  # of a round, after which no export is begun or sent again
PATIENCE: Final = 15.0  # for an answer
SAID: Final = "Where is my order? It was sent on Monday, and the page says that it is on its way since then. " * 3


def suite() -> list[Figure]:
    member = factories.MembershipFactory(role=Role.OPERATOR)
    agent = factories.AgentFactory(organization=member.organization, created_by=member.user, slug="clerk")
    _, key = api_key_create(Actor(member.user), name="bench", scopes=["traces:write"])
    connection.close()
    fleet = Fleet()
    try:
        port = fleet.web()
        takers = {"ours": f"http://127.0.0.1:{port}/api/v1/otlp/v1/traces"}
        takers |= dict(one.split("=", 1) for one in os.environ.get("OTLP_RIVALS", "").split(",") if one)
        assert _send(takers["ours"], key, [export(1)])
        rates: dict[str, list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            bodies = [export(SPANS) for _ in range(EXPORTS)]
            for name, url in takers.items():
                began = time.perf_counter()
                taken = _send(url, key, bodies)
                rates[name].append(taken * SPANS / (time.perf_counter() - began))
    finally:
        fleet.stop()
    waiting = WaitingSpan.objects.filter(agent=agent).count()
    assert waiting == 1 + ROUNDS * EXPORTS * SPANS, waiting
    began = time.perf_counter()
    eventually(lambda: traces_collect() >= 0 and not WaitingSpan.objects.exists(), seconds=180)
    collected = waiting / (time.perf_counter() - began)
    assert TrajectoryRecord.objects.filter(agent_id=agent.pk).count() >= waiting // OF_A_TRACE
    ours = median(rates.pop("ours"))
    figures = [
        at_least("P13", "spans taken by OTLP over HTTP", ours, 3_000, "/s", digits=0),
        at_least("P13", "spans that became trajectories", collected, 3_000, "/s", digits=0),
    ]
    best = max((median(found) for found in rates.values()), default=0.0)
    summary = ", ".join(f"{name} {median(found):,.0f}/s" for name, found in rates.items())
    return figures + ([at_least("P13", f"times the best of {summary}", ours / best, 3, "x")] if best else [])


def _send(url: str, key: str, bodies: list[bytes]) -> int:
    """The number of them that was taken, in ``SECONDS`` at most. Raises HTTPError: one was refused for good."""
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip", "Authorization": f"Bearer {key}"}
    headers["x-mlflow-experiment-id"] = "0"  # MLflow takes nothing without it
    ends = time.monotonic() + SECONDS

    def post(body: bytes) -> bool:
        while time.monotonic() < ends:
            request = urllib.request.Request(url, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    assert answer.status == 200 and not answer.read().strip(b"{}\n ")
                    return True
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503):  # an exporter sends these again
                    raise
            except OSError:  # no answer: it was busy, and an exporter would send it again as well
                pass
            time.sleep(0.2)
        return False

    with ThreadPoolExecutor(EXPORTERS) as pool:
        return sum(pool.map(post, bodies))


def export(spans: int) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(_pair("service.name", "clerk"))
    scope = resource.scope_spans.add()
    now = time.time_ns()
    trace = root = b""
    for number in range(spans):
        span = scope.spans.add(name="chat small", start_time_unix_nano=now + number, end_time_unix_nano=now + 10**9)
        span.span_id = uuid4().bytes[:8]
        if number % OF_A_TRACE == 0:
            trace, root = uuid4().bytes, span.span_id
            span.attributes.append(_pair("gen_ai.operation.name", "invoke_agent"))
        else:
            span.parent_span_id = root
            span.attributes.extend(_pair(name, value) for name, value in _about(number).items())
        span.trace_id = trace
    return gzip.compress(request.SerializeToString(), 1)


def _about(number: int) -> dict[str, Any]:
    messages = [{"role": "user", "parts": [{"type": "text", "content": f"{number}: {SAID}"}]}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.response.model": "small",
        "gen_ai.usage.input_tokens": 200 + number,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": SAID}]}]),
        "server.address": "127.0.0.1",
    }


def _pair(name: str, value: str | int) -> KeyValue:
    given = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=name, value=given)
