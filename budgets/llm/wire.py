"""Answers from the wire: any JSON becomes an ``Answer`` or a ``Malformed`` with a reason, and nothing else.

Usable parts are used, and their oddities are noted: parts of content are joined, tool arguments that are no
JSON are kept as text. Names of unknown tools are kept too, because the runtime decides what to do about them.
NUL and lone surrogates become U+FFFD, since no database takes them; NaN becomes null. Fields that only the service
understands are kept as ``opaque``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from budgets.llm.content import content_in
from budgets.llm.error_bodies import read_error
from budgets.llm.errors import Malformed
from budgets.llm.finish import breaks_off, finish_of, reason_in
from budgets.llm.halves import all_paired, clean
from budgets.llm.opaque import opaque_of_call, opaque_of_message
from budgets.llm.other_forms import PAGE, other_api, unwrapped
from budgets.llm.types import Answer, AnswerTokens, ReportedUsage, ToolCall
from budgets.llm.usage import as_number, kind, read_usage, usage_in, without_zeros

NAME_LENGTH: Final = 200  # of names and ids, which end in columns and in pages
QUOTED: Final = 64 * 1024  # characters of an API's own message that are looked through before a few are quoted
DONE: Final = "[DONE]"  # the last event of a stream; some servers write it behind a whole answer, too
CODES: Final = ("code", "status_code", "status")  # of an error


def parse(body: bytes) -> Answer:
    """The answer in the body of a response that says success; raises Malformed only."""
    return read(unwrapped(load(body)))


def load(body: bytes | str) -> Any:
    """JSON of any depth and with any escapes, or Malformed. Halves of surrogate pairs are joined or replaced."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    value = load_halves(body)
    try:
        return all_paired(value)
    except RecursionError:
        raise Malformed("The answer is no JSON.", broken=True) from None


def load_halves(body: bytes | str, constant: Callable[[str], Any] = lambda _: None) -> Any:
    """``load`` that leaves halves of surrogate pairs as they are: the next event of a stream may have the other one.
    ``constant`` reads NaN and Infinity, which are no JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    text = body if isinstance(body, str) else body.decode("utf-8-sig", "replace")
    try:  # orjson refuses lone surrogates, which some servers write when a stream cuts an emoji in two
        return json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError):
        pass
    if text.rstrip().endswith(DONE):
        return load_halves(text.rstrip().removesuffix(DONE).rstrip().removesuffix("data:"), constant)
    if not text.strip():
        raise Malformed("The answer is empty.", broken=True)
    # It may be a page of somewhere else: it is not quoted.
    raise Malformed(PAGE if text.lstrip()[:1] == "<" else "The answer is no JSON.", broken=True)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read(value: object) -> Answer:
    """The answer in a parsed body. Raises Malformed, with the usage as far as the body had it."""
    notes: list[str] = []
    if not isinstance(value, Mapping):
        if isinstance(value, list) and (why := other_api(value)):
            raise Malformed(why, other=True)
        raise Malformed(f"The answer is {kind(value)}, not an object.", broken=True)
    usage = read_usage(usage_in(value), notes)
    try:
        choice = _choice(value, notes)
        message = _message(choice, notes)
        text, reasoning, opaque = _said(message, notes)
        calls = _tool_calls(message, notes)
        finish = _name(reason_in(choice), "finish_reason", notes)
        if breaks_off(finish):
            raise Malformed("The service broke its answer off: {}", quoted=f"finish_reason is {finish}", broken=True)
    except Malformed as error:
        error.usage = usage
        raise
    if not text and not calls:
        notes.append("the answer is empty")
    if text or calls or reasoning:
        usage = without_zeros(usage, notes)
    return Answer(
        text=text,
        tool_calls=calls,
        finish_reason=finish_of(finish),
        reasoning=reasoning,
        model=_name(value.get("model"), "model", notes),
        id=_name(value.get("id"), "id", notes),
        usage=usage,
        notes=tuple(notes),
        tokens=_tokens(value, choice),
        opaque=opaque,
    )


def dumped_json(value: object) -> bytes:
    """JSON that every reader takes. Raises Malformed: it is nested too deeply."""
    try:
        try:
            return orjson.dumps(value)
        except TypeError:  # halves of surrogate pairs, whole numbers of more than 64 bits
            return json.dumps(all_paired(value)).encode()
    except RecursionError:
        raise Malformed("The answer is nested too deeply.") from None


def error_in(value: object) -> Malformed:
    """The error in a body or a stream of status 200; ``status`` is its code where that is one of HTTP's."""
    status = None
    for name in CODES:
        number = as_number(value.get(name)) if isinstance(value, Mapping) else None
        if number is not None and 400 <= number <= 599:
            status = int(number)
            break
    found = read_error({"error": value})
    return Malformed(
        "The answer is an error: {}",
        status=status,
        quoted=(found.message or "no message")[:QUOTED],
        most=300,
        broken=True,
        code=found.code,
        param=found.param,
    )


def error_beside(value: Mapping[str, Any], kind: str = "", *, begun: bool = False) -> Malformed | None:
    """The error that a body or an event without choices is, in any form; ``kind``: the event's name. ``begun``: a
    model's answer came before it in the stream. Otherwise ``detail`` alone may be the word of any service, which a test
    of an endpoint must not read back."""
    if value.get("error"):
        inner = value["error"]
        if isinstance(inner, Mapping) or not read_error({**value, "error": None}).message:
            return error_in(inner)
        return error_in(value)  # {"error": true, "message": …}
    named = "error" in (kind, value.get("object"), value.get("type"))
    worded = any(isinstance(value.get(name), str | list) for name in ("message", "detail", "msg"))
    coded = any(name in value for name in CODES) or value.get("success") is False or (begun and "detail" in value)
    bare = value.get("choices") is None and worded and coded
    return error_in(value) if named or bare else None


def _choice(value: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    choices = value.get("choices")
    if not choices and (error := error_beside(value)) is not None:
        raise error
    if not isinstance(choices, list):
        if choices is None and (why := other_api(value)):
            raise Malformed(why, other=True)
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


def _said(message: Mapping[str, Any], notes: list[str]) -> tuple[str, str, dict[str, Any]]:
    """(text, thoughts, opaque fields) of a message. ``content`` is among the fields where it is more than the text."""
    found = content_in(message.get("content"))
    if found is None:
        raise Malformed(f"content is {kind(message.get('content'))}.")
    notes += found.notes
    text, reasoning, opaque = clean(found.text), clean(found.reasoning), opaque_of_message(message)
    if found.apart:
        opaque["content"] = message.get("content")
    refusal = message.get("refusal")
    if not text and isinstance(refusal, str) and refusal:
        notes.append("the model refused")
        opaque["content"] = None
        return clean(refusal), reasoning, opaque
    for name in ("reasoning_content", "reasoning"):
        if not reasoning and isinstance(thoughts := message.get(name), str):
            reasoning = clean(thoughts)
    return text, reasoning, opaque


def _tool_calls(message: Mapping[str, Any], notes: list[str]) -> tuple[ToolCall, ...]:
    listed = message.get("tool_calls")
    if listed is None and isinstance(message.get("function_call"), Mapping):
        listed = [{"function": message["function_call"]}]  # what it was called before tools
    if listed is None:
        return ()
    if isinstance(listed, Mapping):
        listed = [listed]
    if not isinstance(listed, list):
        notes.append(f"tool_calls is {kind(listed)}")
        return ()
    calls = (_tool_call(index, entry, notes) for index, entry in enumerate(listed))
    return tuple(call for call in calls if call is not None)


def function_in(entry: object) -> Mapping[str, Any] | None:
    """The name and arguments of a call, which some servers write beside its id."""
    if not isinstance(entry, Mapping):
        return None
    function = entry.get("function", entry if isinstance(entry.get("name"), str) else None)
    return function if isinstance(function, Mapping) else None


def _tool_call(index: int, entry: Any, notes: list[str]) -> ToolCall | None:
    function = function_in(entry)
    if function is None:
        notes.append(f"tool_calls[{index}] names no function")
        return None
    name = function.get("name")
    if not isinstance(name, str) or not name:
        notes.append(f"tool_calls[{index}] has no name")
        return None
    given = entry.get("id")
    # An answer to a call needs an id to refer to; servers that give none accept any.
    identity = clean(given)[:NAME_LENGTH] if isinstance(given, str) and given else f"call_{index}"
    arguments, raw, error = arguments_read(function.get("arguments"))
    if error:
        notes.append(f"tool_calls[{index}]: {error}")
    return ToolCall(identity, clean(name)[:NAME_LENGTH], arguments, raw, error, opaque_of_call(entry))


LENIENT: Final = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)


def arguments_read(value: object) -> tuple[Mapping[str, Any], str, str]:
    """(arguments, their text, what is wrong with them)."""
    if isinstance(value, Mapping):  # Ollama's own shape
        value = json.dumps(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}, "", ""
    if not isinstance(value, str):
        return {}, json.dumps(value), f"the arguments are {kind(value)}, not an object"
    text = clean(value).replace("\\u0000", "\\ufffd")
    try:
        parsed = _arguments_loaded(text)
        while isinstance(parsed, str) and parsed.lstrip()[:1] in ("{", '"', "n"):  # encoded twice, or more often
            text = clean(parsed)
            parsed = load_halves(text, _refuse_constant)
        if parsed is None or parsed == "":
            return {}, "", ""
        whole = all_paired(parsed)
    except (Malformed, RecursionError):
        return {}, text, "the arguments are no JSON"
    if not isinstance(whole, Mapping):
        return {}, text, f"the arguments are {kind(whole)}, not an object"
    return whole, text if whole == parsed and _is_json(text) else json.dumps(whole), ""


def _is_json(text: str) -> bool:
    try:
        load_halves(text, _refuse_constant)
    except Malformed:
        return False
    return True


def _arguments_loaded(text: str) -> Any:
    """JSON of arguments, also with line breaks in its texts, within a fence, or written twice. Raises Malformed."""
    try:
        return load_halves(text, _refuse_constant)
    except Malformed:
        pass
    inside = text.strip()
    if inside.startswith("```") and inside.endswith("```"):
        inside = inside.strip("`").removeprefix("json").strip()
    try:
        value, end = LENIENT.raw_decode(inside)
        if (rest := inside[end:].strip()) and LENIENT.decode(rest) != value:
            raise ValueError("two objects that differ")
    except (ValueError, RecursionError):
        raise Malformed("The arguments are no JSON.") from None
    return value


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
