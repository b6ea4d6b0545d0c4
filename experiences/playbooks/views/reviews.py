"""The review queue: all that waits for a person, over all agents. Changes of playbooks, and lessons in quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import Sort, allowed, listing, matching, page, post_page, query_params, whole_number
from agentcore_site.console.tables import columns
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.lessons.presenters import lessons
from experiences.lessons.selectors import experience_get, experiences_visible
from experiences.lessons.services.lessons import experience_approve, experience_reject
from experiences.lessons.views.lessons import LESSON_COLUMNS
from experiences.models import Agent, ContextDelta, Experience, ExperienceStatus
from experiences.models.agent_lookup import agent_find, agents_visible
from experiences.playbooks.forms import ReviewForm
from experiences.playbooks.presenters.reviews import FILTERS, KINDS, DeltaOut, evidence, proposals
from experiences.playbooks.selectors import delta_get, review_queue
from experiences.playbooks.services.reviews import delta_approve, delta_reject, replaced_by

CHIPS: Final = 8
SHOWN: Final = 10
KINDS_SHOWN: Final = (*((key, title) for key, (_, title) in KINDS.items()), ("lesson", "Lessons"))
SORTS: Final = (
    Sort("oldest", "oldest first", "created_at", descending=False),
    Sort("newest", "newest first", "created_at"),
    Sort("certain", "most certain", "confidence"),
)
LESSON_SORTS: Final = SORTS[:2]
COLUMNS = columns("agent=agent.slug", DeltaOut)


@page
def reviews(request: HttpRequest, actor: Actor) -> HttpResponse:
    query, kind, reason, ref = query_params(request, "q", "kind", "reason", "agent")
    agent = agent_find(actor, ref) if ref else None
    changes, held = _changes(actor, query, kind, reason), _lessons(actor, query, kind, reason)
    if ref:
        changes, held = changes.filter(agent=agent), held.filter(agent=agent)
    if kind == "lesson":
        found = listing(request, held, LESSON_SORTS, one="lesson", columns=LESSON_COLUMNS)
    else:
        found = listing(request, changes, SORTS, one="change", columns=COLUMNS)
    n_lessons = held.count()
    context = {
        "listing": replace(found, any=bool(found.count or n_lessons) or _anything(actor)),
        "proposals": [] if kind == "lesson" else proposals(found.rows),
        "lessons": lessons(found.rows if kind == "lesson" else list(held.order_by("created_at")[:SHOWN])),
        "n_lessons": n_lessons,
        "kind": kind,
        "kinds": KINDS_SHOWN,
        "reason": reason,
        "reasons": FILTERS,
        "agent": agent,
        "agents": _agents(actor),
    }
    return render(request, "playbooks/reviews.html", context)


@page
def review(request: HttpRequest, actor: Actor, delta_id: Any) -> HttpResponse:
    return _review(request, actor, delta_get(actor, delta_id))


@post_page
def approve(request: HttpRequest, actor: Actor, delta_id: Any) -> HttpResponse:
    """As it is, or with another text; what was typed stays in the form when it is refused. The item that makes room is
    the one that the review's page names: the queue names none."""
    delta = delta_get(actor, delta_id)
    require(actor, "playbook.edit", delta.organization_id)
    form = ReviewForm(request.POST) if "content" in request.POST else None
    if form is not None and not form.is_valid():
        return _review(request, actor, delta, form, status=400)
    seen = request.POST.get("replaces", "")
    try:
        delta_approve(actor, delta, **(form.cleaned_data if form else {}), replaces=seen)
    except (Invalid, Conflict) as error:
        kept = form or ReviewForm.filled(delta)
        kept.refuse(error)
        return _review(request, actor, delta_get(actor, delta_id), kept, status=error.code)
    made_room = (
        f" {seen} made room for it; a roll-back to version {(delta.version or 1) - 1} undoes it." if seen else ""
    )
    messages.success(request, f"Approved: version {delta.version} of {delta.agent.name}'s playbook.{made_room}")
    return _back(request)


@post_page
def reject(request: HttpRequest, actor: Actor, delta_id: Any) -> HttpResponse:
    delta = delta_get(actor, delta_id)
    delta_reject(actor, delta, reason=request.POST.get("why", ""))
    messages.success(request, f"Rejected. The playbook of {delta.agent.name} stays as it is.")
    return _back(request)


def _lesson(service: Callable[..., Experience], done: str) -> Callable[..., HttpResponseBase]:
    """A view that decides about a lesson in quarantine; one that can't be approved as it is has to be looked at."""

    @post_page
    def view(request: HttpRequest, actor: Actor, experience_id: Any) -> HttpResponse:
        row = experience_get(actor, experience_id)
        try:
            service(actor, row, why=request.POST.get("why", ""), version=whole_number(request.POST, "version"))
        except (Invalid, Conflict) as error:
            messages.error(request, error.message)
            return redirect("experiences:experience", experience_id=row.pk)
        messages.success(request, done)
        return _back(request)

    return view


approve_lesson = _lesson(experience_approve, "Approved: the next job tries the lesson.")
reject_lesson = _lesson(experience_reject, "Rejected: the lesson is pruned. You can restore it.")


# -- reading -----------------------------------------------------------------------------------------------------------


def _changes(actor: Actor, query: str, kind: str, reason: str) -> QuerySet[ContextDelta]:
    rows = review_queue(actor)
    if kind:
        rows = rows.filter(type=kind)
    if reason:
        rows = rows.filter(state=reason)
    return matching(rows, query, "content", "rationale", "reason")


def _lessons(actor: Actor, query: str, kind: str, reason: str) -> QuerySet[Experience]:
    """Lessons wait for one reason only: quarantine."""
    rows = experiences_visible(actor).filter(status=ExperienceStatus.QUARANTINED)
    if kind not in ("", "lesson") or reason not in ("", "quarantined"):
        return rows.none()
    return matching(rows, query, "summary", "why")


def _agents(actor: Actor) -> QuerySet[Agent]:
    """Agents with a change or a lesson that waits."""
    changes = review_queue(actor).order_by().values("agent_id")
    held = experiences_visible(actor).filter(status=ExperienceStatus.QUARANTINED).values("agent_id")
    return agents_visible(actor, archived=True).filter(Q(id__in=changes) | Q(id__in=held)).order_by("name")[:CHIPS]


def _anything(actor: Actor) -> bool:
    held = experiences_visible(actor).filter(status=ExperienceStatus.QUARANTINED)
    return review_queue(actor).exists() or held.exists()


def _back(request: HttpRequest) -> HttpResponse:
    """To the queue, narrowed as it was."""
    query = QueryDict(request.POST.get("query", ""))
    return redirect(f"{reverse('experiences:reviews')}{'?' if query else ''}{query.urlencode()}")


def _review(
    request: HttpRequest, actor: Actor, delta: ContextDelta, form: ReviewForm | None = None, status: int = 200
) -> HttpResponse:
    may, one = allowed(actor, delta.organization_id), proposals([delta])[0]
    traces, gone = evidence(actor, delta)
    waits = one.waits and "playbook.edit" in may
    category = one.present.category if one.present else ""
    context = {
        "one": one,
        "delta": delta,
        "agent": delta.agent,
        "traces": traces,
        "gone": gone,
        "may": may,
        "form": (form or ReviewForm.of(delta, category)) if waits and delta.type != "remove" else None,
        "problem": form.non_field_errors() if form and (delta.type == "remove" or not waits) else [],
        "waits": waits,
        "replaced": replaced_by(delta),
        # The page of two versions previews the way back from the newest.
        "undo": delta.version - 1 if delta.version and delta.version == delta.playbook.version else None,
    }
    return render(request, "playbooks/review.html", context, status=status)
