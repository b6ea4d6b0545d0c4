"""The row scope of a request: the organisations of its actor, once it is known who that is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

from django.http import FileResponse, HttpRequest, HttpResponse
from django.utils.functional import empty

from agentcore_site.lib import row_scope
from agentcore_site.lib.request_turns import sender_belongs_to
from agentcore_site.tenancy.authentication import actor_of

Respond = Callable[[HttpRequest], HttpResponse]


class RequestScope:
    """Nothing until the request was authenticated in some way; then what its actor belongs to. A superuser sees
    everything in the admin, and no more than others in the console."""

    text = row_scope.NOTHING

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._known: tuple[Any, Any] = (None, None)
        self._let_in: list[UUID] = []

    def let_in(self, organization: UUID) -> None:
        self._let_in.append(organization)
        self._known = (self, self)  # to be resolved again

    def resolve(self) -> None:
        request = self._request
        asking = getattr(request, "user", None), getattr(request, "auth", None)
        if asking[0] is self._known[0] and asking[1] is self._known[1]:
            return
        if getattr(asking[0], "_wrapped", None) is empty:
            self.text = row_scope.scope_of(self._let_in)  # not asked yet who it is, or the session is being read
            return
        self._known = asking  # first: what is read to find out asks again
        with row_scope.everything():
            if request.path_info.startswith("/admin/") and request.user.is_active and request.user.is_superuser:
                self.text = row_scope.EVERYTHING
            else:
                mine = actor_of(request).organization_ids
                if mine:
                    sender_belongs_to(min(mine))  # of several organisations: always the same one
                self.text = row_scope.scope_of([*mine, *self._let_in])


class RowScope:
    """Middleware. It comes before all that renders a page, also one that refuses."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        scope = RequestScope(request)
        with row_scope.limited(scope):
            response = self.get_response(request)
        if response.streaming and not isinstance(response, FileResponse):
            rows: Any = response
            later = _later_async if rows.is_async else _later
            rows.streaming_content = later(rows.streaming_content, scope)
        return response


def _later(parts: Iterator[bytes], scope: RequestScope) -> Iterator[bytes]:
    """The parts of an answer, which are made after the middleware has returned."""
    while True:
        with row_scope.limited(scope):
            part = next(parts, None)
        if part is None:
            return
        yield part


async def _later_async(parts: AsyncIterator[bytes], scope: RequestScope) -> AsyncIterator[bytes]:
    while True:
        with row_scope.limited(scope):
            part = await anext(parts, None)
        if part is None:
            return
        yield part
