"""A status that is no success, as an error: what it means, whether to try again, and whether it can have cost anything.

Certainly not billed: redirects, every 4xx but a time-out, 503 and 529, and any other 5xx whose body is the provider's
own error object. A time-out behind a gateway (408, 499, 504, 524) and a 500 or 502 with a stranger's page are
uncertain: the model may have worked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from budgets.llm.errors import (
    AuthFailed,
    BadRequest,
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
from budgets.llm.secret import Secret, masked
from budgets.llm.usage import read_usage
from budgets.llm.wire import clean, load, start

TIMEOUTS: Final = frozenset({408, 499, 504, 524})
NEVER_BILLED: Final = frozenset({503, 529})
TOO_LONG: Final = re.compile(
    r"context[ _](?:length|window)|maximum context|too many (?:input )?tokens|prompt is too long", re.IGNORECASE
)
BY_STATUS: Final[Mapping[int, type[LLMError]]] = {
    401: AuthFailed,
    402: NoCredit,
    403: AuthFailed,
    404: ModelNotFound,
    429: RateLimited,
}
MESSAGE_LENGTH: Final = 300


def refusal(status: int, headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret]) -> LLMError:
    """The error of a response; ``headers`` are looked up in lower case. Raises nothing."""
    try:
        value = load(body)
    except Malformed:
        value = None
    said, code, own = _said(value)
    if not own:
        said = start(body)
    message = f"{status}: {masked(said, secrets)[:MESSAGE_LENGTH] or 'no message'}"
    if 300 <= status < 400:
        message = f"{status}: the address redirects, which is not followed, because the key would go along."
    error = _type(status, code, said)(message, status=status, retry_after=_retry_after(headers))
    usage = read_usage(value.get("usage"), []) if isinstance(value, Mapping) else None
    error.usage = usage
    error.unbilled = status not in TIMEOUTS and (status < 500 or status in NEVER_BILLED or own)
    return error


def refusal_in_answer(error: Malformed, secrets: Iterable[Secret]) -> LLMError:
    """An error that came under status 200 as the one that its own code means; it may have been billed."""
    message = masked(error.message, secrets)
    found: LLMError = Malformed(message)
    if error.status is not None:
        found = _type(error.status, "", message)(message, status=error.status)
    found.usage = error.usage
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


def _said(value: Any) -> tuple[str, str, bool]:
    """(message, code, whether this is an API's own error object)."""
    if not isinstance(value, Mapping):
        return "", "", False
    error = value.get("error", value)
    if isinstance(error, str):
        return clean(error), "", True
    if not isinstance(error, Mapping):
        return "", "", False
    message, code = error.get("message", error.get("detail")), error.get("code")
    own = "error" in value or isinstance(message, str)
    return clean(message) if isinstance(message, str) else "", code if isinstance(code, str) else "", own


def _retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds = headers.get("retry-after-ms")  # OpenAI's and Azure's finer one
    if milliseconds is not None and (found := parse_retry_after(milliseconds)) is not None:
        return found / 1000.0
    return parse_retry_after(headers.get("retry-after"))
