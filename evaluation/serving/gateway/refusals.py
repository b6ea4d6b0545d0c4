"""The refusals of calls: status, message and kind of the caller's error."""

from __future__ import annotations

from agentcore_site.lib.money_format import money
from budgets.llm.errors import CircuitOpen, LLMError, Malformed, Permanent, RateLimited, Transient


class CallRefused(Exception):
    """The caller gets ``status`` and an error of ``kind``; ``wait``: seconds until it may try again."""

    def __init__(self, status: int, message: str, kind: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.wait = status, message, kind, wait
        self.attempts = 0  # at endpoints, before the refusal
        self.headers: list[tuple[bytes, bytes]] = []


def spent_refusal(most_micros: int, *, under_way: bool = False) -> CallRefused:
    """The refusal of a key whose month is used up, or would be by the calls under way."""
    text = f"This key has spent the {money(most_micros)} that it may spend in a month (UTC)."
    if under_way:
        text = f"Calls of this key that are under way may cost all that is left of its {money(most_micros)} a month."
    return CallRefused(402, text, "insufficient_quota")


def refusal_of(error: LLMError) -> CallRefused:
    """The caller's error for a failure of the model's service: its status and message, as far as they are its own."""
    if isinstance(error, Malformed):
        return CallRefused(502, error.message, "upstream_error")
    if isinstance(error, CircuitOpen):
        return CallRefused(503, error.message, "unavailable", wait=error.retry_after)
    if isinstance(error, RateLimited):
        return CallRefused(429, error.message, "rate_limit_error", wait=error.retry_after)
    if isinstance(error, Transient):
        return CallRefused(error.status or 502, error.message, "upstream_error", wait=error.retry_after)
    assert isinstance(error, Permanent)
    if error.status in (401, 403):  # the service refuses our key, not the caller's
        return CallRefused(502, f"The endpoint refuses its key. {error.message}", "upstream_error")
    return CallRefused(error.status or 502, error.message, "invalid_request_error")
