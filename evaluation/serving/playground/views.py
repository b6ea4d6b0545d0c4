"""The playground: one question to two to four candidates, side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from agentcore_site.console.pages import allowed, page, post_page, query_params, sent
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.presenters.topbar import budget_pill
from evaluation.serving.playground.candidates import AGENT, MODEL, RELEASE, candidates_offered
from evaluation.serving.playground.forms import AnswerForm, PlaygroundForm, QuestionForm
from evaluation.serving.playground.services import run_begin, run_token, run_trial
from evaluation.serving.playground.trials import Trial, TrialAnswer, trial_pieces
from experiences.trajectories.selectors import trajectory_get


@page
def playground(request: HttpRequest, actor: Actor) -> HttpResponse:
    home = current_organization(actor)
    require(actor, "gateway.call", home)
    offered = candidates_offered(actor)
    form = PlaygroundForm(sent(request), offered=offered, initial=_initial(request, actor))
    labels = form.applied(run_begin, actor)
    cards: list[dict[str, Any]] = []
    if labels is not None:
        shared = {name: request.POST.get(name, "") for name in QuestionForm.base_fields}
        chosen = form.values()["candidates"]
        cards = [
            {"label": label, "fields": shared | {"candidate": one.value, "prompt": one.prompt, "place": place}}
            for place, (label, one) in enumerate(zip(labels, chosen, strict=True))
        ]
    context = {
        "form": form,
        "offered": offered,
        "cards": cards,
        "token": run_token(actor),  # of the next run: this one's answers are asked for once
        "budget": budget_pill(home.pk),
        "may": allowed(actor, home.pk),
    }
    return render(request, "serving/playground.html", context, status=form.status)


@post_page
def answer(request: HttpRequest, actor: Actor) -> HttpResponseBase:
    """The answer of one candidate, as it comes. Its turn among requests ends with the head of the response."""
    require(actor, "gateway.call", current_organization(actor))
    form = AnswerForm(request.POST)
    if not form.is_valid():
        name, messages = next(iter(form.errors.items()))
        raise Invalid(f"{name}: {messages[0]}")
    try:
        trial = run_trial(actor, **form.values())
    except DomainError as error:
        context = {"problem": error.message, "found": None, "trace": None}
        return render(request, "serving/_playground_answer.html", context, status=error.code)
    response = StreamingHttpResponse(_lines(trial), content_type="application/x-ndjson")
    response["X-Accel-Buffering"] = "no"
    return response


async def _lines(trial: Trial) -> AsyncIterator[bytes]:
    """Lines of JSON: texts as they come, then the part of the page that takes their place."""
    async for piece in trial_pieces(trial):
        if isinstance(piece, TrialAnswer):
            context = {"problem": piece.error, "found": piece, "trace": trial.id}
            yield orjson.dumps({"html": render_to_string("serving/_playground_answer.html", context)}) + b"\n"
        else:
            yield orjson.dumps({"text": piece}) + b"\n"


def _initial(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    """The values that links to this page fill in."""
    agent, release, endpoint, trajectory = query_params(request, "agent", "release", "endpoint", "trajectory")
    found: dict[str, Any] = {}
    chosen = [f"{kind}:{row_id}" for kind, row_id in ((AGENT, agent), (RELEASE, release), (MODEL, endpoint)) if row_id]
    if trajectory:
        row = trajectory_get(actor, trajectory)
        found["question"] = row.query
        chosen.append(f"{AGENT}:{row.agent_id}")
    return found | {f"candidate_{place}": value for place, value in enumerate(dict.fromkeys(chosen), 1)}
