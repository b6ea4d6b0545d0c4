"""Attributes of other dialects in the names of OpenTelemetry's conventions for generative AI. Pure, no Django.

- the AI SDK (ai-sdk.dev, versions 4 to 6, and 7 with its legacy integration): ``ai.*``
- Langfuse's SDKs: ``langfuse.observation.*``
- LangSmith's SDKs: ``gen_ai.prompt`` and ``gen_ai.completion`` as JSON, ``langsmith.*``
- logfire before 4: ``request_data`` and ``response_data``
- Claude Code's spans: ``span.type``
- MLflow: ``mlflow.span*``, each value as JSON
- Braintrust: ``braintrust.*``, objects as JSON
- Spring AI: ``spring.ai.*``
- Haystack: ``haystack.component.*``, whose input and output are JSON
- Laminar (``lmnr.span.*``), AgentOps (``agentops.entity.*``) and Genkit (``genkit:*``): a kind, an input, an output

A name that the sender gave itself wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from evaluation.events.otlp.messages import listed, parsed

Attributes = Mapping[str, Any]
MODEL, TOOL, AGENT = "chat", "execute_tool", "invoke_agent"
TOOL_KIND: Final = "TOOL"  # of OpenInference
OBSERVATIONS: Final = {
    "generation": MODEL,
    "tool": TOOL,
    "retriever": TOOL,
    "agent": AGENT,
    "chain": AGENT,
    "span": AGENT,
}
CLAUDE_SPANS: Final = {"llm_request": MODEL, "tool": TOOL, "interaction": AGENT}


def as_genai(attributes: Attributes) -> Attributes:
    if attributes.keys().isdisjoint(DIALECTS):
        return attributes
    for sign, translate in DIALECTS.items():
        if sign in attributes:
            found = {name: value for name, value in translate(attributes).items() if value not in (None, "")}
            return {**found, **attributes}
    return attributes


def number(value: Any) -> int | None:
    """A count, which some senders write as a text."""
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _ai_sdk(about: Attributes) -> dict[str, Any]:
    operation = str(about["ai.operationId"])
    if operation == "ai.toolCall":
        return {
            "gen_ai.operation.name": TOOL,
            "gen_ai.tool.name": about.get("ai.toolCall.name"),
            "gen_ai.tool.call.id": about.get("ai.toolCall.id"),
            "gen_ai.tool.call.arguments": about.get("ai.toolCall.args", about.get("ai.toolCall.input")),
            "gen_ai.tool.call.result": about.get("ai.toolCall.result", about.get("ai.toolCall.output")),
        }
    if not operation.startswith(("ai.generate", "ai.stream")):
        return {}
    calls = parsed(about.get("ai.response.toolCalls")) or []
    text = about.get("ai.response.text") or about.get("ai.response.object") or ""
    content: list[Any] = [{"type": "text", "text": text}]
    if isinstance(calls, list):
        content += [{**call, "type": "tool-call"} for call in calls if isinstance(call, dict)]
    given = any(name in about for name in ("ai.response.text", "ai.response.object", "ai.response.toolCalls"))
    return {
        "gen_ai.operation.name": MODEL if operation.endswith((".doGenerate", ".doStream")) else AGENT,
        "gen_ai.request.model": about.get("ai.model.id"),
        "gen_ai.response.model": about.get("ai.response.model"),
        "gen_ai.response.id": about.get("ai.response.id"),
        "gen_ai.response.finish_reasons": [reason] if (reason := about.get("ai.response.finishReason")) else None,
        "gen_ai.input.messages": about.get("ai.prompt.messages", about.get("ai.prompt")),
        "gen_ai.output.messages": [{"role": "assistant", "content": content}] if given else None,
        "gen_ai.usage.input_tokens": number(about.get("ai.usage.inputTokens", about.get("ai.usage.promptTokens"))),
        "gen_ai.usage.output_tokens": number(
            about.get("ai.usage.outputTokens", about.get("ai.usage.completionTokens"))
        ),
        "gen_ai.usage.cache_read.input_tokens": number(
            about.get("ai.usage.cachedInputTokens", about.get("ai.usage.inputTokenDetails.cacheReadTokens"))
        ),
        "gen_ai.usage.cache_creation.input_tokens": number(about.get("ai.usage.inputTokenDetails.cacheWriteTokens")),
        "gen_ai.conversation.id": about.get("ai.telemetry.metadata.sessionId"),
    }


def _langfuse(about: Attributes) -> dict[str, Any]:
    name = "langfuse.observation"
    asked = about.get(f"{name}.input", about.get("langfuse.trace.input"))
    answered = about.get(f"{name}.output", about.get("langfuse.trace.output"))
    operation = OBSERVATIONS.get(str(about[f"{name}.type"]).lower())
    usage = parsed(about.get(f"{name}.usage_details", about.get(f"{name}.usage")))
    cost = parsed(about.get(f"{name}.cost_details"))
    settings = parsed(about.get(f"{name}.model.parameters"))
    found = {
        "gen_ai.operation.name": operation or about[f"{name}.type"],
        "gen_ai.request.model": about.get(f"{name}.model.name"),
        "gen_ai.usage.cost": cost.get("total") if isinstance(cost, dict) else None,
        "gen_ai.conversation.id": about.get("langfuse.session.id", about.get("session.id")),
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": answered,
        "gen_ai.tool.call.arguments": asked,
        "gen_ai.tool.call.result": answered,
        "error.message": about.get(f"{name}.status_message", "error")
        if str(about.get(f"{name}.level")).upper() == "ERROR"
        else None,
    }
    if isinstance(settings, dict):  # "Infinity" means no limit
        numbers = {key: one for key, one in settings.items() if isinstance(one, int | float)}
        found |= {f"gen_ai.request.{key}": numbers.get(key) for key in ("temperature", "top_p", "seed", "max_tokens")}
    return found | (_usage(usage) if isinstance(usage, dict) else {})


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Token counts by the names of OpenAI, Anthropic and Langfuse. Where reads and writes of a cache are counted beside
    the input (Anthropic, Langfuse), they are added to it."""

    def count(*names: str) -> int:
        return next((found for name in names if (found := number(usage.get(name))) is not None), 0)

    details = [usage.get(name) for name in ("prompt_tokens_details", "input_tokens_details", "input_token_details")]
    inner = next((one for one in details if isinstance(one, Mapping)), {})
    beside = count("cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
    written = count("cache_creation_input_tokens", "input_cache_creation")
    within = number(inner.get("cached_tokens", inner.get("cache_read"))) or 0
    return {
        "gen_ai.usage.input_tokens": count("input", "prompt_tokens", "input_tokens", "promptTokens") + beside + written,
        "gen_ai.usage.output_tokens": count("output", "completion_tokens", "output_tokens", "completionTokens"),
        "gen_ai.usage.cache_read.input_tokens": beside or within,
        "gen_ai.usage.cache_creation.input_tokens": written or number(inner.get("cache_creation")) or 0,
    }


def _langsmith(about: Attributes) -> dict[str, Any]:
    usage = parsed(about.get("langsmith.metadata.usage_metadata"))
    found = _usage(usage) if isinstance(usage, dict) else {}
    kind = str(about["langsmith.span.kind"]).lower()
    answered = parsed(about.get("gen_ai.completion"))
    if isinstance(answered, dict) and set(answered) == {"output"}:
        answered = answered["output"]
    return found | {
        "gen_ai.operation.name": {"llm": MODEL, "tool": TOOL, "retriever": TOOL, "chain": AGENT}.get(kind, kind),
        "gen_ai.input.messages": about.get("gen_ai.prompt"),
        "gen_ai.output.messages": answered,
        "gen_ai.tool.name": about.get("langsmith.trace.name"),
        "gen_ai.tool.call.arguments": about.get("gen_ai.prompt"),
        "gen_ai.tool.call.result": answered,
        "gen_ai.request.temperature": about.get("langsmith.metadata.ls_temperature"),
        "gen_ai.conversation.id": about.get("langsmith.metadata.session_id", about.get("langsmith.metadata.thread_id")),
    }


def _logfire(about: Attributes) -> dict[str, Any]:
    asked, answered = parsed(about["request_data"]), parsed(about.get("response_data"))
    if not isinstance(asked, dict) or "model" not in asked:
        return {}
    answer = answered if isinstance(answered, dict) else {}
    usage = answer.get("usage")
    return (_usage(usage) if isinstance(usage, dict) else {}) | {
        "gen_ai.operation.name": MODEL,
        "gen_ai.request.model": asked["model"],
        "gen_ai.input.messages": asked if "messages" in asked else None,
        "gen_ai.output.messages": answer.get("message") and [answer["message"]],
        "gen_ai.request.temperature": asked.get("temperature"),
    }


def _mlflow(about: Attributes) -> dict[str, Any]:
    """Its attributes are all JSON."""
    kind, usage = str(parsed(about["mlflow.spanType"])).strip('"').lower(), parsed(about.get("mlflow.chat.tokenUsage"))
    cost = parsed(about.get("mlflow.llm.cost"))
    asked, answered = about.get("mlflow.spanInputs"), about.get("mlflow.spanOutputs")
    return (_usage(usage) if isinstance(usage, dict) else {}) | {
        "gen_ai.operation.name": {"chat_model": MODEL, "llm": MODEL, "tool": TOOL, "retriever": TOOL}.get(kind, AGENT),
        "gen_ai.request.model": str(about.get("mlflow.llm.model") or "").strip('"'),
        "gen_ai.usage.cost": cost.get("total_cost") if isinstance(cost, dict) else None,
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": answered,
        "gen_ai.tool.call.arguments": asked,
        "gen_ai.tool.call.result": answered,
    }


def _braintrust(about: Attributes) -> dict[str, Any]:
    """Of a span without a type the model, or what was counted, says that it is a call."""

    def named(name: str) -> Mapping[str, Any]:
        found = parsed(about.get(f"braintrust.{name}"))
        prefix = f"braintrust.{name}."
        apart = {key.removeprefix(prefix): value for key, value in about.items() if key.startswith(prefix)}
        return (found if isinstance(found, dict) else {}) | apart

    kind, metadata, metrics = named("span_attributes").get("type"), named("metadata"), named("metrics")
    called = "model" in metadata or "completion_tokens" in metrics or "gen_ai.request.model" in about
    of_calls = {"llm": MODEL, "tool": TOOL, "task": AGENT, "function": AGENT, "eval": AGENT, None: AGENT}
    operation = MODEL if called and kind is None else of_calls.get(kind, kind)
    written = metrics.get("prompt_cache_creation_tokens")
    cached = {"cached_tokens": metrics.get("prompt_cached_tokens"), "cache_creation": written}
    found = _usage({**metrics, "input_token_details": cached}) if metrics else {}
    asked = about.get("braintrust.input_json", about.get("braintrust.input"))
    answered = about.get("braintrust.output_json", about.get("braintrust.output"))
    return (
        found
        | _said(operation, asked, answered)
        | {
            "gen_ai.request.model": metadata.get("model"),
            "gen_ai.request.temperature": metadata.get("temperature"),
            "gen_ai.tool.name": named("span_attributes").get("name"),
            "gen_ai.conversation.id": metadata.get("session_id", metadata.get("thread_id")),
        }
    )


def _laminar(about: Attributes) -> dict[str, Any]:
    operation = {"llm": MODEL, "tool": TOOL}.get(str(about["lmnr.span.type"]).lower(), AGENT)
    session = about.get("lmnr.association.properties.session_id")
    return _said(operation, about.get("lmnr.span.input"), about.get("lmnr.span.output")) | {
        "gen_ai.conversation.id": session
    }


def _agentops(about: Attributes) -> dict[str, Any]:
    operation = {"llm": MODEL, "tool": TOOL}.get(str(about["agentops.span.kind"]).lower(), AGENT)
    asked, answered = about.get("agentops.entity.input"), about.get("agentops.entity.output")
    return _said(operation, asked, answered) | {"gen_ai.tool.name": about.get("agentops.entity.name")}


def _genkit(about: Attributes) -> dict[str, Any]:
    operation = {"model": MODEL, "tool": TOOL, "retriever": TOOL}.get(str(about.get("genkit:metadata:subtype")), AGENT)
    answer = parsed(about.get("genkit:output"))
    usage = answer.get("usage") if isinstance(answer, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    counted = _usage({"input": usage.get("inputTokens"), "output": usage.get("outputTokens")}) if usage else {}
    name = str(about.get("genkit:name") or "")
    return (
        counted
        | _said(operation, about.get("genkit:input"), about.get("genkit:output"))
        | {
            "gen_ai.request.model": name.rpartition("/")[2] if operation == MODEL else None,
            "gen_ai.tool.name": name,
            "gen_ai.conversation.id": about.get("genkit:sessionId"),
        }
    )


def _spring(about: Attributes) -> dict[str, Any]:
    """Its operation is "framework" for all that is not a call of a model."""
    if about["spring.ai.kind"] != "tool_call":
        return {}
    return {
        "openinference.span.kind": TOOL_KIND,
        "gen_ai.tool.name": about.get("spring.ai.tool.definition.name"),
        "gen_ai.tool.call.arguments": about.get("spring.ai.tool.call.arguments"),
        "gen_ai.tool.call.result": about.get("spring.ai.tool.call.result"),
    }


def _haystack(about: Attributes) -> dict[str, Any]:
    kind = str(about["haystack.component.type"])
    asked, answered = parsed(about.get("haystack.component.input")), parsed(about.get("haystack.component.output"))
    given, made = (one if isinstance(one, dict) else {} for one in (asked, answered))
    if "Generator" in kind:
        replies = made.get("replies")
        first = next(iter(replies), None) if isinstance(replies, list) else None
        metas = [first.get("meta")] if isinstance(first, dict) else made.get("meta")
        meta = next((one for one in metas if isinstance(one, dict)), {}) if isinstance(metas, list) else {}
        usage = meta.get("usage")
        return (_usage(usage) if isinstance(usage, dict) else {}) | {
            "gen_ai.operation.name": MODEL,
            "gen_ai.request.model": meta.get("model"),
            "gen_ai.input.messages": given,
            "gen_ai.output.messages": {"output": first} if isinstance(first, str) else made,
            "gen_ai.response.finish_reasons": [meta["finish_reason"]] if meta.get("finish_reason") else None,
        }
    if kind == "ToolInvoker":
        calls = [call for message in listed(given.get("messages"), "assistant") for call in message.calls]
        results = listed(made.get("tool_messages"), "tool")
        if len(calls) != 1 or len(results) != 1:  # the next call's messages have the result of each
            return {}
        return {
            "gen_ai.operation.name": TOOL,
            "gen_ai.tool.name": calls[0].name,
            "gen_ai.tool.call.id": calls[0].id,
            "gen_ai.tool.call.arguments": calls[0].arguments,
            "gen_ai.tool.call.result": results[0].text,
        }
    operation = TOOL if kind.endswith("Retriever") else AGENT if kind == "Agent" else None
    return _said(operation, asked, answered) | {"gen_ai.tool.name": kind} if operation else {}


def _said(operation: Any, asked: Any, answered: Any) -> dict[str, Any]:
    """An operation with its input and output, which are messages or a tool's arguments and result."""
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": answered,
        "gen_ai.tool.call.arguments": asked,
        "gen_ai.tool.call.result": answered,
    }


def _claude_code(about: Attributes) -> dict[str, Any]:
    kind = CLAUDE_SPANS.get(str(about["span.type"]))
    if kind is None:
        return {}
    return _usage(
        {name: about.get(name) for name in about if name.endswith("_tokens")}
        | {
            "cache_read_input_tokens": about.get("cache_read_tokens"),
            "cache_creation_input_tokens": about.get("cache_creation_tokens"),
        }
    ) | {
        "gen_ai.operation.name": kind,
        "gen_ai.request.model": about.get("model"),
        "gen_ai.input.messages": about.get("user_prompt"),
        "gen_ai.response.id": about.get("request_id"),
        "gen_ai.tool.name": about.get("tool_name"),
        "gen_ai.tool.call.id": about.get("tool_use_id"),
        "gen_ai.tool.call.arguments": about.get("tool_input", about.get("full_command")),
    }


DIALECTS: Final[dict[str, Callable[[Attributes], dict[str, Any]]]] = {
    "ai.operationId": _ai_sdk,
    "langfuse.observation.type": _langfuse,
    "langsmith.span.kind": _langsmith,
    "request_data": _logfire,
    "span.type": _claude_code,
    "mlflow.spanType": _mlflow,
    "braintrust.span_attributes": _braintrust,
    "braintrust.input_json": _braintrust,
    "braintrust.input": _braintrust,
    "braintrust.output_json": _braintrust,
    "braintrust.output": _braintrust,
    "lmnr.span.type": _laminar,
    "agentops.span.kind": _agentops,
    "genkit:type": _genkit,
    "spring.ai.kind": _spring,
    "haystack.component.type": _haystack,
}
