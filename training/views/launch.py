"""The launch form with its plan. The plan follows every change; nothing is stored before the button is pressed,
except an uploaded dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import page, post_page
from agentcore_site.console.snippets import snippets
from agentcore_site.jobs.models import Priority
from agentcore_site.lib.errors import DomainError, Invalid, Missing
from agentcore_site.lib.links import site_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.pricing import UnknownPrice
from experiences.agents.selectors import dataset_rows
from experiences.agents.services.datasets import dataset_create, dataset_update
from experiences.agents.services.endpoint_checks import endpoint_check
from experiences.lessons.selectors import domains
from experiences.models import Agent, Dataset
from experiences.models.trajectories import DatasetOrigin
from training.data.uploads import read_rows
from training.forms import LaunchForm
from training.models import TrainingRun
from training.presenters.requests import launch_call
from training.selectors.runs import run_get, runs_visible
from training.services.runs import run_config, run_estimate, run_start

PREVIEW = 3
Checked = TypeVar("Checked")


@page
def launch(request: HttpRequest, actor: Actor) -> HttpResponse:
    if not any(actor.may("run.start", organization_id) for organization_id in actor.organization_ids):
        require(actor, "run.start", current_organization(actor))
    if request.method == "POST":
        form = LaunchForm.read(actor, request.POST)
        run = _start(request, actor, form)
        if run is not None:
            messages.success(request, "The job is queued. This page follows it live.")
            return redirect("training:job", job_id=run.pk)
        return _form(request, form, status=form.status)
    return _form(request, _prefilled(request, actor))


@post_page
def plan(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Cost, duration and statistical power of the form as entered."""
    form = LaunchForm.read(actor, request.POST)
    return render(request, "training/_plan.html", _plan(request, form))


@post_page
def settings(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The advanced settings with another preset's values behind what was typed."""
    return render(request, "training/_settings.html", {"form": LaunchForm.read(actor, request.POST)})


@post_page
def data(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The data part for another agent or dataset: other data, presets and settings, or other rows."""
    form = LaunchForm.read(actor, request.POST)
    return render(request, "training/_data_and_presets.html", _form_context(form))


@post_page
def upload(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Stores a file as a dataset and shows the data part of the form with it chosen, or what is wrong with it."""
    require(actor, "dataset.edit", current_organization(actor))  # 403, not words in the form
    form = LaunchForm.read(actor, request.POST)
    form.typed["source"] = "upload"
    try:
        _take_upload(request, actor, form)
    except DomainError as error:
        form.refuse(error)
    response = render(request, "training/_data.html", _form_context(form))
    response["HX-Trigger-After-Settle"] = "planned"
    return response


@post_page
def domain(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Says what the chosen dataset is about, and shows the data part of the form with it."""
    require(actor, "dataset.edit", current_organization(actor))  # 403, not words in the form
    form = LaunchForm.read(actor, request.POST)
    try:
        if form.dataset is not None:
            dataset_update(actor, form.dataset, domain=form.text("dataset_domain"))
    except Invalid as error:
        form.refuse(error)
    response = render(request, "training/_data.html", _form_context(form))
    response["HX-Trigger-After-Settle"] = "planned"
    return response


def _start(request: HttpRequest, actor: Actor, form: LaunchForm) -> TrainingRun | None:
    """The started run; None with ``form.errors`` set: all mistakes of the form, or the service's own refusal."""
    agent = _checked(form, lambda: _agent(form))
    if form.source == "upload":
        _checked(form, lambda: _take_upload(request, actor, form))
    dataset = _checked(form, lambda: _dataset(form)) if form.source != "upload" else None
    _checked(form, lambda: form.not_before)
    if agent is not None:
        _checked(form, lambda: run_config(form.config(), form.preset, agent))
    if agent is None or form.errors:
        return None
    try:
        endpoint_check(actor, agent)
        return run_start(
            actor,
            agent=agent,
            dataset=dataset,
            environment=None if dataset is not None else agent.environment,
            config=form.config(),
            preset=form.preset,
            priority=form.priority,
            not_before=form.not_before,
            title=form.text("title"),
        )
    except DomainError as error:
        form.refuse(error)
        return None


def _checked(form: LaunchForm, check: Callable[[], Checked]) -> Checked | None:
    """The value of a check; None where its refusal was added to the form's errors."""
    try:
        return check()
    except DomainError as error:
        form.refuse(error)
        return None


def _agent(form: LaunchForm) -> Agent:
    try:
        agent, message = form.agent, "Choose an agent."
    except Missing as error:
        agent, message = None, error.message
        form.typed.pop("agent")
    if agent is None:
        raise Invalid(message, fields={"agent": message})
    return agent


def _dataset(form: LaunchForm) -> Dataset | None:
    if form.source == "environment":
        return None
    if form.dataset is None:
        raise Invalid("Choose a dataset.", fields={"data": "Choose a dataset, or upload one."})
    return form.dataset


def _take_upload(request: HttpRequest, actor: Actor, form: LaunchForm) -> None:
    """An uploaded file becomes a dataset that is chosen from then on.

    Raises:
        Invalid, TooLarge: the file can't be used.
    """
    require(actor, "dataset.edit", current_organization(actor))
    file = request.FILES.get("file")
    if file is None:
        raise Invalid("Choose a file.", fields={"data": "Choose a JSONL or CSV file."})
    name = str(file.name or "queries.jsonl")
    rows = read_rows(name, file.read())
    dataset = dataset_create(
        actor,
        name=name.rpartition(".")[0] or name,
        rows=rows,
        domain=form.text("domain"),
        origin=DatasetOrigin.FILE,
        origin_detail=name,
    )
    form.typed |= {"source": "dataset", "dataset": str(dataset.pk)}


def _plan(request: HttpRequest, form: LaunchForm) -> dict[str, Any]:
    """Template context of the plan: the estimate with the request that launches it, or why there is none yet."""
    context: dict[str, Any] = {"form": form, "plan": None, "missing": "", "problems": {}}
    actor = form.actor
    try:
        agent = form.agent
        if agent is None:
            return context | {"missing": "Choose an agent to see what the job will take."}
        dataset = form.dataset
        if form.source != "environment" and dataset is None:
            return context | {"missing": "Choose or upload a dataset to see what the job will take."}
        estimate = run_estimate(actor, agent=agent, dataset=dataset, config=form.config(), preset=form.preset)
        call = launch_call(form, estimate["config"])
    except DomainError as error:
        unpriced = error.__cause__.model if isinstance(error.__cause__, UnknownPrice) else ""
        return context | {"problems": error.fields or {"": error.message}, "unpriced": unpriced}
    shown = snippets(call, site_of(request)) if call is not None else []
    budget = float(estimate["config"]["max_budget_usd"])
    return context | {"plan": estimate, "budget": budget, "agent": agent, "snippets": shown}


def _prefilled(request: HttpRequest, actor: Actor) -> LaunchForm:
    """From ``?from=<job>`` (a duplicate) or ``?agent=``, ``?dataset=``, ``?preset=``."""
    source = request.GET.get("from", "")
    if source:
        return LaunchForm.like(actor, run_get(actor, source))
    return LaunchForm.read(actor, request.GET)


def _form(request: HttpRequest, form: LaunchForm, *, status: int = 200) -> HttpResponse:
    context = _form_context(form) | _plan(request, form) | {"priorities": Priority.choices}
    return render(request, "training/launch.html", context, status=status)


def _form_context(form: LaunchForm) -> dict[str, Any]:
    """The data part: the agent's environment, the datasets, and the first rows of the chosen one."""
    try:
        agent, dataset = form.agent, form.dataset
    except Missing as error:
        form.refuse(error)
        form.typed.pop("agent", None)
        form.typed.pop("dataset", None)
        agent, dataset = None, None
    preview = dataset_rows(dataset)[:PREVIEW] if dataset is not None else []
    return {
        "form": form,
        "agent": agent,
        "dataset": dataset,
        "preview": preview,
        "last_job": runs_visible(form.actor).filter(agent=agent).order_by("-job__created_at").first()
        if agent
        else None,
        "domains": domains(form.actor),
        "edits_domain": dataset is not None and form.actor.may("dataset.edit", dataset.organization_id),
    }
