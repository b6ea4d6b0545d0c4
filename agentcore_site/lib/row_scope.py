"""The scope of rows that the database shows to a statement: the second check after ``visible_to``
(docs/decisions/0024).

A scope is a text that each statement sends to PostgreSQL (``agentcore_site.postgresql.scoped``) and that the policies
of the tables read (``agentcore_site.row_security``): the ids of organisations as an array, ``EVERYTHING`` for work
across them (sweeps, sign-in, writers of many organisations' rows), ``NOTHING`` if none was set.

It holds for the code inside a ``with``, and the code called there, also over ``await`` and ``sync_to_async``. A thread
of its own begins outside of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

EVERYTHING: Final = "*"
NOTHING: Final = ""


class LateScope(Protocol):
    """A scope that becomes known later: a request's, once its actor is known."""

    text: str

    def resolve(self) -> None:
        """Resolves the scope; it may query the database."""

    def let_in(self, organization: uuid.UUID) -> None:
        """Adds the organisation's rows, for the holder of a link."""


_scope: ContextVar[str | LateScope | None] = ContextVar("row_scope", default=None)
_request: ContextVar[LateScope | None] = ContextVar("row_scope_of_request", default=None)
_outside = NOTHING


def outside(text: str) -> None:
    """Sets this process's default scope: ``EVERYTHING`` for an operator's command."""
    global _outside
    _outside = text


def resolve() -> None:
    scope = _scope.get()
    if scope is not None and not isinstance(scope, str):
        scope.resolve()


def in_force() -> str:
    scope = _scope.get()
    return _outside if scope is None else scope if isinstance(scope, str) else scope.text


@contextmanager
def limited(scope: str | LateScope) -> Iterator[None]:
    token = _scope.set(scope)
    request = None if isinstance(scope, str) else _request.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)
        if request is not None:
            _request.reset(request)


@contextmanager
def everything() -> Iterator[None]:
    """For work across organisations. As a decorator, of plain functions only: a coroutine would begin outside."""
    with limited(EVERYTHING):
        yield


@contextmanager
def only(*organizations: uuid.UUID) -> Iterator[None]:
    with limited(scope_of(organizations)):
        yield


def let_in(organization: uuid.UUID) -> None:
    """Adds this organisation's rows to the request's scope: it has shown a link to some of them."""
    if (request := _request.get()) is not None:
        request.let_in(organization)


def in_request() -> bool:
    """True if a request waits for this: its time is short."""
    return _request.get() is not None


def scope_of(organizations: Iterable[uuid.UUID]) -> str:
    # Only ids get into the statement.
    ids = ",".join(str(uuid.UUID(str(organization))) for organization in organizations)
    return f"{{{ids}}}" if ids else NOTHING
