"""REST of rows that are read, made, changed and archived: the operations, written once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.actors import Actor


@dataclass(frozen=True)
class RowOperations:
    """``noun``: with its article. ``shapes``: of an answer, of a new row, of a change. ``reads``: all rows of an actor,
    and one of them. ``writes``: the services that make, change and archive one."""

    noun: str
    shapes: tuple[type[Serializer[Any]], type[Strict], type[Strict]]
    reads: tuple[Callable[[Actor], QuerySet[Any]], Callable[[Actor, Any], Any]]
    writes: tuple[Callable[..., Any], Callable[..., Any], Callable[[Actor, Any], Any]]


# No docstrings: that of ScopedViewSet is public, as what is said of operations that say nothing of their own.
class ReadViewSet(ScopedViewSet):
    list_class: ClassVar[type[Serializer[Any]] | None] = None  # the shape of a list's row, if it is not that of one row
    lists: ClassVar[tuple[str, Callable[[Actor], QuerySet[Any]]]]  # the summary, and all rows of an actor
    reads: ClassVar[tuple[str, Callable[[Actor, Any], Any]]]

    def list(self, request: Request) -> Response:
        return self.page(self.lists[1](self.actor), self.list_class or self.serializer_class)

    def retrieve(self, request: Request, **place: Any) -> Response:
        return self.answer(self.row(place))

    def row(self, place: dict[str, Any]) -> Any:
        return self.reads[1](self.actor, place[self.lookup_field])


class ArchivableViewSet(ReadViewSet):
    orderings = {"-created_at": "created_at", "name": "name"}
    operations: ClassVar[RowOperations]
    documented: ClassVar[dict[str, dict[str, Any]]] = {}  # by operation, what the schema says besides

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        noun, (out, given, patch) = cls.operations.noun, cls.operations.shapes
        changed = {*patch._declared_fields, "archived_at", "updated_at"}
        cls.versioned = tuple(name for name in out._declared_fields if name in changed)
        name = noun.partition(" ")[2]
        cls.tag, cls.serializer_class = f"{name}s", out
        cls.lists, cls.reads = (f"List {name}s", cls.operations.reads[0]), (f"One {name}", cls.operations.reads[1])
        known: dict[str, dict[str, Any]] = {
            "retrieve": {},
            "create": {"summary": f"Make {noun}", "request": given},
            "partial_update": {"summary": f"Change {noun}", "request": patch},
            "destroy": {"summary": f"Archive {noun}"},
        }
        full = {key: {**values, **cls.documented.get(key, {})} for key, values in known.items()}
        extend_schema_view(**{key: extend_schema(**values) for key, values in full.items()})(cls)

    def values(self, request: Request, shape: type[Strict]) -> dict[str, Any]:
        return parsed(shape, request.data)

    def create(self, request: Request) -> Response:
        values, create = self.values(request, self.operations.shapes[1]), self.operations.writes[0]
        return self.made(request, lambda: create(self.actor, **values))

    def partial_update(self, request: Request, **place: Any) -> Response:
        values, update = self.values(request, self.operations.shapes[2]), self.operations.writes[1]
        return self.answer(update(self.actor, self.row(place), **values))

    def destroy(self, request: Request, **place: Any) -> Response:
        self.operations.writes[2](self.actor, self.row(place))
        return Response(status=204)
