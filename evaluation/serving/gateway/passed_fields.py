"""Fields of a call that reach a model's service, by the kind of its endpoint. Pure, no Django.

The list names what shapes an answer. Where a call goes, who pays for it and how much may come back are settled by the
endpoint and the hold, so that such a field is never listed. A field that is not listed is refused with its name, as
OpenAI's own API does: a caller would not notice a dropped one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from budgets.llm.images import fetches_within, is_public
from budgets.llm.request import TOOL_LISTS
from budgets.llm.types import NEVER_PASSED, Endpoint, Kind
from experiences.rollouts.runtimes.chat_body import BadCall

# The fields of an object, or of each object in a list. None: the value passes whole.
Shape = Mapping[str, Any]


def _whole(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


FUNCTION: Final[Shape] = _whole("name", "description", "parameters", "strict")
CALLED: Final[Shape] = _whole("name", "arguments", "input")
IMAGE: Final[Shape] = _whole("url", "detail")
MESSAGE: Final[Shape] = {
    **_whole("role", "name", "tool_call_id", "refusal", "reasoning", "reasoning_content", "reasoning_details"),
    "content": {**_whole("type", "text", "refusal"), "image_url": IMAGE},
    "tool_calls": {**_whole("id", "type"), "function": CALLED, "custom": CALLED},
    "function_call": CALLED,
}
EVERY: Final[Shape] = {
    **_whole("model", "user", "metadata", "stream", "max_tokens", "max_completion_tokens"),
    **_whole("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias"),
    **_whole("logprobs", "top_logprobs", "response_format", "tool_choice", "parallel_tool_calls", "function_call"),
    **_whole("reasoning_effort", "verbosity", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    "messages": MESSAGE,
    "tools": {"type": None, "function": FUNCTION, "custom": _whole("name", "description", "format")},
    "functions": FUNCTION,
    "stream_options": _whole("include_usage", "include_obfuscation"),
}
OPEN_MODELS: Final[Shape] = _whole("top_k", "min_p", "repetition_penalty")
SAMPLERS: Final[Shape] = {
    **OPEN_MODELS,
    **_whole("stop_token_ids", "include_stop_str_in_output", "skip_special_tokens"),
    **_whole("guided_json", "guided_choice", "structured_outputs"),
}
BY_KIND: Final[Mapping[Kind, Shape]] = {
    "openai": EVERY,
    "portkey": EVERY,
    "openrouter": {**EVERY, **OPEN_MODELS, "top_a": None, "reasoning": _whole("effort", "exclude", "enabled")},
    "vllm": {**EVERY, **SAMPLERS},
    "ollama": {**EVERY, **OPEN_MODELS},
    "weights": {**EVERY, **SAMPLERS},
}
# Values that are accepted because they change nothing; they are not sent.
NOTHING: Final[Mapping[str, Sequence[Any]]] = {
    "n": (1,), "best_of": (1,), "service_tier": ("auto", "default"), "modalities": (["text"],), "store": (False,)
}  # fmt: skip
# Fields of OpenAI's own messages that client libraries write as null, or a list without calls, where there is nothing.
# Its API takes them, and other services refuse them.
MAY_BE_NULL: Final = frozenset({"name", "tool_calls", "function_call", "refusal", "audio", "tool_call_id"})
NESTED: Final = frozenset({"content", "tool_calls", "function", "function_call"})
# Fields that no answer has: results of client libraries, marks for caches and prefixes, and audio.
ADDED: Final = frozenset({
    "parsed", "parsed_arguments", "cache_control", "prefix", "partial", "prefill", "audio", "agentcore_steps", "cache",
})  # fmt: skip
TOOLS: Final = frozenset({"function", "custom"})  # others run at the service, and are billed or call addresses
SEND_DATA: Final = "Send the image itself, as a data: URL."


def fields_passed(body: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """The part of a body that may reach ``endpoint``."""
    return _sorted_out(body, endpoint)[0]


def fields_check(body: Mapping[str, Any], endpoints: Mapping[str, Endpoint]) -> None:
    """Raises BadCall: a field does not pass to each of the ``endpoints``, which have their names as keys.

    Fallbacks are checked with the first endpoint, so that a call does not depend on which of them answers.
    """
    for name, endpoint in endpoints.items():
        for place in _sorted_out(body, endpoint)[1]:
            field = place.rpartition(".")[2]
            if why := NEVER_PASSED.get(place) or NEVER_PASSED.get(field):
                raise BadCall(f"{place} can't be used here: {why}.", param=place)
            remedy = f"Leave it out, or have an admin list {field!r} in the endpoint's option pass_fields."
            raise BadCall(f"{place} does not pass to the endpoint {name or 'of the site'}. {remedy}", param=place)


def images_check(addresses: Sequence[str], endpoints: Mapping[str, Endpoint]) -> None:
    """Checks the addresses of images that a service would fetch. Looks names up, so that it may block for a second.

    Raises:
        BadCall: an address is internal, or the service runs within a private network, whose addresses it would reach.
    """
    for name, endpoint in endpoints.items():
        if fetches_within(endpoint):
            why = f"The endpoint {name or 'of the site'} would fetch an image within a private network."
            raise BadCall(f"{why} {SEND_DATA}", param="messages")
    for address in addresses:
        if not is_public(address):
            raise BadCall(f"An image's address is a public http or https address. {SEND_DATA}", param="messages")


def _sorted_out(body: Mapping[str, Any], endpoint: Endpoint) -> tuple[dict[str, Any], list[str]]:
    """The part that passes, and the places of all other values."""
    others: list[str] = []
    shape, more = BY_KIND[endpoint.kind], frozenset(endpoint.pass_fields)
    given = _without_tools({name: value for name, value in body.items() if value not in NOTHING.get(name, ())})
    messages = [_without_nulls(one) for one in given.pop("messages")]
    found: dict[str, Any] = _kept(given, shape, more, "", others)
    # Further fields of an assistant's message came with the answer that it repeats: the service wants them back.
    found["messages"] = [
        _given_back(one, more)
        if one.get("role") == "assistant"
        else _kept(one, MESSAGE, more, f"messages.{at}", others)
        for at, one in enumerate(messages)
    ]
    tools = found.get("tools")
    for at, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, dict) or str(tool.get("type")) not in TOOLS | more:
            others.append(f"tools.{at}.type")
    return found, others


def _without_tools(body: dict[str, Any]) -> dict[str, Any]:
    """``body`` without empty lists of tools, which services refuse, and what is said of no tools."""
    given = {name: value for name, value in body.items() if name not in TOOL_LISTS or value != []}
    if len(given) == len(body) or any(given.get(name) for name in TOOL_LISTS):
        return given
    said = [name for name in ("tool_choice", "function_call") if given.get(name) in ("auto", "none")]
    return {name: value for name, value in given.items() if name not in (*said, "parallel_tool_calls")}


def _without_nulls(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in message.items()
        if name not in MAY_BE_NULL or not (value is None or (name == "tool_calls" and value == []))
    }


def _given_back(value: Any, more: frozenset[str]) -> Any:
    """A model's message without what its caller or a client's library added."""
    if isinstance(value, list):
        return [_given_back(part, more) for part in value]
    if not isinstance(value, dict):
        return value
    # Objects of the service's own are not looked into: they go back as they came.
    return {
        name: _given_back(part, more) if name in NESTED else part
        for name, part in value.items()
        if name not in ADDED or name in more
    }


def _kept(value: Any, shape: Shape | None, more: frozenset[str], place: str, others: list[str]) -> Any:
    """``value`` without what ``shape`` and ``more`` do not name; the places of what was there go to ``others``."""
    if shape is None or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_kept(part, shape, more, f"{place}.{at}", others) for at, part in enumerate(value)]
    found = {}
    for name, part in value.items():
        at = f"{place}.{name}" if place else name
        if part is None and shape is FUNCTION:
            continue  # a tool without a description, or without the mark ``strict``
        if name in shape:
            found[name] = _kept(part, shape[name], more, at, others)
        elif name in more:
            found[name] = part
        elif part is not None:
            others.append(at)
    return found
