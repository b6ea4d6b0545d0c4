"""A failure of a model's service, as this site passes it on to a program that called it. Pure.

Statuses, codes and parameters of the service are kept, since programs look at them. A failure of the endpoint itself,
its key, its address or the name of its model, is a 424: a 401 or 404 would read as one about what the caller sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from budgets.llm.errors import (
    AuthFailed,
    BadAddress,
    CircuitOpen,
    ContextTooLong,
    LLMError,
    Malformed,
    ModelNotFound,
    NoCredit,
    OtherApi,
    Permanent,
    RateLimited,
    Transient,
)

UNUSABLE: Final = 424  # what is behind this site failed, and would fail again
DONE_WITH: Final = (b"x-should-retry", b"false")  # read by OpenAI's and Anthropic's clients, also of a 429
ADMIN: Final = "An admin corrects the endpoint."
# What is wrong with the endpoint, in words of ours and with codes that no service gives: programs read a service's own
# as one about their key or their model.
OF_THE_ENDPOINT: Final[Mapping[type[LLMError], tuple[str, str]]] = {
    AuthFailed: (f"The model's service refuses the endpoint's key, not yours. {ADMIN}", "upstream_authentication"),
    ModelNotFound: (
        f"The model's service does not know the endpoint's model or address; the mistake is not yours. {ADMIN}",
        "upstream_model_not_found",
    ),
}
CODES: Final[Mapping[type[LLMError], str]] = {
    ContextTooLong: "context_length_exceeded",
    NoCredit: "insufficient_quota",
}  # of a service that gives none


class CallerError(NamedTuple):
    """``wait``: seconds until the caller may try again; ``final``: the same call fails again."""

    status: int
    message: str
    kind: str
    code: str
    param: str = ""
    wait: float | None = None
    final: bool = False

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's API writes it."""
        return error_body(self.message, self.kind, self.code, self.param)


def caller_error(error: LLMError) -> CallerError:
    """The caller's error for a failure of the model's service."""
    final, wait = isinstance(error, Permanent | Malformed), error.retry_after
    for kind_of_error, (words, code) in OF_THE_ENDPOINT.items():
        if isinstance(error, kind_of_error):
            return CallerError(UNUSABLE, f"{words} {error.message}", "upstream_error", code, final=final)
    status, kind, code = _status(error), "upstream_error", error.code
    if status == UNUSABLE:
        wait = None
    elif isinstance(error, CircuitOpen):
        status, kind = 503, "unavailable"
    elif isinstance(error, RateLimited):
        status, kind = 429, "rate_limit_error"
    elif not isinstance(error, Transient):
        assert isinstance(error, Permanent)
        kind, wait = "invalid_request_error", None
        code = code or next((name for made, name in CODES.items() if isinstance(error, made)), "")
        code = code or ("content_filter" if error.status == 403 else "")
    return CallerError(status, error.message, kind, code or kind, error.param, wait, final)


def error_body(message: str, kind: str, code: str = "", param: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's API writes it."""
    return {"error": {"message": message, "type": kind, "param": param or None, "code": code or kind}}


def retry_headers(wait: float | None, *, final: bool) -> list[tuple[bytes, bytes]]:
    """The headers by which a client knows whether and when to send a call again."""
    headers = [DONE_WITH] if final else []
    return headers if wait is None else [*headers, (b"retry-after", str(math.ceil(wait)).encode())]


def _status(error: LLMError) -> int:
    """The HTTP status for the caller: clients call again after a 408, 409, 429 or 5xx, and read a 3xx as a word about
    their own address."""
    ours = BadAddress, OtherApi, Malformed  # each fails again, and not by the caller's request
    if isinstance(error, ours) or (error.status is not None and not 400 <= error.status <= 599):
        return UNUSABLE
    return 400 if error.status == 404 else error.status or 502  # a 404 is about a name, and the caller's are right
