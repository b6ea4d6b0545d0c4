"""Pages of rows that are listed, made, changed and archived: the four pages, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.forms import RowForm
from agentcore_site.console.pages import Sort, listing, matching, page, post_page, query_params, sent
from agentcore_site.console.tables import Columns
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require


class RowPages:
    """An instance's ``list``, ``new``, ``edit`` and ``archive`` are views. ``one``: the noun, and the row's name in the
    template of the form. ``addresses``: of the list, and of one row. ``notices``: after each write, with {} for the
    name of the row."""

    one: ClassVar[tuple[str, str]]
    right: ClassVar[str]  # the action that a write needs
    form: ClassVar[type[RowForm]]
    templates: ClassVar[tuple[str, str]]  # of the list, and of the form
    addresses: ClassVar[tuple[str, str]]
    notices: ClassVar[tuple[str, str, str]]
    reads: ClassVar[tuple[Callable[[Actor], QuerySet[Any]], Callable[[Actor, Any], Any]]]
    writes: ClassVar[tuple[Callable[..., Any], Callable[..., Any], Callable[[Actor, Any], Any]]]
    columns: ClassVar[Columns | None] = None
    prefilled: ClassVar[tuple[str, ...]] = ()  # fields that an address may fill in a new row's form
    searched: ClassVar[tuple[str, ...]] = ("name",)
    sorts = (Sort("name", "name", "name", descending=False), Sort("newest", "newest first", "created_at"))
    readable = False  # whether members without the right see the form

    def __init__(self) -> None:
        self.list, self.new, self.edit = page(self._list), page(self._new), page(self._edit)
        self.archive = post_page(self._archive)
        for view in (self.list, self.new, self.edit, self.archive):
            view.__module__ = type(self).__module__

    def rows(self, found: list[Any]) -> list[Any]:
        return found

    def form_options(self, actor: Actor) -> dict[str, Any]:
        return {}

    def context(self, actor: Actor, form: Any, row: Any) -> dict[str, Any]:
        """Context of the form's template, beside the form and its row (None: a new one)."""
        return {}

    def _list(self, request: HttpRequest, actor: Actor) -> HttpResponse:
        everything = self.reads[0](actor)
        rows = matching(everything, *query_params(request, "q"), *self.searched).prefetch_related("agents")
        found = listing(request, rows, self.sorts, one=self.one[0], of=everything, columns=self.columns)
        return render(request, self.templates[0], {"listing": found, "rows": self.rows(found.rows)})

    def _new(self, request: HttpRequest, actor: Actor) -> HttpResponse:
        require(actor, self.right, current_organization(actor))
        given = dict(zip(self.prefilled, query_params(request, *self.prefilled), strict=True))
        initial = {name: value for name, value in given.items() if value}
        form = self.form(sent(request), initial=initial, **self.form_options(actor))
        if made := form.applied(self.writes[0], actor):
            messages.success(request, self.notices[0].format(made.name))
            return redirect(self.addresses[1], made.pk)
        return self._form(request, actor, form, None)

    def _edit(self, request: HttpRequest, actor: Actor, **key: Any) -> HttpResponse:
        row = self.reads[1](actor, *key.values())
        if request.method == "POST" or not self.readable:
            require(actor, self.right, row.organization_id)
        form = self.form.of(row, sent(request), **self.form_options(actor))
        if form.applied(self.writes[1], actor, row):
            messages.success(request, self.notices[1].format(row.name))
            return redirect(self.addresses[1], row.pk)
        return self._form(request, actor, form, self.reads[1](actor, row.pk))

    def _archive(self, request: HttpRequest, actor: Actor, **key: Any) -> HttpResponse:
        row = self.writes[2](actor, self.reads[1](actor, *key.values()))
        messages.success(request, self.notices[2].format(row.name))
        return redirect(self.addresses[0])

    def _form(self, request: HttpRequest, actor: Actor, form: RowForm, row: Any) -> HttpResponse:
        context = {"form": form, self.one[1]: row, **self.context(actor, form, row)}
        return render(request, self.templates[1], context, status=form.status)
