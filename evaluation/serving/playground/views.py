"""The playground: one question to up to four candidates, side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from agentcore_site.console.forms import ServiceForm
from agentcore_site.console.pages import allowed, page, post_page, query_params, sent
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.presenters.topbar import budget_pill
from budgets.selectors import playground_room
from evaluation.serving.playground.candidates import AGENT, CHECKPOINT, MODEL, RELEASE, candidates_offered
from evaluation.serving.playground.forms import (
    AnswerForm,
    KeptLessonForm,
    KeptRowForm,
    PlaygroundForm,
    PromptForm,
    QuestionForm,
)
from evaluation.serving.playground.keeping import lesson_keep, prompt_keep, row_keep
from evaluation.serving.playground.services import run_begin, run_token, run_trial
from evaluation.serving.playground.trials import Trial, TrialAnswer, trial_pieces
from experiences.agents.selectors import dataset_get, datasets_visible
from experiences.models.agent_lookup import OFFERED, agent_get
from experiences.trajectories.selectors import trajectory_get


@page
def playground(request: HttpRequest, actor: Actor) -> HttpResponse:
    home = current_organization(actor)
    require(actor, "gateway.call", home)
    offered, may = candidates_offered(actor), allowed(actor, home.pk)
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
        "keep": _keeping(actor, form, may) if cards else {},
        "token": run_token(actor),  # of the next run: this one's answers are asked for once
        "room": playground_room(home.pk),
        "budget": budget_pill(home.pk),
        "may": may,
    }
    return render(request, "serving/playground.html", context, status=form.status)


@post_page
def answer(request: HttpRequest, actor: Actor) -> HttpResponseBase:
    """The answer of one candidate, as it comes. Its turn among requests ends with the head of the response."""
    require(actor, "gateway.call", current_organization(actor))
    form = AnswerForm(request.POST)
    given(form)
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


@post_page
def keep_row(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "dataset.edit", current_organization(actor))
    found = given(KeptRowForm(request.POST))
    dataset = dataset_get(actor, found["dataset"]) if found["dataset"] else None
    made = row_keep(actor, question=found["question"], answer=found["answer"], dataset=dataset)
    return _kept(request, f"{made.name}, version {made.version}, has the row: {made.size:,} in all.")


@post_page
def keep_lesson(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "agent.edit", current_organization(actor))
    found = given(KeptLessonForm(request.POST))
    agent = agent_get(actor, found["agent"])
    lesson_keep(actor, agent, text=found["lesson"])
    return _kept(request, f"The lesson of {agent.name} waits in the review queue.")


@post_page
def keep_prompt(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "agent.edit", current_organization(actor))
    found = given(PromptForm(request.POST))
    agent = prompt_keep(actor, agent_get(actor, found["agent"]), prompt=found["prompt"])
    return _kept(request, f"{agent.name} has the edited prompt now. Jobs that have not ended keep the former one.")


def given(form: ServiceForm) -> dict[str, Any]:
    """Raises Invalid."""
    if not form.is_valid():
        name, messages = next(iter(form.errors.items()))
        raise Invalid(f"{name.capitalize()}: {messages[0]}")
    return form.cleaned_data


def _kept(request: HttpRequest, message: str) -> HttpResponse:
    """A notice beside the answers, which stay."""
    return render(request, "parts/notice.html", {"message": message, "level": "success"})


def _keeping(actor: Actor, form: PlaygroundForm, may: frozenset[str]) -> dict[str, Any]:
    """The forms that keep something of a run, as far as the actor may."""
    values = form.values()
    chosen = [one for one in values["candidates"] if one.value.startswith(f"{AGENT}:")]
    names = dict(candidates_offered(actor).agents)
    agents = [(one.value.partition(":")[2], names[one.value]) for one in chosen if one.value in names]
    found: dict[str, Any] = {}
    if "dataset.edit" in may:
        datasets = datasets_visible(actor).filter(archived_at=None, followed_by=None).order_by("name")[:OFFERED]
        offered = [(str(row.pk), f"{row.name}, version {row.version}") for row in datasets]
        found["row"] = KeptRowForm(datasets=offered, initial={"question": values["question"].text}, auto_id="keep_%s")
    if agents and "agent.edit" in may:
        found["lesson"] = KeptLessonForm(agents=list(dict.fromkeys(agents)), auto_id="keep_%s")
        found["prompts"] = [
            {"agent": one.value.partition(":")[2], "name": names[one.value], "prompt": one.prompt}
            for one in chosen
            if one.prompt and one.value in names
        ]
    return found


def _initial(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    """The values that links to this page fill in."""
    found = {}
    [trajectory] = query_params(request, "trajectory")
    agent = ""
    if trajectory:
        row = trajectory_get(actor, trajectory)
        found["question"] = row.query
        agent = f"{AGENT}:{row.agent_id}"
    return found | candidates_linked(request, agent)


def candidates_linked(request: HttpRequest, *more: str) -> dict[str, str]:
    """Candidates that a link to the playground names, and ``more``; by their fields."""
    names = {"agent": AGENT, "release": RELEASE, "checkpoint": CHECKPOINT, "endpoint": MODEL}
    linked = zip(names.values(), query_params(request, *names), strict=True)
    chosen = [*(f"{kind}:{row_id}" for kind, row_id in linked if row_id), *filter(None, more)]
    return {f"candidate_{place}": value for place, value in enumerate(dict.fromkeys(chosen), 1)}
