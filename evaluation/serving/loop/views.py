"""Pages of an agent's learning loop, and the actions on it."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, listing, page, post_page, sent, whole_number
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.loop.forms import LoopForm
from evaluation.serving.loop.presenters import next_of, return_of, shown_turn
from evaluation.serving.loop.selectors import loop_of, rows_visible, spent_this_month_micros, turn_get, turns_visible
from evaluation.serving.loop.services import loop_change, rows_decide, turn_start, turn_stop
from evaluation.serving.models import RowState, TurnState
from experiences.models.agent_lookup import agent_get

TURNS: Final = 20
SORTS: Final = (Sort("first", "in their order", "id", descending=False),)


@page
def loop(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    found = loop_of(agent)
    form = LoopForm.of(found, sent(request))
    if form.is_bound:
        require(actor, "deployment.edit", agent.organization_id)
        if form.applied(loop_change, actor, agent) is not None:
            messages.success(request, "Saved.")
            return redirect("serving:loop", agent_id=agent.pk)
    turns = [shown_turn(turn) for turn in turns_visible(actor).filter(agent=agent)[:TURNS]]
    last = turns[0] if turns else None
    reviewing = last is not None and last.turn.state == TurnState.REVIEWING
    waiting = rows_visible(actor).filter(turn=last.turn, state=RowState.WAITING) if last and reviewing else None
    context = {
        "agent": agent,
        "loop": found,
        "form": form,
        "next": next_of(found),
        "spent_micros": spent_this_month_micros(agent),
        "last": last,
        "turns": turns,
        "brought": next(filter(None, map(return_of, turns)), None),
        "listing": listing(request, waiting, SORTS, one="row") if waiting is not None else None,
        "may": allowed(actor, agent.organization_id),
    }
    return render(request, "serving/loop.html", context, status=form.status)


@post_page
def start(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    try:
        turn = turn_start(actor, agent)
        messages.success(request, f"Turn {turn.number} begins within ten seconds.")
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("serving:loop", agent_id=agent.pk)


@post_page
def stop(request: HttpRequest, actor: Actor, turn_id: Any) -> HttpResponse:
    turn = turn_get(actor, turn_id)
    try:
        turn_stop(actor, turn, note=request.POST.get("note", "")[:200])
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("serving:loop", agent_id=turn.agent_id)


@post_page
def decide(request: HttpRequest, actor: Actor, turn_id: Any) -> HttpResponse:
    """Decides on one row, or on all waiting rows."""
    turn = turn_get(actor, turn_id)
    row = whole_number(request.POST, "row", digits=18)
    try:
        rows_decide(actor, turn, approve="approve" in request.POST, ids=None if row is None else [row])
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("serving:loop", agent_id=turn.agent_id)
