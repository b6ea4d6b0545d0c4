"""Answers from the wire: any JSON becomes an ``Answer`` or a ``Malformed`` with a reason, and nothing else.

Usable parts are used, and their oddities are noted: parts of content are joined, tool arguments that are no
JSON are kept as text. Names of unknown tools are kept too, because the runtime decides what to do about them.
NUL and lone surrogates become U+FFFD, since no database takes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from budgets.llm.error_bodies import read_error
from budgets.llm.errors import Malformed
from budgets.llm.types import Answer, AnswerTokens, ReportedUsage, ToolCall
from budgets.llm.usage import as_number, kind, read_usage, without_zeros

NAME_LENGTH: Final = 200  # of names and ids, which end in columns and in pages
QUOTED: Final = 64 * 1024  # characters of an API's own message that are looked through before a few are quoted
REPLACEMENT: Final = "\ufffd"


def parse(body: bytes) -> Answer:
    """The answer in the body of a response that says success; raises Malformed only."""
    return read(load(body))


def load(body: bytes | str) -> Any:
    """JSON of any depth and with any escapes, or Malformed."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:  # orjson refuses lone surrogates, which some servers write when a stream cuts an emoji in two
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        pass
    if not body.strip():
        raise Malformed("The answer is empty.", broken=True)
    raise Malformed("The answer is no JSON.", broken=True)  # it may be a page of somewhere else: it is not quoted


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read(value: object) -> Answer:
    """The answer in a parsed body. Raises Malformed, with the usage as far as the body had it."""
    notes: list[str] = []
    if not isinstance(value, Mapping):
        raise Malformed(f"The answer is {kind(value)}, not an object.", broken=True)
    usage = read_usage(value.get("usage"), notes)
    try:
        choice = _choice(value, notes)
        message = _message(choice, notes)
        text = _text(message, notes)
        calls = _tool_calls(message, notes)
    except Malformed as error:
        error.usage = usage
        raise
    reasoning = _reasoning(message)
    if not text and not calls:
        notes.append("the answer is empty")
    if text or calls or reasoning:
        usage = without_zeros(usage, notes)
    return Answer(
        text=text,
        tool_calls=calls,
        finish_reason=_name(choice.get("finish_reason"), "finish_reason", notes),
        reasoning=reasoning,
        model=_name(value.get("model"), "model", notes),
        id=_name(value.get("id"), "id", notes),
        usage=usage,
        notes=tuple(notes),
        tokens=_tokens(value, choice),
    )


def error_in(value: object) -> Malformed:
    """The error in a body or a stream of status 200; ``status`` is its code where that is one of HTTP's."""
    found = read_error({"error": value})
    given = value.get("code") if isinstance(value, Mapping) else None
    number = as_number(given)
    status = int(number) if number is not None and 400 <= number <= 599 else None
    return Malformed(
        "The answer is an error: {}",
        status=status,
        quoted=(found.message or "no message")[:QUOTED],
        most=300,
        broken=True,
        code=found.code,
        param=found.param,
    )


def clean(text: str) -> str:
    """``text`` without NUL and lone surrogates."""
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = "".join(REPLACEMENT if "\ud800" <= one <= "\udfff" else one for one in text)
    return text


def _choice(value: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    choices = value.get("choices")
    if not choices and value.get("error"):
        raise error_in(value["error"])
    if not isinstance(choices, list):
        if choices is None:  # of a model API, or of a proxy that says something else
            raise Malformed("The answer has no choices.", broken=read_usage(value.get("usage"), []) == ReportedUsage())
        raise Malformed(f"choices is {kind(choices)}.")
    if not choices:
        raise Malformed("The answer's list of choices is empty.")
    if len(choices) > 1:
        notes.append(f"{len(choices)} choices: the first is taken")
    first = choices[0]
    if not isinstance(first, Mapping):
        raise Malformed(f"choices[0] is {kind(first)}.")
    if first.get("error") and not first.get("message"):
        raise error_in(first["error"])
    return first


def _message(choice: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    message = choice.get("message")
    if isinstance(message, Mapping):
        return message
    if isinstance(text := choice.get("text"), str):
        notes.append("choices[0] has a text and no message")
        return {"content": text}
    raise Malformed(f"choices[0].message is {kind(message)}.")


def _text(message: Mapping[str, Any], notes: list[str]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_part(part, notes) for part in content)
    if content is None or content == "":
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            notes.append("the model refused")
            return clean(refusal)
        return ""
    if not isinstance(content, str):
        raise Malformed(f"content is {kind(content)}.")
    return clean(content)


def _part(part: object, notes: list[str]) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(text := part.get("text"), str):
        return text
    notes.append("a part of content is no text")
    return ""


def _reasoning(message: Mapping[str, Any]) -> str:
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(name), str):
            return clean(text)
    return ""


def _tool_calls(message: Mapping[str, Any], notes: list[str]) -> tuple[ToolCall, ...]:
    listed = message.get("tool_calls")
    if listed is None and isinstance(message.get("function_call"), Mapping):
        listed = [{"function": message["function_call"]}]  # what it was called before tools
    if listed is None:
        return ()
    if not isinstance(listed, list):
        notes.append(f"tool_calls is {kind(listed)}")
        return ()
    calls = (_tool_call(index, entry, notes) for index, entry in enumerate(listed))
    return tuple(call for call in calls if call is not None)


def _tool_call(index: int, entry: object, notes: list[str]) -> ToolCall | None:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(function, Mapping):
        notes.append(f"tool_calls[{index}] names no function")
        return None
    name = function.get("name")
    if not isinstance(name, str) or not name:
        notes.append(f"tool_calls[{index}] has no name")
        return None
    given = entry.get("id")
    # An answer to a call needs an id to refer to; servers that give none accept any.
    identity = clean(given)[:NAME_LENGTH] if isinstance(given, str) and given else f"call_{index}"
    arguments, raw, error = _arguments(function.get("arguments"))
    if error:
        notes.append(f"tool_calls[{index}]: {error}")
    return ToolCall(identity, clean(name)[:NAME_LENGTH], arguments, raw, error)


def _arguments(value: object) -> tuple[Mapping[str, Any], str, str]:
    """(arguments, their text, what is wrong with them)."""
    if value is None or value == "":
        return {}, "", ""
    if isinstance(value, Mapping):  # Ollama's own shape
        value = json.dumps(value)
    if not isinstance(value, str):
        return {}, json.dumps(value), f"the arguments are {kind(value)}, not an object"
    text = clean(value).replace("\\u0000", "\\ufffd")
    try:
        parsed = load(text)
    except Malformed:
        return {}, text, "the arguments are no JSON"
    if not isinstance(parsed, Mapping):
        return {}, text, f"the arguments are {kind(parsed)}, not an object"
    return parsed, text, ""


def _tokens(value: Mapping[str, Any], choice: Mapping[str, Any]) -> AnswerTokens | None:
    """The sampled tokens, as vLLM and SGLang return them on request; None unless their three lists fit together. The
    ids of the prompt are beside the choices in vLLM's answers, within each choice in SGLang's."""
    prompt = value.get("prompt_token_ids", choice.get("prompt_token_ids"))
    ids, reported = choice.get("token_ids"), choice.get("logprobs")
    content = reported.get("content") if isinstance(reported, Mapping) else None
    if not (isinstance(prompt, list) and isinstance(ids, list) and isinstance(content, list)):
        return None
    logprobs = [as_number(one.get("logprob")) if isinstance(one, Mapping) else None for one in content]
    known = [float(logprob) for logprob in logprobs if logprob is not None]
    if len(known) != len(ids) or not all(type(one) is int and 0 <= one < 2**31 for one in (*prompt, *ids)):
        return None
    return AnswerTokens(tuple(prompt), tuple(ids), tuple(known))


def _name(value: object, field: str, notes: list[str]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        notes.append(f"{field} is {kind(value)}")
        return ""
    return clean(value)[:NAME_LENGTH]
