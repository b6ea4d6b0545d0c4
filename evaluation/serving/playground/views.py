"""The playground: one question to two to four candidates, side by side."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import allowed, page, post_page, query_params, sent
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.presenters.topbar import budget_pill
from evaluation.serving.playground.candidates import AGENT, MODEL, RELEASE, candidates_offered
from evaluation.serving.playground.forms import AnswerForm, PlaygroundForm, QuestionForm
from evaluation.serving.playground.services import run_answer, run_begin, run_token
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
def answer(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The answer of one candidate: a part of the page."""
    require(actor, "gateway.call", current_organization(actor))
    form = AnswerForm(request.POST)
    if not form.is_valid():
        name, messages = next(iter(form.errors.items()))
        raise Invalid(f"{name}: {messages[0]}")
    values = form.values()
    context: dict[str, Any] = {"problem": "", "found": None, "trace": None}
    status = 200
    try:
        trace, found = run_answer(actor, **values)
        context = {"problem": found.error, "found": found, "trace": trace}
    except DomainError as error:
        context["problem"], status = error.message, error.code
    response = render(request, "serving/_playground_answer.html", context, status=status)
    if status != 200:  # a refusal belongs to its candidate, and not among the notices
        response["HX-Retarget"], response["HX-Reswap"] = f"#answer-{values['place']}", "outerHTML"
    return response


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
