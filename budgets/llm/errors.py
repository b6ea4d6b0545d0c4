"""Failures of calls to a model. A caller catches the branch that it can do something about.

LLMError
├── Transient            worth another attempt: the client makes it, up to its limits
│   ├── RateLimited      429; ``retry_after`` seconds where the provider said so
│   ├── Overloaded       500, 502, 503, 529 and other 5xx
│   ├── Timeout          no answer in time, ours or a gateway's (408, 504, 524)
│   ├── ConnectionLost   refused, reset or closed before an answer began
│   └── BrokenAnswer     a success whose body is cut, empty, a page, or anything but an answer of a model API: it comes
│                        from a broken service or a proxy in between, and says nothing about the model
├── Permanent            the same request will fail again
│   ├── BadRequest       400, 422 and other 4xx; redirects, which would carry the key elsewhere
│   ├── BadAddress       this site does not call the endpoint's address: nothing was sent
│   ├── AuthFailed       401, 403
│   ├── NoCredit         402, or a 429 that says that the quota is used up
│   ├── ModelNotFound    404, 405
│   ├── OtherApi         a success in the form of another API: the endpoint's address is wrong
│   └── ContextTooLong   the prompt does not fit the model
├── Malformed            an answer of a model API came whole and can't be used: empty choices, wrong types, too large.
│                        It was paid for, so that trying again is the caller's decision
└── CircuitOpen          the endpoint failed often enough: nothing was sent; ``retry_after`` says when to come back

A refusal of the budget is no LLMError: ``BudgetRefused`` and ``UnknownPrice`` of ``budgets.meter_port`` pass
through.
No message holds a secret, and no error has a cause or context that could hold one.
"""

from __future__ import annotations

from collections.abc import Callable

from budgets.llm.types import ReportedUsage


class LLMError(Exception):
    """``status`` is the HTTP status where there was one, ``attempts`` how many requests were sent in all
    and ``spent_micros`` what they cost together.

    ``retry_after`` is in seconds: how long to stay away; None where the provider does not say. ``code`` and ``param``
    are the service's own, "" without them.
    """

    code = ""
    param = ""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.attempts = 0
        self.spent_micros = 0  # all attempts of the call
        self.unbilled = False  # certain that nothing was billed
        self.final = False  # a part of the answer was handed on: another attempt would repeat it
        self.usage: ReportedUsage | None = None  # what a failed answer still said of its tokens
        self.received: int | None = None  # bytes of an answer that broke off; None: it is not known


class Transient(LLMError):
    pass


class RateLimited(Transient):
    pass


class Overloaded(Transient):
    pass


class Timeout(Transient):
    pass


class ConnectionLost(Transient):
    pass


class BrokenAnswer(Transient):
    pass


class Permanent(LLMError):
    pass


class BadRequest(Permanent):
    pass


class BadAddress(Permanent):
    pass


class AuthFailed(Permanent):
    pass


class NoCredit(Permanent):
    pass


class ModelNotFound(Permanent):
    pass


class OtherApi(Permanent):
    pass


class ContextTooLong(Permanent):
    pass


class Malformed(LLMError):
    """``quoted`` is what the provider wrote; ``{}`` in the message is replaced by its first ``most`` characters.
    ``broken``: it is no answer of a model API (``BrokenAnswer`` is what the client makes of it). ``other``: it is
    one of another API (``OtherApi``)."""

    def __init__(
        self,
        message: str,
        *,  # what the answer said of the error
        status: int | None = None,
        retry_after: float | None = None,
        quoted: str = "",
        most: int = 80,
        broken: bool = False,
        other: bool = False,
        code: str = "",
        param: str = "",
    ) -> None:
        self.code, self.param = code, param
        self.quoted, self.broken, self.other = quoted, broken, other
        self._frame, self._most = message, most
        super().__init__(self.quoting(str), status=status, retry_after=retry_after)

    def quoting(self, safe: Callable[[str], str]) -> str:
        """The message with the quotation made ``safe``, which happens before it is cut."""
        return self._frame.replace("{}", safe(self.quoted)[: self._most], 1) if self.quoted else safe(self._frame)


class CircuitOpen(LLMError):
    pass
