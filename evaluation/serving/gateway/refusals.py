"""The refusals of calls: status, message and kind of the caller's error."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.money_format import apart, money
from budgets.llm.errors import (
    AuthFailed,
    CircuitOpen,
    ContextTooLong,
    LLMError,
    Malformed,
    ModelNotFound,
    NoCredit,
    Permanent,
    RateLimited,
    Transient,
)
from budgets.llm.refusals import UNUSABLE, status_for_callers

OUR_KEY: Final = "The model's service refuses the endpoint's key, not yours."
NO_ACCESS: Final = "upstream_authentication"  # never the service's own code, which programs read as one about their key
CODES: Final = {
    ContextTooLong: "context_length_exceeded",
    NoCredit: "insufficient_quota",
    ModelNotFound: "model_not_found",
}  # of a service that gives none


class CallRefused(Exception):
    """The caller gets ``status`` and an error of ``kind``; ``wait``: seconds until it may try again. ``code`` and
    ``param`` are those of the model's service, which programs look at. ``final``: the same call fails again."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str,
        *,
        wait: float | None = None,
        code: str = "",
        param: str = "",
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.wait, self.final = status, message, kind, wait, final
        self.code, self.param = code or kind, param or None
        self.attempts = 0  # at endpoints, before the refusal
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def failed(self) -> bool:
        """True if the service or this site failed, and False if the request was refused."""
        return self.status >= 500 or self.status == UNUSABLE


def spent_refusal(most_micros: int, *, under_way: bool = False) -> CallRefused:
    """The refusal of a key whose month is used up, or would be by the calls under way."""
    text = f"This key has spent the {money(most_micros)} that it may spend in a month (UTC)."
    if under_way:
        text = f"Calls of this key that are under way may cost all that is left of its {money(most_micros)} a month."
    return CallRefused(402, text, "insufficient_quota")


def limit_refusal(wanted_micros: int, most_micros: int) -> CallRefused:
    """The refusal of a trial whose answer may cost more than its limit."""
    wanted, most = apart(wanted_micros, most_micros)
    text = f"This answer may cost {wanted}, and its limit is {most}. Raise the limit, or ask for a shorter answer."
    return CallRefused(402, text, "insufficient_quota")


def refusal_of(error: LLMError) -> CallRefused:
    """The caller's error for a failure of the model's service: its status, message, code and parameter, as far as they
    are its own."""
    status, kind, wait = status_for_callers(error), "upstream_error", error.retry_after
    code, final = error.code, isinstance(error, Permanent | Malformed)
    if isinstance(error, AuthFailed):
        return CallRefused(status, f"{OUR_KEY} {error.message}", kind, code=NO_ACCESS, final=final)
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
    return CallRefused(status, error.message, kind, wait=wait, code=code, param=error.param, final=final)
