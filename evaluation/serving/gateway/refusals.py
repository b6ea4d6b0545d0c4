"""The refusals of calls: status, message and kind of the caller's error."""

from __future__ import annotations

from agentcore_site.lib.money_format import apart, money
from budgets.llm.caller_errors import UNUSABLE, caller_error
from budgets.llm.errors import LLMError


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
    """The caller's error for a failure of the model's service."""
    return CallRefused(**caller_error(error)._asdict())
