"""A status that is no success, as an error: what it means, whether to try again, and whether it can have cost anything.

Which are certainly not billed; everything else is charged as held, since a proxy
may have answered in the place of a model that worked:

| status                | body                                                                       | billed   |
|-----------------------|----------------------------------------------------------------------------|----------|
| 3xx, 4xx              | any: it was refused before a model saw it                                  | no       |
| 408, 499, 504, 524    | any: a client stopped waiting                                              | may be   |
| 503, 529              | a model API's own error object                                             | no       |
| other 5xx             | such an object whose kind or words say that it was turned away             | no       |
| 5xx                   | such an object that speaks of an upstream, a reset or a time-out           | may be   |
| 5xx                   | anything else: a page, a text, ``{"message": …}`` of a gateway             | may be   |

A model API's own error object is one of these, with a text in it:
  ``{"error": {"message", "type" | "code" | "status"}}``  OpenAI, Azure, Anthropic (529 ``overloaded_error``), DeepSeek,
      Groq, OpenRouter (503: no provider), llama.cpp (503 ``unavailable_error``), vLLM, Ollama's /v1 ("server busy");
      Google's in a list of one (503 ``UNAVAILABLE``);
  ``{"error": "…"}``  Ollama ("maximum pending requests exceeded"), text-generation-inference ("overloaded");
  ``{"object": "error", "message", "type"}``  older vLLM, SGLang ("The request queue is full"), Mistral.
Envoy's 503 is a text ("upstream connect error or disconnect/reset before headers"), AWS's API gateway's 502 and 503 are
``{"message": "Internal server error"}``: both may come after the request was passed on. OpenAI's 500 ``server_error``
says nothing of what was generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from budgets.llm.error_bodies import BodyError, read_error
from budgets.llm.errors import (
    AuthFailed,
    BadRequest,
    BrokenAnswer,
    ContextTooLong,
    LLMError,
    Malformed,
    ModelNotFound,
    NoCredit,
    Overloaded,
    RateLimited,
    Timeout,
)
from budgets.llm.retry import parse_retry_after
from budgets.llm.usage import read_usage
from budgets.llm.wire import load

TIMEOUTS: Final = frozenset({408, 499, 504, 524})
UNAVAILABLE: Final = frozenset({503, 529})
# Types, codes and statuses of errors, in small letters and digits only.
TURNED_AWAY: Final = frozenset(
    {
        "authenticationerror", "billingerror", "capacityerror", "contextlengthexceeded", "engineoverloaded",
        "engineoverloadederror", "insufficientquota", "invalidrequesterror", "modelnotfound", "modeloverloaded",
        "nocapacity", "notfounderror", "overloaded", "overloadederror", "permissionerror", "ratelimiterror",
        "ratelimitexceeded", "resourceexhausted", "serviceunavailable", "serviceunavailableerror", "slowdown",
        "unavailable", "unavailableerror",
    }
)  # fmt: skip
TURNED_AWAY_WORDS: Final = re.compile(
    r"overloaded|(?:at|over|no|exceeded|out of) capacity|(?:too|server|is|currently) busy|queue is full|slow down"
    r"|pending requests exceeded|too many requests|rate limit|(?:currently|still|is) loading|loading model|not ready"
    r"|(?:currently|temporarily) unavailable|service (?:is )?unavailable|no available",
    re.IGNORECASE,
)
IN_DOUBT: Final = re.compile(
    r"upstream|gateway|disconnect|reset|tim(?:ed|e)[ -]?out|connection|deadline|terminated", re.IGNORECASE
)
TOO_LONG: Final = re.compile(
    r"context[ _](?:length|window)|maximum context|too many (?:input )?tokens|prompt is too long", re.IGNORECASE
)
# Codes under which a request is refused again however often it is sent.
OF_THE_REQUEST: Final = frozenset(
    {
        *("context_length_exceeded", "content_filter", "invalid_request_error", "invalid_prompt", "unsupported_value"),
        *("unsupported_parameter", "model_not_found", "insufficient_quota", "string_above_max_length"),
    }
)
OF_A_READ_REQUEST: Final = frozenset({400, 402, 409, 413, 422, 429})
BY_STATUS: Final[Mapping[int, type[LLMError]]] = {
    401: AuthFailed,
    402: NoCredit,
    403: AuthFailed,
    404: ModelNotFound,
    429: RateLimited,
}
MESSAGE_LENGTH: Final = 300

Safe = Callable[[str], str]  # a provider's words without secrets and personal data


def refusal(status: int, headers: Mapping[str, str], body: bytes, safe: Safe) -> LLMError:
    """The error of a response; ``headers`` are looked up in lower case. ``safe`` is given the whole message before
    any of it is cut off: half an address is not recognised. Raises nothing."""
    try:
        value = load(body)
    except Malformed:
        value = None
    found = read_error(value)
    # Another service's answer is not ours to pass on: words outside of a model API's error object are shown where the
    # status says that the request itself was read and refused.
    readable = found.own or status in OF_A_READ_REQUEST
    shown = safe(found.message)[:MESSAGE_LENGTH] if readable else ""
    message = f"{status}: {shown or 'the answer holds no error message of a model API'}"
    error = _type(status, found.code, found.message)(message, status=status, retry_after=_retry_after(headers))
    error.code, error.param = found.code, found.param
    error.usage = read_usage(value.get("usage"), []) if isinstance(value, Mapping) else None
    error.unbilled = status not in TIMEOUTS and (status < 500 or _turned_away(status, found))
    return error


def refusal_in_answer(error: Malformed, safe: Safe) -> LLMError:
    """An error that came under status 200 as the one that its own code means; it may have been billed."""
    message = error.quoting(safe)
    found: LLMError = BrokenAnswer(message) if error.broken else Malformed(message)
    status = error.status or (400 if error.code in OF_THE_REQUEST else None)
    if status is not None:
        found = _type(status, error.code, error.quoted)(message, status=status)
    found.usage, found.code, found.param = error.usage, error.code, error.param
    return found


def _type(status: int, code: str, message: str) -> type[LLMError]:
    if status in TIMEOUTS:
        return Timeout
    if status >= 500:
        return Overloaded
    if code == "insufficient_quota":
        return NoCredit
    if code == "model_not_found":
        return ModelNotFound
    if status in {400, 413, 422} and (code == "context_length_exceeded" or TOO_LONG.search(message)):
        return ContextTooLong
    return BY_STATUS.get(status, BadRequest)


def _turned_away(status: int, error: BodyError) -> bool:
    """Whether a 5xx says for certain that nothing was generated."""
    if not error.own or IN_DOUBT.search(error.message):
        return False
    by_message = TURNED_AWAY_WORDS.search(error.message) is not None
    return status in UNAVAILABLE or by_message or not TURNED_AWAY.isdisjoint(error.kinds)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds = headers.get("retry-after-ms")  # OpenAI's and Azure's finer one
    if milliseconds is not None and (found := parse_retry_after(milliseconds)) is not None:
        return found / 1000.0
    return parse_retry_after(headers.get("retry-after"))
