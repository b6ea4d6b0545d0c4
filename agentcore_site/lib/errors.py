"""Exceptions of services that refuse a request. Each interface (pages, REST, JSON-RPC, commands) turns these
into its own kind of answer.

DomainError
├── Invalid          400  the request can't be understood or breaks a rule; ``fields`` says where
├── Forbidden        403  seen, but not allowed
├── Missing          404  not there, or not yours
├── Conflict         409  another request was first, or the state does not allow it
├── Changed          412  it is not what the caller has read
├── TooLarge         413  more than the limit
├── TooMany          429  a limit on concurrent work is reached
├── Unavailable      503  what would do it is switched off, or away
└── Insufficient     507  it does not fit the budget or the resources
"""

from __future__ import annotations

from collections.abc import Mapping


class DomainError(Exception):
    """A refusal with a message that says what to do."""

    code = 500
    title = "Internal error"

    def __init__(self, message: str, *, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fields = dict(fields or {})


class Invalid(DomainError):
    code, title = 400, "Invalid request"


class Forbidden(DomainError):
    code, title = 403, "Not allowed"


class Missing(DomainError):
    code, title = 404, "Not found"


class Conflict(DomainError):
    code, title = 409, "Conflict"


class Changed(DomainError):
    code, title = 412, "Changed meanwhile"


class TooLarge(DomainError):
    code, title = 413, "Too large"


class TooMany(DomainError):
    """``retry_after``: seconds until it is worth another try; 0 where only something that ends makes room."""

    code, title = 429, "Too many"

    def __init__(self, message: str, *, fields: Mapping[str, str] | None = None, retry_after: int = 0) -> None:
        super().__init__(message, fields=fields)
        self.retry_after = retry_after


class Unavailable(DomainError):
    code, title = 503, "Unavailable"


class Insufficient(DomainError):
    code, title = 507, "Insufficient budget or resources"
