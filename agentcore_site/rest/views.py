"""Base of every REST view: the actor, checks before anything is read, and idempotent POSTs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseBase
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from agentcore_site.lib.errors import Conflict, Forbidden, Missing
from agentcore_site.lib.storable import unstorable
from agentcore_site.rest.idempotency import once
from agentcore_site.rest.paging import CursorPages
from agentcore_site.rest.parsing import check_length, check_query, refuse_unknown
from agentcore_site.rest.versions import IF_MATCH, SAFE, etag_of, locked, match
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of
from agentcore_site.tenancy.roles import SERVICE

IDEMPOTENCY_HEADER = "Idempotency-Key"


class OnlyJson(DefaultContentNegotiation):
    """JSON, also where another type is asked for; ``?format=`` is free for the export's own use."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class ScopedViewSet(GenericViewSet):  # type: ignore[type-arg]
    """A set of REST addresses. A method parses, calls one service or selector, and answers."""

    pagination_class = CursorPages
    content_negotiation_class = OnlyJson
    tag: ClassVar[str] = ""  # of its operations, in the schema; ``serializer_class`` is the shape of their answers
    orderings: ClassVar[dict[str, str]] = {"-created_at": "created_at"}
    tiebreak: ClassVar[str] = "pk"
    known_query: ClassVar[dict[str, tuple[str, ...]]] = {}  # query parameters by action, for those that aren't lists
    lookup_value_converter = "str"
    for_services: ClassVar[bool] = False  # whether a key that opens nothing else opens this
    idempotent: ClassVar[tuple[str, ...]] = ("create",)  # actions that take an ``Idempotency-Key``
    # Actions that take one and answer with a secret, by the secret's name in the answer: it is not kept.
    shown_once: ClassVar[dict[str, str]] = {}
    blind: ClassVar[tuple[str, ...]] = ()  # actions that a key opens which sees nothing: they find their row themselves

    # Names in an answer of what people change (versions.py); none: its rows have no version.
    versioned: ClassVar[tuple[str, ...]] = ()
    # Names in an address of parts of a row, whose version is that of the row.
    parts: ClassVar[tuple[str, ...]] = ()
    locks: ClassVar[type[Model] | None] = None  # whose row has the version; default: that of ``queryset``

    @property
    def actor(self) -> Actor:
        return actor_of(self.request)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in SAFE or IF_MATCH not in request.headers:
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():  # the row is held from the comparison to the change
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        check_length(request)
        super().initial(request, *args, **kwargs)
        if self.action is None:  # before anything is said about a query that no method of this address takes
            self.http_method_not_allowed(request)
        check_query(request)
        if unstorable(list(kwargs.values())):
            raise Missing("There is nothing here for you under this address.")
        check_sight(self.actor, for_services=self.for_services, blind=self.action in self.blind)
        if self.action != "list" or self.pagination_class is None:  # a paged list's are refused by its filters
            refuse_unknown(request.query_params, self.known_query.get(self.action or "", ()), "query parameter")
        if request.method not in SAFE and IF_MATCH in request.headers:
            match(request.headers[IF_MATCH], self._version(request, kwargs))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        whole = isinstance(final, Response) and final.status_code in (200, 201)
        if whole and (tag := etag_of(final.data, self.versioned)):
            final["ETag"] = tag
        return final

    def version_row(self, **place: Any) -> QuerySet[Any]:
        """The row whose changes are the versions of the resource."""
        view: Any = self
        model: Any = view.locks or view.queryset.model
        rows: QuerySet[Any] = model._base_manager.filter(pk=place[self.lookup_field])
        return rows

    def _version(self, request: Request, place: dict[str, Any]) -> str | None:
        """The resource's present tag, and its row locked; None if it has no version."""
        of_row = {name: value for name, value in place.items() if name not in self.parts}
        if not self.versioned or set(of_row) != {self.lookup_field} - {""}:
            return None
        locked(self.version_row(**of_row))
        return etag_of(self.versioned_answer(request, **of_row), self.versioned)

    def versioned_answer(self, request: Request, **place: Any) -> Any:
        """The answer that a row's tag is made of."""
        return self.retrieve(request, **place).data  # type: ignore[attr-defined]

    def page(self, rows: Any, serializer: Any) -> Response:
        """One page of filtered rows."""
        found = self.paginate_queryset(self.filter_queryset(rows))
        return self.get_paginated_response(serializer(found, many=True, context={"actor": self.actor}).data)

    def answer(self, row: Any, *, status: int = 200) -> Response:
        """One row in the shape of ``serializer_class``."""
        shape: Any = self.serializer_class
        return Response(shape(row, context={"actor": self.actor}).data, status=status)

    def made(self, request: Request, make: Callable[[], Any]) -> Response:
        """A row that is made ``once``."""
        return self.once(request, lambda: self.answer(make(), status=201))

    def once(self, request: Request, work: Callable[[], Response]) -> Response:
        """Runs ``work``, at most once for each ``Idempotency-Key`` of this person.

        Raises:
            Conflict: the key was used for another request, or for this one, whose secret is not shown again.
        """
        key = request.headers.get(IDEMPOTENCY_HEADER)
        if key is None:
            return work()
        secret = self.shown_once.get(self.action, "")
        headers: dict[str, str] = {}
        shown: dict[str, Any] = {}

        def plain() -> tuple[int, Any]:
            response = work()
            headers.update(response.headers)
            body = json.loads(JSONRenderer().render(response.data) or b"null")
            if secret:
                shown[secret] = body.pop(secret)
            return response.status_code, body

        operation = f"{request.method} {request.path}"
        answer = once(self.actor, key, operation=operation, payload=_comparable(request.data), work=plain)
        if answer.replayed and secret:
            made = f" ({answer.body['id']})" if "id" in answer.body else ""
            raise Conflict(
                f"This request was done before{made}, and its secret was shown once. If you lost it, revoke what was"
                " made and make another, with another idempotency key."
            )
        if answer.replayed:
            headers["Idempotent-Replayed"] = "true"
        body = answer.body | shown if shown else answer.body
        return Response(body, status=answer.status, headers=headers)


def check_sight(actor: Actor, *, for_services: bool = False, blind: bool = False) -> None:
    """A key without sight finds nothing; it should hear why, and not that its agent does not exist.

    Raises:
        Forbidden: the key lacks the scope to see, or is a service's and this address is not for services.
    """
    if actor.only_service and not for_services:
        raise Forbidden(f"A key with the scope {SERVICE} alone opens the addresses of services only. Use another key.")
    if not actor.may_read and not blind:
        raise Forbidden("This key lacks the scope training:view, without which nothing can be found. Make another key.")


def _comparable(data: Any) -> Any:
    """A body in a form that two equal requests share: a form's boundary differs each time, its files do not."""
    if not hasattr(data, "lists"):
        return data
    return {name: [_content(value) for value in values] for name, values in data.lists()}


def _content(value: Any) -> Any:
    if not isinstance(value, UploadedFile):
        return value
    value.seek(0)
    content = value.read()
    value.seek(0)
    return [value.name, content.decode("latin-1")]
