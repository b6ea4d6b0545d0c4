"""One action on several rows of a list: the number that it changed, the reasons of those that refused, and an undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string

from agentcore_site.console.address import own_address
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import DomainError, Invalid, Missing
from agentcore_site.tenancy.actors import Actor

MOST: Final = 100  # rows that one click changes
REASONS: Final = 5  # that are shown


@dataclass(frozen=True, slots=True)
class BulkAct:
    """``done``: the participle of the message, as in "3 lessons were pruned". ``undo``: the key of the act that takes
    it back; "" if none does, and ``after`` says what can be done then."""

    done: str
    service: Callable[[Actor, Any], Any]
    undo: str = ""
    after: str = ""


def chosen_rows(rows: QuerySet[Any], ids: Sequence[str], noun: str) -> list[Any]:
    """The rows of these ids, in their order.

    Raises:
        Missing: one does not exist or is not the actor's.
    """
    keys = [as_uuid(one, noun) for one in ids]
    found = rows.in_bulk(keys)
    for key in keys:
        if key not in found:
            raise Missing(f"There is no {noun} {key}.")
    return [found[key] for key in keys]


def bulk(
    request: HttpRequest,
    actor: Actor,
    acts: Mapping[str, BulkAct],
    *,  # of the list
    nouns: tuple[str, str],
    found: Callable[[Sequence[str]], Sequence[Any]],
    page: str,
) -> HttpResponse:
    """Does ``act`` of the form to the rows in ``pick``, each by the service of its own page. A row that refuses does
    not stop the others. Goes back to the list at ``next``, or to ``page``.

    ``found``: rows of the picked ids. ``nouns``: of one row, and of many.

    Raises:
        Invalid: there is no such act, or no row or too many are chosen.
        Missing: a row does not exist or is not the actor's.
    """
    picked = list(dict.fromkeys(one for value in request.POST.getlist("pick") for one in value.split(",") if one))
    key = request.POST.get("act", "")
    if key not in acts:
        raise Invalid(f"Choose what to do with these {nouns[1]}: {' or '.join(acts)}.")
    if not 0 < len(picked) <= MOST:
        raise Invalid(f"Choose 1 to {MOST} {nouns[1]}; {len(picked)} were chosen.")
    act, back = acts[key], own_address(request, request.POST.get("next", ""), page)
    changed, refused = [], []
    for row in found(picked):
        try:
            act.service(actor, row)
            changed.append(str(row.pk))
        except DomainError as error:
            refused.append(f"{str(row)[:80].rstrip('.')}: {error.message}")
    if changed:
        was = f"1 {nouns[0]} was" if len(changed) == 1 else f"{len(changed)} {nouns[1]} were"
        context = {"said": f"{was} {act.done}.", "act": act, "pick": ",".join(changed), "next": back}
        context |= {"address": request.path}
        messages.success(request, render_to_string("parts/undo.html", context, request))
    for reason in refused[:REASONS]:
        messages.error(request, reason)
    if len(refused) > REASONS:
        messages.error(request, f"{len(refused) - REASONS} more {nouns[1]} refused, for reasons like these.")
    return redirect(back)
