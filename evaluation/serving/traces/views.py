"""Pages of production traces, and the buttons by which they say what they think."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.db.models import Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from agentcore_site.console.columns import LISTS
from agentcore_site.console.pages import Sort, is_part, listing, page, post_page, query_params
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.feedback.opinions import COMMENT, CORRECTION, MOST_TEXT, STARS, THUMBS, Refused, opinion
from evaluation.serving.feedback.selectors import feedback_visible
from evaluation.serving.feedback.services import feedback_give, feedback_withdraw, giver_of
from evaluation.serving.models import Feedback, ProductionTrace, TraceStatus
from evaluation.serving.releases.selectors import releases_visible
from evaluation.serving.traces.filters import ARMS, OPINIONS, ProductionTraceFilters
from evaluation.serving.traces.presenters import ProductionTraceRow, conversation, parts_of, shown_traces, verdict_of
from evaluation.serving.traces.selectors import production_trace_get, production_traces_visible, release_numbers
from experiences.models.agent_lookup import agent_find
from experiences.rollouts.rewards.signals import CODE_QUALITY

TEXTS: Final = ((CORRECTION, "A better answer"), (COMMENT, "A comment"))
LOWEST: Final = -1e9
SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("worst", "lowest reward", "known_reward", descending=False),
    Sort("best", "highest reward", "known_reward"),
    Sort("slowest", "slowest", "duration_ms"),
    Sort("cost", "highest cost", "cost_micros", former="dearest"),
)
FILTERS: Final = ("agent", "release", "arm", "status", "feedback", "session", "model")


@page
def traces(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = production_traces_visible(actor)
    given = dict(zip(("search", *FILTERS), query_params(request, "q", *FILTERS), strict=True))
    rows = ProductionTraceFilters.on_page(everything, given, actor=actor).defer("components", "metadata", "sampled")
    rows = rows.annotate(known_reward=Coalesce("reward", Value(LOWEST)))
    found = listing(request, rows, SORTS, one="trace", of=everything, columns=ProductionTraceRow)
    release = uuid_of(given["release"])
    context = {
        **given,
        "listing": found,
        "rows": shown_traces(actor, found.rows, release_numbers(found.rows)),
        "agent": agent_find(actor, given["agent"]) if given["agent"] else None,
        "release_title": str(releases_visible(actor).filter(pk=release).first() or "") if release else "",
        "statuses": TraceStatus.choices,
        "arms": ARMS,
        "opinions": OPINIONS,
        **LISTS["traces"].context(request),
    }
    return render(request, "serving/traces.html", context)


@page
def trace(request: HttpRequest, actor: Actor, production_trace_id: Any) -> HttpResponse:
    row = production_trace_get(actor, production_trace_id)
    one = _shown_trace(actor, row)
    verdict, tone = verdict_of(one)
    context = {
        "one": one,
        "row": row,
        "named": row.session not in ("", str(row.pk)),
        "verdict": verdict,
        "tone": tone,
        "conversation": conversation(row),
        "parts": parts_of(row),
        **_code(row),
        "stars": range(1, 6),
        "texts": [(name, title, one.mine[name].row.text if name in one.mine else "") for name, title in TEXTS],
        "most": MOST_TEXT,
    }
    return render(request, "serving/trace.html", context)


@page
def trace_json(request: HttpRequest, actor: Actor, production_trace_id: Any) -> HttpResponse:
    row = production_trace_get(actor, production_trace_id)
    body = {
        field.attname: getattr(row, field.attname)
        for field in row._meta.concrete_fields
        if field.name != "organization"
    }
    return JsonResponse(body, json_dumps_params={"indent": 2, "ensure_ascii": False})


@post_page
def give(request: HttpRequest, actor: Actor, production_trace_id: Any) -> HttpResponse:
    """Takes feedback from a button or a form; the same thumb or star once more takes it back."""
    row = production_trace_get(actor, production_trace_id)
    metric, value, text = (request.POST.get(name, "") for name in ("metric", "value", "text"))
    before = feedback_visible(actor).filter(trace=row, metric=metric, giver=giver_of(actor)).first()
    try:
        if before is not None and _is_again(before, value, text):
            feedback_withdraw(actor, before)
        else:
            feedback_give(actor, row, metric=metric, value=_number(metric, value), text=text)
    except Invalid as error:
        if is_part(request):
            raise
        messages.error(request, error.message)
    if is_part(request) and metric == THUMBS:
        return render(request, "serving/_thumbs.html", {"one": _shown_trace(actor, row)})
    return redirect("serving:trace", production_trace_id=row.pk)


def _code(row: ProductionTrace) -> dict[str, Any]:
    """The findings on the code in the answer."""
    found = row.components.get(CODE_QUALITY) or {}
    return {"code": found, "findings": [*found.get("lint_details", []), *found.get("security_details", [])]}


def _is_again(before: Feedback, value: str, text: str) -> bool:
    """The same button was pressed again, or a text was emptied."""
    if before.value is None:
        return not text.strip()
    try:
        return opinion(before.metric, _number(before.metric, value)).value == before.value
    except Refused:  # which is said when it is given
        return False


def _number(metric: str, value: str) -> Any:
    """The title of a button, by the metric's value: the number of stars, else the word."""
    return int(value) if metric == STARS and value.isdecimal() and len(value) == 1 else value or None


def _shown_trace(actor: Actor, row: ProductionTrace) -> Any:
    [one] = shown_traces(actor, [row], release_numbers([row]))
    return one
