"""Pages of deployments, and the actions on them."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, is_part, listing, page, post_page, query_params, sent
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.links import absolute
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.adapters.webhook import serving_secret
from evaluation.serving.deployments.edits import edits_change, edits_sentence, edits_settings
from evaluation.serving.deployments.filters import DeploymentFilters
from evaluation.serving.deployments.forms import DeployForm, EditsForm, ServingForm
from evaluation.serving.deployments.gate import rule_of, verdict_of
from evaluation.serving.deployments.presenters import TONES, WORDS, sentence_of, shown_deployment
from evaluation.serving.deployments.selectors import deployment_get, deployments_visible, live_deployment, serving_of
from evaluation.serving.deployments.services import (
    deployment_advance,
    deployment_pause,
    deployment_resume,
    deployment_roll_back,
    deployment_start,
    release_approve,
    release_restore,
    serving_change,
)
from evaluation.serving.models import Deployment, DeploymentState, DeploymentStrategy
from evaluation.serving.releases.selectors import release_get
from experiences.models import ModelEndpoint
from experiences.models.agent_lookup import agent_find, agent_get

SORTS: Final = (Sort("newest", "newest first", "created_at"),)
ACTIONS: Final = {
    "pause": deployment_pause,
    "resume": deployment_resume,
    "advance": deployment_advance,
    "roll-back": deployment_roll_back,
}


@page
def deployments(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = deployments_visible(actor)
    query, state, strategy, agent = query_params(request, "q", "state", "strategy", "agent")
    given = {"search": query, "state": state, "strategy": strategy, "agent": agent}
    found = listing(
        request, DeploymentFilters.on_page(everything, given, actor=actor), SORTS, one="deployment", of=everything
    )
    context = {
        "listing": found,
        "rows": [(row, sentence_of(row)) for row in found.rows],
        "q": query,
        "state": state,
        "states": DeploymentState.choices,
        "strategy": strategy,
        "strategies": [(key, title.partition(":")[0]) for key, title in DeploymentStrategy.choices],
        "agent": agent_find(actor, agent) if agent else None,
    }
    return render(request, "serving/deployments.html", context)


@page
def deployment(request: HttpRequest, actor: Actor, deployment_id: Any) -> HttpResponse:
    found = deployment_get(actor, deployment_id)
    events = found.events.select_related("by").order_by("-id")
    context = {
        "deployment": found,
        "shown": shown_deployment(found),
        "events": [(event, WORDS.get(event.kind, event.kind), TONES.get(event.kind, "")) for event in events],
        "may": allowed(actor, found.organization_id),
    }
    part = is_part(request) and "part" in request.GET
    return render(request, "serving/_deployment.html" if part else "serving/deployment.html", context)


@page
def deploy(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    release = release_get(actor, release_id)
    require(actor, "deployment.edit", release.organization_id)
    serving = serving_of(release.agent)
    first = serving.release is None
    form = DeployForm(sent(request), initial={"strategy": "immediate"} if first else None)
    made = form.applied(deployment_start, actor, release) if form.is_bound else None
    if made is not None:
        messages.success(request, sentence_of(made))
        return redirect("serving:deployment", deployment_id=made.pk)
    context = {
        "form": form,
        "release": release,
        "serving": serving,
        "approvals": release.approvals.select_related("by"),
        "mine": release.created_by_id == actor.user.pk,
        "live": live_deployment(release.agent),
        "verdict": verdict_of(release, serving.release),
    }
    return render(request, "serving/deploy.html", context, status=form.status)


@post_page
def approve(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    release = release_get(actor, release_id)
    try:
        release_approve(actor, release)
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("serving:deploy", release_id=release.pk)


@post_page
def act(request: HttpRequest, actor: Actor, deployment_id: Any, action: str) -> HttpResponse:
    found = deployment_get(actor, deployment_id)
    try:
        ACTIONS[action](actor, found, note=request.POST.get("note", "")[:300])
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("serving:deployment", deployment_id=found.pk)


@page
def serving(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """An agent's serving settings: its address, its release, and its fallbacks."""
    agent = agent_get(actor, agent_id)
    found = serving_of(agent)
    known = ModelEndpoint.objects.visible_to(actor).filter(organization_id=agent.organization_id, archived_at=None)
    endpoints = [(str(one.pk), one.name) for one in known]
    initial = ServingForm.initial_of(found, rule_of(agent))
    form = ServingForm(sent(request), endpoints=endpoints, initial=initial)
    if form.is_bound:
        require(actor, "deployment.edit", agent.organization_id)
        if form.applied(serving_change, actor, agent) is not None:
            messages.success(request, "Saved. All processes use it within a second.")
            return redirect("serving:serving", agent_id=agent.pk)
    context = {
        "agent": agent,
        "serving": found,
        "form": form,
        "edits": EditsForm(initial=edits_settings(found)),
        "edits_said": edits_sentence(found),
        "live": live_deployment(agent),
        "base_url": absolute(request, "/v1"),
        "may": allowed(actor, agent.organization_id),
        "past": deployments_visible(actor).filter(agent=agent)[:10],
    }
    leads = actor.may("deployment.edit", agent.organization_id)
    if leads and found.webhook_url:
        context["secret"] = serving_secret(agent.organization_id)
    response = render(request, "serving/serving.html", context, status=form.status)
    response["Cache-Control"] = "no-store, private"  # the page shows the secret
    return response


@post_page
def edits(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Saves the rule of small edits."""
    agent = agent_get(actor, agent_id)
    require(actor, "deployment.edit", agent.organization_id)
    form = EditsForm(sent(request))
    if form.applied(edits_change, actor, agent) is not None:
        messages.success(request, "Saved.")
    for error in (text for texts in form.errors.values() for text in texts):
        messages.error(request, str(error))
    return redirect("serving:serving", agent_id=agent.pk)


@post_page
def restore(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    try:
        made: Deployment = release_restore(actor, agent, note=request.POST.get("note", "")[:300])
    except (Conflict, Invalid) as error:
        messages.error(request, error.message)
        return redirect("serving:serving", agent_id=agent.pk)
    messages.success(request, f"Release {made.release.number} serves {agent.name} again.")
    return redirect("serving:deployment", deployment_id=made.pk)
