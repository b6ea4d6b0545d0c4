"""Trajectories: the search, the viewer, a group side by side, two side by side."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from agentcore_site.console.pages import page
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import GroupRecord, TrajectoryRecord
from experiences.rollouts.call_notes import differing, settings_of
from experiences.trajectories.annotations.forms import AnnotationForm
from experiences.trajectories.annotations.selectors import annotations_of, labels_used
from experiences.trajectories.archive.reading import job_rows, trajectory_rows
from experiences.trajectories.presenters.comparison import Column, aligned, best_first, columns, first_parting
from experiences.trajectories.presenters.first_messages import first_messages, lessons_in, verdict_sentence
from experiences.trajectories.presenters.lists import trajectory_listing
from experiences.trajectories.presenters.shape_of_steps import folded, tree, waterfall
from experiences.trajectories.selectors import (
    advantages_for,
    group_of,
    siblings,
    trajectories_visible,
    trajectory_get,
)
from experiences.trajectories.step_window import WINDOW, steps_between, trajectory_light

MAX_ALIGNED_STEPS = 200
SHAPES: Final = {"steps": "Steps", "tree": "Tree", "waterfall": "Waterfall"}


@page
def trajectories(request: HttpRequest, actor: Actor) -> HttpResponse:
    return render(request, "trajectories/trajectories.html", trajectory_listing(request, actor))


@page
def trajectory(request: HttpRequest, actor: Actor, trajectory_id: Any) -> HttpResponse:
    with trajectory_rows(actor, trajectory_id) as archive:
        row = trajectory_light(actor, trajectory_id)
        first = _first(request, row)
        others = list(siblings(row).values_list("id", flat=True))
        place = others.index(row.id)
        context = {
            "row": row,
            "archive": archive,
            "job": Job.objects.visible_to(actor).filter(id=row.job_id).first(),
            "learned": advantages_for([row]).get(row.id),
            "parts": [(name, value) for name, value in row.components.items() if value],
            "in_group": group_of(row) is not None,
            **_messages(actor, row),
            **_shape(request),
            "annotations": annotations_of(actor, row),
            "annotation_form": AnnotationForm(labels=labels_used(actor)),
            "place": place + 1,
            "n_siblings": len(others),
            "previous": others[place - 1] if place > 0 else None,
            "following": others[place + 1] if place + 1 < len(others) else None,
            **_window(row, first),
        }
        shown = context["steps"]
        context |= {"tree": tree(shown)} if context["shape"] == "tree" else {}
        if context["shape"] == "waterfall":  # of a window the rest of the time is outside
            whole = row.duration_ms if len(shown) == row.n_steps else 0.0
            context["waterfall"] = waterfall(shown, whole_ms=whole)
        return render(request, "trajectories/trajectory.html", context)


@page
def steps(request: HttpRequest, actor: Actor, trajectory_id: Any) -> HttpResponse:
    """The next steps of the line, for scrolling."""
    with trajectory_rows(actor, trajectory_id):
        row = trajectory_light(actor, trajectory_id)
        return render(request, "trajectories/_steps.html", {"row": row, **_window(row, _first(request, row))})


@page
def raw(request: HttpRequest, actor: Actor, trajectory_id: Any) -> HttpResponse:
    with trajectory_rows(actor, trajectory_id):
        row = trajectory_get(actor, trajectory_id)
    names = [field.attname for field in row._meta.concrete_fields]
    body = {name: getattr(row, name) for name in names if name not in ("month", "organization_id", "n_steps")}
    return JsonResponse(body, json_dumps_params={"indent": 2, "ensure_ascii": False})


@page
def group(request: HttpRequest, actor: Actor, job_id: Any, iteration: int, scenario: int) -> HttpResponse:
    """A group's rollouts as columns, its steps as rows, with what the update made of each."""
    job = job_get(actor, job_id)
    found = GroupRecord.objects.visible_to(actor).filter(job_id=job.id, iteration=iteration, scenario=scenario).first()
    with job_rows(actor, job.id, iteration=iteration, scenario=scenario) as archive:
        rows = list(
            trajectories_visible(actor)
            .filter(job_id=job.id, purpose="training", iteration=iteration, scenario=scenario)
            .order_by("rollout")
        )
    if not rows:
        raise Missing(f"There is no group of query {scenario} in iteration {iteration} of this job.")
    near = GroupRecord.objects.filter(job_id=job.id, scenario=scenario)
    context = {
        "job": job,
        "archive": archive,
        "group": found,
        "query": rows[0].query,
        "iteration": iteration,
        "scenario": scenario,
        "earlier": near.filter(iteration__lt=iteration).order_by("-iteration").first(),
        "later": near.filter(iteration__gt=iteration).order_by("iteration").first(),
        **_side_by_side(rows, advantages_for(rows)),
    }
    return render(request, "trajectories/group.html", context)


@page
def compare(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Two trajectories side by side, e.g. those of both arms of an evaluation."""
    names = [request.GET.get(name, "") for name in ("a", "b")]
    with trajectory_rows(actor, *names) as archive:
        rows = [trajectory_get(actor, name) for name in names]
    context = {
        "query": rows[0].query,
        "archive": archive,
        "same": rows[0].query == rows[1].query,
        **_side_by_side(rows, advantages_for(rows)),
    }
    return render(request, "trajectories/compare.html", context)


def _side_by_side(rows: Sequence[TrajectoryRecord], learned: Mapping[uuid.UUID, Mapping[str, Any]]) -> dict[str, Any]:
    found: list[Column] = best_first(columns(rows, learned))
    scale = max((abs(value) for column in found for value in column.advantages), default=0.0)
    lines = aligned(found, limit=MAX_ALIGNED_STEPS)
    return {
        "columns": found,
        "lines": lines,
        "scale": scale,
        "parting": None if (at := first_parting(found)) is None else at + 1,
        "cut": any(c.row.n_steps > MAX_ALIGNED_STEPS for c in found),
    }


def _shape(request: HttpRequest) -> dict[str, Any]:
    """The view of the steps: ``?view=``."""
    shape = request.GET.get("view", "")
    return {"shape": shape if shape in SHAPES else "steps", "shapes": SHAPES.items()}


def _messages(actor: Actor, row: TrajectoryRecord) -> dict[str, Any]:
    """The model's messages before all steps, and its answer beside the expected one."""
    first = next(iter(steps_between(row, 0, 0)), None)
    last = next(iter(steps_between(row, row.n_steps - 1, row.n_steps - 1)), None)
    messages = first_messages(row, first)
    return {
        "prompt": messages,
        "lessons": lessons_in(actor, row, messages),
        "sentence": verdict_sentence(row, last),
    }


def _first(request: HttpRequest, row: TrajectoryRecord) -> int:
    """The first step of the window that ``?step=`` (counted from 1) asks for."""
    try:
        step = int(request.GET.get("step", "1"))
    except ValueError:
        step = 1
    return max(0, min(step - 1, max(row.n_steps - 1, 0)))


def _window(row: TrajectoryRecord, first: int) -> dict[str, Any]:
    found = steps_between(row, first, first + WINDOW - 1)
    learned = advantages_for([row]).get(row.id)
    each = learned["step_advantages"] if learned else []
    asked = settings_of(found if first == 0 else [*steps_between(row, 0, 0), *found])
    shown = [
        {
            "number": first + i + 1,
            "advantage": each[first + i] if first + i < len(each) else None,
            "differs": differing(step, asked),
            **step,
        }
        for i, step in enumerate(found)
    ]
    end = first + len(shown)
    return {
        "steps": shown,
        "asked": asked,
        "entries": folded(shown),
        "scale": max((abs(value) for value in each), default=0.0),
        "first": first + 1,
        "next_step": end + 1 if end < row.n_steps else None,
        "earlier_step": max(1, first + 1 - WINDOW) if first > 0 else None,
    }
