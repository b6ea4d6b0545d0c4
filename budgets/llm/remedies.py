"""Changes of an endpoint's options after which a service may take what it refused, read from its own words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from budgets.llm.errors import (
    AuthFailed,
    BadRequest,
    ConnectionLost,
    ContextTooLong,
    LLMError,
    ModelNotFound,
    NoCredit,
    RateLimited,
    Timeout,
)
from budgets.llm.fitting import SYSTEM_ROLES
from budgets.llm.refusals import FLAGGED

LENGTHS: Final = ("max_tokens", "max_completion_tokens")
NEVER: Final = frozenset({"model", "messages", "tools", "stream"})
# Optional parameters of a job's calls, in the order in which they are tried where a refusal names none.
USUAL: Final = ("seed", "temperature", "stream_options", "top_p")
OF_MESSAGES: Final = ("reasoning_content", "reasoning_details", "reasoning", "refusal", "annotations", "audio", "name")
CONTENT: Final = ("content_filter", "content_policy_violation")  # codes
TOO_LARGE: Final = re.compile(
    r"too (?:large|big|high|long|many)|at most|maximum|exceed|less than|greater than|larger than|context", re.IGNORECASE
)
NO_SYSTEM: Final = re.compile(
    r"system[ _](?:role|message|instruction|prompt)s?\b.{0,40}\b(?:not|unsupported|un)|developer instruction"
    r"|(?:unknown|invalid|unsupported|unexpected)\b.{0,20}\brole|role\b.{0,30}\bsystem\b|\bsystem\b.{0,30}\brole"
    r"|roles must alternate|only user and assistant|not support(?:ed)? system",
    re.IGNORECASE | re.DOTALL,
)


def remedies(error: LLMError, sent: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Options of which each may make the service take the body that it refused, the likeliest first. None where the
    refusal is about the content, or is no refusal.

    ``sent`` is the body. A refusal that names nothing gives several to try.
    """
    if not isinstance(error, BadRequest) or error.code in CONTENT:
        return []
    text = error.message
    if NO_SYSTEM.search(text) and _has_system(sent):
        return [{"system_as_user": True}]
    named = {name for name in sent if name == error.param or _names(text, name)} - NEVER
    if length := named.intersection(LENGTHS):
        return [] if TOO_LARGE.search(text) else [{"max_tokens_field": _other(length)}]
    back = [f"messages.{name}" for name in OF_MESSAGES if _names(text, name) and _in_messages(sent, name)]
    if "cannot both be" in text and len(named) > 1:
        named -= {"temperature"}
    if named or back:
        return [{"leave_out": sorted(named) + back}]
    gone = any(name == error.param or _names(text, name) for name in (*USUAL, *LENGTHS) if name not in sent)
    if not gone and (error.param or _says_something(text)):  # a parameter that is left out already is not the cause
        return []
    guesses: list[dict[str, Any]] = [{"system_as_user": True}] if _has_system(sent) else []
    guesses += [{"leave_out": [name]} for name in USUAL if name in sent]
    return guesses + [{"max_tokens_field": _other({name})} for name in LENGTHS if name in sent]


def merged(options: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Options with a change; what is left out adds up."""
    found = {**options, **change}
    if "leave_out" in change:
        found["leave_out"] = sorted({*options.get("leave_out", ()), *change["leave_out"]})
    return found


CORRECTIONS: Final[tuple[tuple[type[LLMError], str], ...]] = (
    (AuthFailed, "Correct the endpoint's key, or its rights at the service."),
    (NoCredit, "Add credit at the service, or use the key of another account."),
    (ModelNotFound, "Correct the name of the model, or the address: it ends before /chat/completions."),
    (ContextTooLong, "Shorten the prompt, or use a model with a longer context."),
    (RateLimited, "Wait a while, or lower the endpoint's options concurrency and per_minute."),
    (Timeout, "Check that the model is loaded, or raise the endpoint's option timeout_s."),
    (ConnectionLost, "Check the address, and that the service runs and can be reached from this site."),
)
FILTERED: Final = "The service's filter refuses the words of the prompt: change them, or the filter's settings there."


def correction(error: BaseException | None) -> str:
    """The step that a person can take where no option of the endpoint helps; "" where none is known."""
    if isinstance(error, BadRequest) and (error.code in CONTENT or FLAGGED.search(error.message)):
        return FILTERED
    return next((text for kind, text in CORRECTIONS if isinstance(error, kind)), "")


def advice(error: LLMError) -> str:
    """The change that a refusal asks for, as a sentence."""
    if step := correction(error):
        return step
    usual: dict[str, Any] = {"messages": [{"role": "system"}], **dict.fromkeys((*USUAL, *LENGTHS, "stop", "logprobs"))}
    found = remedies(error, usual) if error.param or _says_something(error.message) else []
    test = "Test the endpoint: the test finds the options with which the service answers."
    if not found:
        return test
    ((name, value),) = found[0].items()
    return f"The endpoint's option {name} may help ({value if isinstance(value, str) else _json(value)}). {test}"


def with_step(words: str, step: str) -> str:
    """A service's words and the step that follows, each a sentence."""
    words = words.rstrip()
    return f"{words}{'' if not step or words.endswith(('.', '!', '?')) else '.'} {step}".rstrip()


def _json(value: Any) -> str:
    return "true" if value is True else "[" + ", ".join(f'"{one}"' for one in value) + "]"


def _has_system(sent: Mapping[str, Any]) -> bool:
    return any(message.get("role") in SYSTEM_ROLES for message in sent.get("messages") or ())


def _in_messages(sent: Mapping[str, Any], name: str) -> bool:
    return any(name in message for message in sent.get("messages") or ())


def _names(text: str, name: str) -> bool:
    """Whether a text names a field, in snake case or in camel case."""
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    return re.search(rf"(?<!\w)(?:{re.escape(name)}|{camel})(?!\w)", text, re.IGNORECASE) is not None


def _other(lengths: Collection[str]) -> str:
    return LENGTHS[1] if LENGTHS[0] in lengths else LENGTHS[0]


def _says_something(text: str) -> bool:
    """Whether a refusal is more than its status."""
    words = re.sub(r"^\d+: |the answer holds no error message of a model API", "", text)
    return len(words.split()) > 3
