"""Pages of lessons: the list over all agents, one lesson, and its actions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from django.contrib import messages
from django.db.models import Exists, OuterRef, Q, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.bulk import BulkAct, bulk, chosen_rows
from agentcore_site.console.columns import LISTS
from agentcore_site.console.pages import (
    Sort,
    allowed,
    listing,
    matching,
    page,
    post_page,
    query_params,
    side_panel,
    whole_number,
)
from agentcore_site.console.tables import columns, is_table
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.lessons.filters import ExperienceFilters
from experiences.lessons.forms import LessonForm
from experiences.lessons.presenters import MEANINGS, effect_words, history, lessons, verdict
from experiences.lessons.selectors import (
    experience_changes,
    experience_get,
    experience_parents,
    experiences_visible,
    jobs_that_taught,
    library_summary,
    one_of_equals,
    trajectories_of,
)
from experiences.lessons.services.lessons import (
    experience_approve,
    experience_edit,
    experience_prune,
    experience_quarantine,
    experience_reject,
    experience_restore,
    experience_undo,
)
from experiences.lessons.services.merging import equal_lessons, experience_merge
from experiences.lessons.shapes import ExperienceOut
from experiences.lessons.stamps import stamp_faults
from experiences.models import Experience, ExperienceStatus
from experiences.models.agent_lookup import agent_find, agents_visible
from experiences.models.lessons import KNOWN_EFFECT

HIGHEST: Final = 1e9
CHIPS: Final = 8
SORTS: Final = (
    Sort("effect", "most helpful first", "known_effect"),
    Sort("harm", "most harmful first", "worst_effect", descending=False),
    Sort("weight", "seen most often", "weight"),
    Sort("cost", "most tokens", "tokens"),
    Sort("newest", "newest first", "created_at"),
)
ACTIONS: Final = (
    ("approve", "Approve", "check", {ExperienceStatus.QUARANTINED}),
    ("restore", "Restore", "play", {ExperienceStatus.PRUNED}),
    ("prune", "Prune", "cross", {ExperienceStatus.PROPOSED, ExperienceStatus.ACTIVE}),
    ("quarantine", "Quarantine", "alert", set(ExperienceStatus) - {ExperienceStatus.QUARANTINED}),
)
REJECT: Final = ("reject", "Reject", "cross", {ExperienceStatus.QUARANTINED})
GROUP = re.compile(r"(\d{1,9})/(\d{1,9})")
LESSON_COLUMNS = columns("agent=agent.slug", ExperienceOut)


@page
def library(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = experiences_visible(actor)
    query, status, domain, ref = query_params(request, "q", "status", "domain", "agent")
    agent = agent_find(actor, ref) if ref else None
    scope = everything.filter(agent=agent) if agent is not None else everything.none() if ref else everything
    rows = ExperienceFilters.on_page(scope, {"status": status, "domain": domain}, actor=actor).select_related("agent")
    rows = matching(rows, query, "summary", "why", also=Q(handle=query)).annotate(
        known_effect=KNOWN_EFFECT, worst_effect=Coalesce("effect", Value(HIGHEST))
    )
    [each] = query_params(request, "equal")
    rows = rows if each == "each" or is_table(request) else one_of_equals(rows)
    found = listing(request, rows, SORTS, one="lesson", of=everything, columns=LESSON_COLUMNS)
    summary = library_summary(scope)
    left_out = len(stamp_faults(scope.filter(status=ExperienceStatus.ACTIVE))) if agent is not None else 0
    context = {
        "listing": found,
        "lessons": lessons(found.rows),
        "taught_in": jobs_that_taught(found.rows),
        "acts": [
            (key, title, icon) for key, title, icon, origins in (*ACTIONS, REJECT) if not status or status in origins
        ],
        "equal": each,
        "equal_shown": [("each", "each of them")],
        "summary": summary,
        "verdict": verdict(summary, left_out),
        "status": status,
        "domain": domain,
        "agent": agent,
        "statuses": ExperienceStatus.choices,
        "agents": agents_visible(actor)
        .filter(Exists(everything.filter(agent=OuterRef("pk"))))
        .order_by("name")[:CHIPS],
        "domains": list(
            scope.exclude(domain="").order_by("domain").values_list("domain", flat=True).distinct()[:CHIPS]
        ),
        **LISTS["lessons"].context(request),
        **side_panel(request, "lessons/_lesson_panel.html", lambda key: lessons([experience_get(actor, key)])[0]),
    }
    return render(request, "lessons/library.html", context)


@page
def experience(request: HttpRequest, actor: Actor, experience_id: Any) -> HttpResponse:
    return _lesson_page(request, actor, experience_get(actor, experience_id))


@post_page
def edit(request: HttpRequest, actor: Actor, experience_id: Any) -> HttpResponse:
    """Edits the lesson; the form keeps the entered text when it is refused."""
    row = experience_get(actor, experience_id)
    require(actor, "agent.edit", row.organization_id)
    form = LessonForm(request.POST)
    if form.applied(experience_edit, actor, row):
        messages.success(request, "Saved and stamped. The next job measures the new text.")
        return redirect("experiences:experience", experience_id=row.pk)
    return _lesson_page(request, actor, experience_get(actor, experience_id), form)


def _action(service: Callable[..., Experience], done: str) -> Callable[..., HttpResponseBase]:
    """A view that changes a lesson by one service."""

    @post_page
    def view(request: HttpRequest, actor: Actor, experience_id: Any) -> HttpResponse:
        row = experience_get(actor, experience_id)
        service(actor, row, why=request.POST.get("why", ""), version=whole_number(request.POST, "version"))
        messages.success(request, done)
        return redirect("experiences:experience", experience_id=row.pk)

    return view


restore = _action(experience_restore, "Restored: the next job tries the lesson again.")
prune = _action(experience_prune, "Pruned. You can restore the lesson.")
quarantine = _action(experience_quarantine, "In quarantine: no agent receives the lesson until a person approves it.")
approve = _action(experience_approve, "Approved: the next job tries the lesson.")


BULK: Final = {
    "approve": BulkAct("approved", experience_approve, undo="undo", after="The next job tries them."),
    "restore": BulkAct("restored", experience_restore, undo="undo", after="The next job tries them again."),
    "reject": BulkAct("rejected", experience_reject, undo="undo"),
    "prune": BulkAct("pruned", experience_prune, undo="undo"),
    "quarantine": BulkAct("put into quarantine", experience_quarantine, undo="undo"),
    "undo": BulkAct("put back to the former status", experience_undo),
}


@post_page
def chosen(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Does one action to the lessons that were chosen in the list."""
    require(actor, "agent.edit", current_organization(actor))
    return bulk(
        request,
        actor,
        BULK,
        nouns=("lesson", "lessons"),
        found=lambda ids: chosen_rows(experiences_visible(actor), ids, "lesson"),
        page=reverse("experiences:library"),
    )


@post_page
def merge(request: HttpRequest, actor: Actor, experience_id: Any) -> HttpResponse:
    """Makes one of all lessons that say what this one says, and shows it."""
    row = experience_get(actor, experience_id)
    made = experience_merge(actor, row, version=whole_number(request.POST, "version"))
    messages.success(request, f"Merged into {made.handle}. The other lessons are pruned and can be restored.")
    return redirect("experiences:experience", experience_id=made.pk)


def _lesson_page(request: HttpRequest, actor: Actor, row: Experience, form: LessonForm | None = None) -> HttpResponse:
    may = allowed(actor, row.organization_id)
    taught = trajectories_of(actor, row)
    context = {
        "lesson": lessons([row])[0],
        "row": row,
        "meaning": MEANINGS[ExperienceStatus(row.status)],
        "effect": effect_words(row),
        "job": Job.objects.visible_to(actor).filter(pk=row.job_id).first(),
        "group_url": _group_url(row),
        "taught": taught,
        "missing": len(row.taught_by) - len(taught),
        "parents": experience_parents(row),
        "equals": equal_lessons(row),
        "history": history(experience_changes(row)),
        "may": may,
        "actions": _actions(row),
        "form": (form or LessonForm.of(row)) if "agent.edit" in may else None,
    }
    return render(request, "lessons/experience.html", context, status=form.code if form else 200)


def _actions(row: Experience) -> list[tuple[str, str, str]]:
    """Available actions of a lesson: address, label, icon."""
    return [
        (reverse(f"experiences:experience_{key}", args=[row.pk]), title, icon)
        for key, title, icon, origins in ACTIONS
        if row.status in origins
    ]


def _group_url(row: Experience) -> str:
    """The page of the group that taught it; "" where it is not known."""
    place = GROUP.fullmatch(row.group)
    if row.job_id is None or place is None:
        return ""
    return reverse("experiences:group", args=[row.job_id, int(place[1]), int(place[2])])
