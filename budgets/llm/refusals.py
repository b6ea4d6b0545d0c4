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

from budgets.llm.error_bodies import BodyError, in_small, read_error
from budgets.llm.errors import (
    AuthFailed,
    BadRequest,
    BrokenAnswer,
    ContextTooLong,
    LLMError,
    Malformed,
    ModelNotFound,
    NoCredit,
    OtherApi,
    Overloaded,
    RateLimited,
    Timeout,
    Transient,
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
    r"context[ _](?:length|window|limit|size)|maximum context|too many (?:input |prompt )?tokens"
    r"|(?:prompt|input|request) is too long|maximum (?:model|prompt|input) length|input length\b"
    r"|(?:input|prompt) token count|exceed(?:s|ed)? model token limit|max_new_tokens`? must be <="
    r"|inputs`? must have less than|reduce the length of the (?:messages|prompt|input)|prompt 超长",
    re.IGNORECASE,
)
NO_MONEY: Final = re.compile(
    r"credit balance is too low|insufficient (?:account |user )?(?:balance|credits?|funds)"
    r"|(?:balance|credits?|funds) (?:is|are) (?:insufficient|not enough|exhausted|used up)"
    r"|(?:out of|doesn't have any|don't have any|not have any|run out of|requires more|not enough) credits"
    r"|not enough balance|arrears|arrearage|overdue[- ]payment|billing hard limit|余额不足|欠费",
    re.IGNORECASE,
)
USED_UP: Final = frozenset(
    {
        *("insufficientquota", "exceededcurrentquotaerror", "insufficientbalance", "insufficientcredits", "arrearage"),
        *("billinghardlimitreached", "billingnotactive", "insufficientuserquota"),
    }
)
# A moderation that answers 403: the key is right, and the words of the prompt are not taken.
FLAGGED: Final = re.compile(r"moderation|flagged|content (?:management )?(?:policy|filter)|inappropriate content", re.I)
# OpenRouter's 404 of a model that it knows, which takes no tools or images: the request is refused, and not its name.
UNSUPPORTED: Final = re.compile(r"no endpoints found that (?:support|can handle)", re.IGNORECASE)
OF_MONEY: Final = frozenset({400, 402, 403, 429})
# Words of servers that say 500 where their template can't write the conversation: llama.cpp, LM Studio.
OF_THE_TEMPLATE: Final = re.compile(
    r"\bjinja\b|chat[ _]template|roles must alternate|system (?:role|message) (?:not|must)", re.IGNORECASE
)
# Codes under which a request is refused again however often it is sent.
OF_THE_REQUEST: Final = frozenset(
    {
        *("context_length_exceeded", "content_filter", "invalid_request_error", "invalid_prompt", "unsupported_value"),
        *("unsupported_parameter", "model_not_found", "insufficient_quota", "string_above_max_length"),
    }
)
OF_A_READ_REQUEST: Final = frozenset({400, 402, 409, 413, 422, 429, 451})
BY_STATUS: Final[Mapping[int, type[LLMError]]] = {
    401: AuthFailed,
    402: NoCredit,
    403: AuthFailed,
    404: ModelNotFound,
    405: ModelNotFound,  # the address is another one's
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
    named = found.code if found.own else ""
    message = f"{status}: {shown or named or 'the answer holds no error message of a model API'}"
    wait = _retry_after(headers)
    error = _type(status, found)(message, status=status, retry_after=found.retry_after if wait is None else wait)
    error.code, error.param = found.code, found.param
    error.usage = read_usage(value.get("usage"), []) if isinstance(value, Mapping) else None
    turned_away = status < 500 or not isinstance(error, Transient) or _turned_away(status, found)
    error.unbilled = status not in TIMEOUTS and turned_away
    return error


def refusal_in_answer(error: Malformed, safe: Safe) -> LLMError:
    """An error that came under status 200 as the one that its own code means; it may have been billed."""
    message = error.quoting(safe)
    found: LLMError = BrokenAnswer(message) if error.broken else Malformed(message)
    if error.other:
        found = OtherApi(message)
    status = error.status or (400 if error.code in OF_THE_REQUEST else None)
    if status is not None:
        found = _type(status, BodyError(error.quoted, error.code))(message, status=status)
    found.usage, found.code, found.param = error.usage, error.code, error.param
    return found


def _type(status: int, error: BodyError) -> type[LLMError]:
    code, message = error.code, error.message
    too_long = code == "context_length_exceeded" or TOO_LONG.search(message) is not None
    if status in TIMEOUTS:
        return Timeout
    if status >= 500:
        template = status == 500 and error.own and not IN_DOUBT.search(message)
        if template and too_long:
            return ContextTooLong
        return BadRequest if template and OF_THE_TEMPLATE.search(message) else Overloaded
    if not USED_UP.isdisjoint((*error.kinds, in_small(code))) or (status in OF_MONEY and NO_MONEY.search(message)):
        return NoCredit
    if code == "model_not_found":
        return ModelNotFound
    if status in {400, 413, 422} and too_long:
        return ContextTooLong
    if status == 403 and (code == "content_filter" or FLAGGED.search(message)):
        return BadRequest
    if status == 404 and UNSUPPORTED.search(message):
        return BadRequest
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
