"""One small agent with the ``openai`` client, reported by the SDK that the first argument names.

``OTEL_SERVICE_NAME`` and ``OTEL_EXPORTER_OTLP_…`` say as whom and to where, ``OPENAI_BASE_URL`` where the model
answers. Settings of the SDKs are variables of the environment too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import openai
from opentelemetry import _logs, trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


def weather(city: str) -> str:
    return "sunny"


def answer(client: Any, tool: Callable[[str], str] = weather) -> str:
    """The agent: calls of the model until it answers."""
    messages: list[Any] = [
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": "What is the weather in Bern?"},
    ]
    while True:
        said = client.chat.completions.create(model="small", messages=messages, tools=TOOLS, temperature=0.5)
        message = said.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = tool(json.loads(call.function.arguments)["city"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def exported() -> Callable[[], None]:
    """Sends spans and log records by OpenTelemetry's own exporters; the result ends that."""
    spans, logs = TracerProvider(), LoggerProvider()
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    trace.set_tracer_provider(spans)
    _logs.set_logger_provider(logs)

    def ended() -> None:
        spans.shutdown()
        logs.shutdown()

    return ended


def instrumented(*instrumentors: Any) -> None:
    """Instrumentations around a span of the agent."""
    ended = exported()
    for one in instrumentors:
        one().instrument()
    with trace.get_tracer("agent").start_as_current_span("agent"):
        answer(openai.OpenAI())
    ended()


def openai_v2() -> None:
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    instrumented(OpenAIInstrumentor)


def openllmetry() -> None:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    instrumented(OpenAIInstrumentor)


def openinference() -> None:
    from openinference.instrumentation.openai import OpenAIInstrumentor

    instrumented(OpenAIInstrumentor)


def two_at_once() -> None:
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor as Other

    instrumented(OpenAIInstrumentor, Other)


def logfire() -> None:
    import logfire

    logfire.configure(send_to_logfire=False, service_name=os.environ["OTEL_SERVICE_NAME"], console=False)
    client = openai.OpenAI()
    logfire.instrument_openai(client)
    with logfire.span("agent"):
        answer(client)
    logfire.shutdown()


def langfuse() -> None:
    from langfuse import Langfuse, observe
    from langfuse.openai import OpenAI

    client = Langfuse(public_key="none", secret_key="none", span_exporter=OTLPSpanExporter())
    tool = observe(as_type="tool", name="weather")(weather)
    observe(as_type="agent", name="agent")(lambda: answer(OpenAI(), lambda city: str(tool(city))))()
    client.shutdown()


def langsmith() -> None:
    ended = exported()
    from langsmith import traceable
    from langsmith.run_trees import get_cached_client
    from langsmith.wrappers import wrap_openai

    tool = traceable(run_type="tool", name="weather")(weather)
    client = wrap_openai(openai.OpenAI())
    traceable(run_type="chain", name="agent")(lambda: answer(client, lambda city: str(tool(city))))()
    get_cached_client().flush()
    ended()


{
    "langfuse": langfuse,
    "langsmith": langsmith,
    "logfire": logfire,
    "openai-v2": openai_v2,
    "openai-v2-spans": openai_v2,
    "openinference": openinference,
    "openllmetry": openllmetry,
    "two": two_at_once,
}[sys.argv[1]]()
