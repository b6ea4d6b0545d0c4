"""Pages of releases."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import Sort, listing, page, post_page, query_params
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.adapters.plans import plan_of_release, tensorzero_of
from evaluation.serving.filters import ReleaseFilters
from evaluation.serving.models import Release, ReleaseSource
from evaluation.serving.releases.bundle import Bundle, differences
from evaluation.serving.releases.bundle_builder import bundle_of_checkpoint, known_of
from evaluation.serving.releases.presenters import ReleaseOut, proof_of, served_as, shown, sources_of
from evaluation.serving.releases.promotion import agent_roll_back, checkpoint_promote
from evaluation.serving.releases.selectors import (
    blame,
    bundle_of,
    moved_since,
    release_before,
    release_get,
    releases_differ,
    releases_visible,
    without_addresses,
)
from evaluation.serving.releases.services import release_download, release_make
from evaluation.serving.releases.skills import release_skill
from evaluation.serving.suites.selectors import latest_results
from evaluation.serving.survival.selectors import survival_runs_of
from experiences.models.agent_lookup import agent_get
from training.models import PolicyCheckpoint
from training.services.checkpoints import checkpoint_of
from training.services.promotion import NOTHING_BEFORE, before_promoted, promoted

SORTS = (Sort("newest", "newest first", "created_at"), Sort("number", "number", "number"))
MOST_QUERY = 20_000
MOST_TYPED = 400  # characters of a field that an address carries back


@page
def releases(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = releases_visible(actor)
    query, source = query_params(request, "q", "source")
    agent = agent_get(actor, request.GET["agent"]) if request.GET.get("agent") else None
    given = {"search": query, "source": source, "agent": str(agent.pk) if agent else ""}
    rows = ReleaseFilters.on_page(everything, given, actor=actor)
    found = listing(request, rows, SORTS, one="release", of=everything, columns=ReleaseOut)
    context = {
        "listing": found,
        "rows": [{"release": row, "proof": proof_of(row)} for row in found.rows],
        "q": query,
        "source": source,
        "sources": ReleaseSource.choices,
        "agent": agent,
        "sources_of_agent": sources_of(actor, agent) if agent else [],
        "chosen": request.GET.get("from", ""),
        "note": request.GET.get("note", ""),
    }
    return render(request, "serving/releases.html", context)


@page
def release(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    """A release's contents, evidence, and differences from another one."""
    found = release_get(actor, release_id)
    other = request.GET.get("to")
    before = release_get(actor, other) if other else release_before(found)
    bundle = bundle_of(found)
    moved = moved_since(found)
    query = request.GET.get("query", "")[:MOST_QUERY]
    context = {
        "release": found,
        "bundle": bundle,
        "proof": (proof := proof_of(found)),
        "served_as": served_as(bundle),
        "provable": found.checkpoint_id is not None
        and not proof.proven
        and actor.may("evaluate", found.organization_id),
        "before": before,
        "differing": shown(without_addresses(actor, found, releases_differ(before, found) if before else [])),
        "moved": shown(without_addresses(actor, found, moved)),
        "endpoint_moved": any(one.part == "endpoint" for one in moved),
        "blame": blame(found),
        "results": latest_results(found),
        "may_measure": bundle.runtime != "action"
        and bool(bundle.context.lessons)
        and actor.may("evaluate", found.organization_id),
        "survival": survival_runs_of(found)[:20],
        "may_deploy": actor.may("deployment.edit", found.organization_id),
        "query": query,
        "asked": "query" in request.GET,
        "context": bundle.context.text_for(query) if "query" in request.GET or bundle.context.rule is None else "",
        "others": releases_visible(actor).filter(agent=found.agent).exclude(pk=found.pk).order_by("-number")[:50],
    }
    return render(request, "serving/release.html", context)


@page
def release_json(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    """The whole bundle as a download."""
    found = release_download(actor, release_id)
    response = JsonResponse({"digest": found.digest, "bundle": found.bundle, "evidence": known_of(found)})
    return _named(response, f"{found.agent.slug}-release-{found.number}.json")


@page
def release_tensorzero(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    """TensorZero's configuration of the release, as an archive of its files."""
    found = release_download(actor, release_id, form="tensorzero")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in tensorzero_of(plan_of_release(found)).files.items():
            archive.writestr(name, text)
    response = HttpResponse(packed.getvalue(), content_type="application/zip")
    return _named(response, f"{found.agent.slug}-release-{found.number}-tensorzero.zip")


@page
def release_as_skill(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    """The release as a signed skill."""
    name, packed = release_skill(release_download(actor, release_id, form="skill"))
    return _named(HttpResponse(packed, content_type="application/zip"), name)


def _named(response: HttpResponse, name: str) -> HttpResponse:
    """The response as a file that the browser saves."""
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@post_page
def make(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    require(actor, "release.make", agent.organization_id)
    try:
        made = release_make(
            actor, agent, **_source(actor, request.POST.get("from", "")), note=request.POST.get("note", "")
        )
    except (Invalid, Conflict) as error:  # back to the form, with what was typed
        messages.error(request, error.message)
        typed = {one: request.POST.get(one, "")[:MOST_TYPED] for one in ("from", "note")}
        return redirect(f"{reverse('serving:releases')}?{urlencode({'agent': str(agent.pk), **typed})}")
    messages.success(request, f"Release {made.number} of {agent.name} was made. It changes nothing that is served.")
    return redirect("serving:release", release_id=made.pk)


@page
def promote(request: HttpRequest, actor: Actor, checkpoint_id: Any) -> HttpResponse:
    """The effects of promoting a checkpoint, and the promotion."""
    checkpoint = checkpoint_of(actor, checkpoint_id)
    require(actor, "release.make", checkpoint.organization_id)
    return _taken_up(request, checkpoint, "Promote", lambda note: checkpoint_promote(actor, checkpoint, note=note))


@page
def roll_back(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """The effects of rolling an agent back, and the rollback."""
    agent = agent_get(actor, agent_id)
    require(actor, "release.make", agent.organization_id)
    back = before_promoted(agent)
    if back is None:
        raise Conflict(NOTHING_BEFORE.format(agent.name))
    return _taken_up(request, back, "Roll back to", lambda note: agent_roll_back(actor, agent, note=note))


def _taken_up(
    request: HttpRequest, checkpoint: PolicyCheckpoint, verb: str, work: Callable[[str], Release]
) -> HttpResponse:
    problem, status = "", 200
    if request.method == "POST":
        try:
            made = work(request.POST.get("note", ""))
        except (Invalid, Conflict) as error:
            problem, status = error.message, error.code
        else:
            agent = made.agent.name
            messages.success(
                request, f"{agent} uses {checkpoint.label} now. Release {made.number} holds what it serves there."
            )
            return redirect("serving:release", release_id=made.pk)
    context = {"checkpoint": checkpoint, "agent": checkpoint.agent, "verb": verb, "problem": problem}
    context |= {"promoted": promoted(checkpoint.agent), "note": request.POST.get("note", "")[:MOST_TYPED]}
    try:
        latest = Release.objects.filter(agent=checkpoint.agent).order_by("-number").first()
        found = differences(bundle_of(latest) if latest else Bundle(runtime=""), bundle_of_checkpoint(checkpoint))
        context |= {"latest": latest, "differing": shown(found)}
    except Conflict as error:
        context["problem"] = problem or error.message
    return render(request, "serving/promote.html", context, status=status)


def _source(actor: Actor, chosen: str) -> dict[str, Any]:
    """The source of a release, from a choice of the form (``presenters.sources_of``).

    Raises:
        Missing: there is no such checkpoint.
        Invalid: not a choice of the form.
    """
    kind, _, name = chosen.partition(":")
    if chosen == "agent":
        return {}
    if kind == "checkpoint":
        return {"checkpoint": checkpoint_of(actor, name)}
    if kind == "playbook" and name.isascii() and name.isdigit() and len(name) < 10:
        return {"playbook_version": int(name)}
    raise Invalid("Choose the source of the release in the list.", fields={"from": "Choose one of the list."})
