"""Base of every page of the Django admin: which rows it shows, who may change them, and the audit log.

A superuser sees everything. Staff whose role opens the admin (``admin.open``) see and edit their own organisation's
rows, and choose only among those; model permissions given by hand work as everywhere in Django, within the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import EmptyFieldListFilter, RelatedOnlyFieldListFilter
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import BooleanField, CharField, Model, Q, QuerySet, TextField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.paginator import InfinitePaginator

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.models import Membership


def actor_at(request: HttpRequest) -> Actor:
    return Actor(request.user, ip=client_address(request), interface="admin")


def organizations_of(request: HttpRequest) -> list[Any]:
    """Organisations in which the person's role opens the admin. Computed once a request."""
    known: list[Any] | None = getattr(request, "_admin_of", None)
    if known is None:
        actor = actor_at(request)
        known = [membership for membership in actor.memberships if actor.may("admin.open", membership)]
        request._admin_of = known  # type: ignore[attr-defined]
    return known


def people_of(request: HttpRequest) -> QuerySet[Any]:
    """The members of the organisations where the person is an admin."""
    mine = Membership.objects.filter(organization__in=organizations_of(request))
    return get_user_model()._default_manager.filter(pk__in=mine.values("user"))


class KnownChoiceField(forms.ModelChoiceField):  # type: ignore[type-arg]
    """Shows again only what it would take. A widget that looks up a label by the value that was sent would break
    where that is no key."""

    def prepare_value(self, value: Any) -> Any:
        key = super().prepare_value(value)
        try:
            return key if self.to_python(key) is not None else None
        except ValidationError:
            return None


class AuditedAdmin(ModelAdmin):  # type: ignore[misc]
    """Each change of a row by hand is in the audit log, with what it was before."""

    organization_path = ""

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        stored = self.model._default_manager.filter(pk=obj.pk).first() if change else None
        before = _values(stored, form.changed_data)
        super().save_model(request, obj, form, change)
        after = _values(obj, form.changed_data)
        # A form takes equal JSON for a change when it is written otherwise.
        moved = [name for name in after if not change or before.get(name) != after[name]]
        record(
            actor_at(request),
            f"{self.opts.model_name}.{'changed' if change else 'created'}",
            obj,
            organization=self.owner(obj),
            before={name: before.get(name) for name in moved} if change else None,
            after={name: after[name] for name in moved},
        )

    def owner(self, obj: Any) -> Any:
        """The key of the organisation that a row belongs to."""
        value = obj
        for part in filter(None, self.organization_path.split("__")):
            value = getattr(value, part, None)
        return getattr(value, "pk", value) if self.organization_path else None


NAMES: Final = ("username", "slug", "name", "title", "handle", "text")
ENDS: Final = ("archived_at", "revoked_at", "ended_at", "deleted_at")


def _lookups(model: type[Model]) -> list[str]:
    """From a row to the texts that people know the row by: its own, else those of its agent or job."""
    fields = {field.name: field for field in model._meta.concrete_fields}
    for via in ("agent", "job"):
        if via in fields and not fields.keys() & set(NAMES):
            return [f"{via}__{lookup}" for lookup in _lookups(fields[via].related_model)]  # type: ignore[arg-type]
    return [name for name in NAMES if name in fields]


class ScopedAdmin(AuditedAdmin):
    """Rows of one organisation. ``organization_path`` leads from the row to its organisation's key: it is the path of
    row security, where the model's manager has one. A page that names only its columns is filtered by their choices
    and searched by their texts."""

    organization_path = "organization"
    deferred: tuple[str, ...] = ()  # long columns, which a page reads only where it shows them
    list_select_related: Any = False
    search_fields: Any = ()
    list_filter: Any = ()
    list_per_page = 50
    compressed_fields = True
    warn_unsaved_form = True

    def __init__(self, model: type[Any], admin_site: Any) -> None:
        super().__init__(model, admin_site)
        self.organization_path = getattr(model._default_manager, "path", self.organization_path)
        fields = {field.name: field for field in self.opts.concrete_fields}
        shown = [fields[one] for one in self.list_display if one in fields]
        lookups = _lookups(model) if "__str__" in self.list_display else []
        for one in shown:
            if one.is_relation:
                lookups += [f"{one.name}__{rest}" for rest in _lookups(one.related_model) or ["pk"]]  # type: ignore[arg-type]
        self.list_select_related = self.list_select_related or sorted(
            {lookup.rpartition("__")[0] for lookup in lookups} - {""}
        )
        self.search_fields = self.search_fields or [
            *(one.name for one in shown if isinstance(one, CharField | TextField) and not one.choices),
            *(lookup for lookup in lookups if not lookup.endswith("__pk")),
        ]
        self.list_filter = self.list_filter or [
            *(one.name for one in shown if one.choices or isinstance(one, BooleanField)),
            *((one.name, EmptyFieldListFilter) for one in shown if one.name in ENDS),
            *(["organization"] if self.organization_path == "organization" and "organization" in fields else []),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.select_related(*self.list_select_related or [None]).defer(*self.deferred)
        if request.user.is_superuser:
            return rows
        return rows.filter(**{f"{self.organization_path}__in": organizations_of(request)})

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(super().has_module_permission(request)) or bool(organizations_of(request))

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(super().has_view_permission(request, obj)) or bool(organizations_of(request))

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(super().has_change_permission(request, obj)) or bool(organizations_of(request))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(super().has_add_permission(request)) or bool(organizations_of(request))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is deleted here: rows that others rely on are archived, revoked or cancelled instead."""
        return False

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        """A filter by another row names only what the rows that the person sees belong to: names are data too."""
        return [(one, RelatedOnlyFieldListFilter) if self._is_relation(one) else one for one in self.list_filter]

    def _is_relation(self, name: Any) -> bool:
        return isinstance(name, str) and "__" not in name and bool(self.opts.get_field(name).is_relation)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs["form_class"] = KnownChoiceField
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_field_queryset(self, db: str | None, db_field: Any, request: HttpRequest) -> QuerySet[Any] | None:
        """Choices of a relation: for a superuser every row, for others those of their organisations. A model that no
        page scopes gives no choices."""
        if request.user.is_superuser:
            return super().get_field_queryset(db, db_field, request)
        model = db_field.remote_field.model
        if model is get_user_model():
            return people_of(request)
        related = self.admin_site._registry.get(model)
        return related.get_queryset(request) if isinstance(related, ScopedAdmin) else model._default_manager.none()

    def apply(
        self, request: HttpRequest, rows: Iterable[Any], verb: str, service: Callable[[Actor, Any], object]
    ) -> None:
        """Runs a service for each row; what it refuses is shown with its reason."""
        actor, done = actor_at(request), 0
        for row in rows:
            try:
                service(actor, row)
                done += 1
            except DomainError as error:
                self.message_user(request, f"{row}: {error.message}", messages.ERROR)
        if done:
            self.message_user(request, f"{verb}: {done}.", messages.SUCCESS)


def service_action(description: str, verb: str, service: Callable[[Actor, Any], object]) -> Any:
    """An action of a ``ScopedAdmin``'s list that runs a service for each of the selected rows."""

    def run(self: ScopedAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self.apply(request, queryset, verb, service)

    return action(run, description=description)


class WithReasons(ModelAdmin):  # type: ignore[misc]
    """Shows a service's refusal with its reason; nothing is changed then."""

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return self._or_reason(
            request, lambda: super(WithReasons, self).changeform_view(request, object_id, form_url, extra_context)
        )

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        return self._or_reason(request, lambda: super(WithReasons, self).delete_view(request, object_id, extra_context))

    def _or_reason(self, request: HttpRequest, show: Callable[[], HttpResponse]) -> HttpResponse:
        try:
            return show()
        except DomainError as error:
            self.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


class ServiceAdmin(WithReasons, ScopedAdmin):
    """Rows that a service writes."""


class ReadOnlyAdmin(ScopedAdmin):
    """Rows that only the work itself writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def list_page(model: type[Model], columns: str, base: type[ScopedAdmin] = ReadOnlyAdmin, **options: Any) -> None:
    """Registers a page that needs no method: it names its ``columns``, and attributes of Django's class."""
    admin.site.register(model, type(f"{model.__name__}Admin", (base,), {"list_display": columns.split(), **options}))


class LongTableAdmin(ReadOnlyAdmin):
    """A table that is never counted: pages go on as long as there are rows."""

    paginator = InfinitePaginator
    show_full_result_count = False


class KeyedTableAdmin(LongTableAdmin):
    """A long table whose search takes an id: that of a row that ``key_fields`` name."""

    key_fields: tuple[str, ...] = ()
    search_fields = ["pk"]  # shows the box
    ordering = ["-id"]

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        if not search_term:
            return queryset, False
        if not (wanted := uuid_of(search_term.strip())):
            return queryset.none(), False
        return queryset.filter(reduce(or_, (Q(**{name: wanted}) for name in self.key_fields), Q(pk__in=[]))), False


def _values(obj: Model | None, names: Iterable[str]) -> dict[str, Any]:
    if obj is None:
        return {}
    return {name: _json_value(getattr(obj, name, None)) for name in names if "password" not in name}


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return str(value)
