"""Messages of a conversation, in the forms that instrumentations write them. Pure, no Django.

One message has parts (OpenTelemetry, Gemini), contents (OpenAI, Anthropic, the AI SDK), or the fields of LangChain's
classes. A value is a message, a list of them, or what holds one: a body of a request, an answer with choices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from evaluation.events.otlp.agent_spans import SpanMessage, SpanToolCall

DEEPEST: Final = 6  # lists and objects around messages
# By the class of a message of LangChain ("HumanMessage"), its type ("human"), and Gemini's roles.
ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool", "developer": "system"}
# Parts that are named by their one member: Gemini's, Bedrock's, Genkit's, Haystack's.
CALLED: Final = ("functionCall", "toolUse", "toolRequest", "tool_call", "function_call")
ANSWERED: Final = ("functionResponse", "toolResult", "toolResponse", "tool_call_result", "function_response")
CALLS: Final = frozenset({"tool-call", "tool_use", *CALLED})
RESULTS: Final = frozenset({"tool_call_response", "tool-result", "tool_result", "function_call_output", *ANSWERED})
IDS: Final = ("id", "toolCallId", "tool_use_id", "call_id", "toolUseId", "ref")
WORDS: Final = frozenset({"text", "output_text", "input_text"})
HOLDERS: Final = (
    "messages", "choices", "generations", "candidates", "message", "kwargs", "data", "contents", "content", "input",
    "output", "replies",
)  # fmt: skip
UNSAID: Final = frozenset({"reasoning"})  # items of the Responses API that are no message
# A request or an answer of one text: of a function, its one argument.
TEXTS: Final = (
    "output", "input", "content", "text", "prompt", "query", "question", "answer", "result", "q", "task",
)  # fmt: skip
OF_A_DECORATOR: Final = frozenset({"args", "kwargs", "sanitize_inputs_outputs"})  # around a function's arguments
LONGEST_PRINTED: Final = 20_000  # characters of a dict as Python prints it


def messages_of(value: Any, role: str) -> list[SpanMessage]:
    """The messages of a value, which may be JSON in a text; ``role`` is that of words without one."""
    found = parsed(value)
    messages = _held(found, role, 0)
    if messages is None:
        text = text_of(_only_text(found))
        messages = [SpanMessage(role, text)] if text else []
    return messages


def listed(value: Any, role: str) -> list[SpanMessage]:
    """The messages of an attribute that holds nothing else, of which some may lack a role."""
    found = parsed(value)
    if not isinstance(found, list) or all(isinstance(one, str) for one in found):
        return messages_of(found, role)
    made: list[SpanMessage] = []
    for one in found:
        if (held := _held(one, role, 1)) is not None:
            made += held
        elif isinstance(one, dict):
            made.append(message_of(one))
    return made


def _held(value: Any, role: str, depth: int) -> list[SpanMessage] | None:
    """None: there is none of their forms."""
    if depth > DEEPEST:
        return None
    if isinstance(value, list):
        parts = [_held(one, role, depth + 1) for one in value]
        return (
            None if not parts or any(part is None for part in parts) else [one for part in parts for one in part or ()]
        )
    if not isinstance(value, dict):
        return None
    if _is_message(value):
        return [message_of(value, role)]
    if value.get("type") in UNSAID:
        return []
    if value.get("type") in CALLS | RESULTS:  # items of the Responses API
        return [message_of({"role": "tool" if value["type"] in RESULTS else "assistant", "content": [value]})]
    system = [SpanMessage("system", text) for text in [_system(value)] if text]
    for name in HOLDERS:
        if (held := _held(value.get(name), role, depth + 1)) is not None:
            return system + (_one(held) if name == "output" else held)
    if system and (text := text_of(_only_text({**value, "system": None}))):
        return [*system, SpanMessage(role, text)]
    return None


def _one(items: list[SpanMessage]) -> list[SpanMessage]:
    """The items of one answer as one message."""
    calls = tuple(call for item in items for call in item.calls)
    return [SpanMessage("assistant", "\n".join(item.text for item in items if item.text), calls)] if items else []


def _system(value: Mapping[str, Any]) -> str:
    config = value.get("config")
    found = value.get("system", config.get("system_instruction") if isinstance(config, dict) else None)
    if isinstance(found, dict):  # Gemini's
        found = found.get("parts")
    return found if isinstance(found, str) else joined(sequence(found))


def _is_message(value: Mapping[str, Any]) -> bool:
    """True if an object has a speaker and a content."""
    speaks = isinstance(value.get("role"), str) or value.get("type") in ROLES or value.get("type") == "system"
    return speaks and any(name in value for name in ("content", "parts", "tool_calls", "contents"))


def message_of(message: Mapping[str, Any], role: str = "") -> SpanMessage:
    parts = sequence(message.get("parts") or message.get("content") or message.get("contents"))
    texts: list[str] = []
    calls: list[SpanToolCall] = []
    answers: list[Mapping[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("thought") is not True:  # Gemini's thoughts are texts with this mark
            kind = _kind(part)
            if kind in WORDS:
                found = part.get("content") or part.get("text")
                texts += [found] if isinstance(found, str) else []
            elif kind in CALLS:
                calls.append(_call_of(part))
            elif kind in RESULTS:
                answers.append(part)
    text = "\n".join(filter(None, texts))
    if "parts" not in message and not any(isinstance(part, dict) for part in parts):
        text = text_of(message.get("content"))
    elif answers and not text:
        text = "\n".join(map(_result_of, answers))
    beside = message.get("additional_kwargs")  # of LangChain's classes
    called = message.get("tool_calls") or (beside.get("tool_calls") if isinstance(beside, dict) else None)
    calls += openai_calls(called)
    said = str(message.get("role") or message.get("type") or role)
    answered = message.get("tool_call_id")
    if answers:
        inner = _inner(answers[0], ANSWERED)
        answered = answered or _field(inner, *IDS) or _field(_inner(inner, ("origin",)), *IDS)
        said = "tool" if said == "user" else said  # Anthropic and Gemini have no other role for results
    return SpanMessage(ROLES.get(said, said), text, tuple(calls), str(answered or ""))


def joined(parts: Iterable[Any]) -> str:
    """The texts among parts."""
    texts = (
        part if isinstance(part, str) else part.get("content") or part.get("text")
        for part in parts
        if isinstance(part, str) or (isinstance(part, dict) and _kind(part) in WORDS)
    )
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def openai_calls(value: Any) -> list[SpanToolCall]:
    """Calls of tools beside the content: OpenAI's ``function``, or the name itself (LangChain)."""
    return [
        _call_of({**one, **inner} if isinstance(inner := one.get("function"), dict) else one)
        for one in sequence(value)
        if isinstance(one, dict) and (isinstance(one.get("function"), dict) or "name" in one)
    ]


def _kind(part: Mapping[str, Any]) -> str:
    """The type of a part, or the name of its one member."""
    return str(part.get("type") or next((name for name in (*CALLED, *ANSWERED) if name in part), "text"))


def _inner(part: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    return next((part[name] for name in names if isinstance(part.get(name), dict)), part)


def _call_of(part: Mapping[str, Any]) -> SpanToolCall:
    call = _inner(part, CALLED)
    arguments = parsed(_field(call, "arguments", "input", "args"))
    name = _field(call, "name", "toolName", "tool_name")
    return SpanToolCall(str(name or ""), arguments, str(_field(call, *IDS) or ""))


def _result_of(part: Mapping[str, Any]) -> str:
    found = _field(_inner(part, ANSWERED), "response", "result", "output", "content")
    if isinstance(found, dict) and "value" in found:  # the AI SDK's {"type": "text", "value": …}
        found = found["value"]
    return joined(found) if isinstance(found, list) and joined(found) else text_of(found)


def _only_text(value: Any) -> Any:
    """The text of a list of texts, or of an object that has one and little else; another value unchanged."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    if not isinstance(value, dict):
        return value
    full = {name: one for name, one in value.items() if one not in (None, "", [], {})}
    if set(full) == {"args"} and isinstance(full["args"], list) and len(full["args"]) == 1:
        full = {"input": full["args"][0]}  # of a Python function
    texts = [one for name, one in full.items() if isinstance(one, str) and (len(full) == 1 or name in TEXTS)]
    return texts[0] if len(texts) == 1 else value


def arguments_of(value: Any) -> Any:
    """The arguments of a tool, without what a decorator or a framework wrote around them."""
    found = _printed(parsed(value))
    if not isinstance(found, dict):
        return found
    if "input_str" in found:  # LangChain's event of a tool
        inner = found.get("inputs")
        return inner if isinstance(inner, dict) else _printed(parsed(found["input_str"]))
    args, kwargs = found.get("args") or [], found.get("kwargs")
    if "kwargs" not in found or found.keys() - OF_A_DECORATOR or not isinstance(kwargs, dict | None):
        return found
    if not args:
        return kwargs or {}
    return args[0] if not kwargs and len(args) == 1 and isinstance(args[0], dict) else found


def result_of(value: Any) -> Any:
    """The result of a tool, out of the message or the object in which a framework keeps it."""
    found = parsed(value)
    if isinstance(found, list):
        return (joined(found) if all(isinstance(one, dict) and "type" in one for one in found) else "") or found
    if not isinstance(found, dict):
        return found
    if found.keys() == {"output", "kwargs"}:  # OpenLLMetry's
        return result_of(found["output"])
    if "raw_output" in found and "tool_name" in found:  # LlamaIndex's
        return found["raw_output"]
    if found.get("lc") == 1 and isinstance(found.get("kwargs"), dict):
        return result_of(found["kwargs"])
    answers = "content" in found and ("tool_call_id" in found or found.get("role") == "tool")
    return result_of(found["content"]) if answers else found


def _printed(value: Any) -> Any:
    """The dict that a text is as Python prints it; another value unchanged."""
    if isinstance(value, str) and value[:2] in ("{'", '{"') and value[-1:] == "}" and len(value) <= LONGEST_PRINTED:
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
    return value


def _field(value: Mapping[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def parsed(value: Any) -> Any:
    """A text's value if it is JSON; another text unchanged."""
    if isinstance(value, str) and value[:1] in '{["':
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def sequence(value: Any) -> Sequence[Any]:
    found = parsed(value)
    return found if isinstance(found, list) else []


def text_of(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
