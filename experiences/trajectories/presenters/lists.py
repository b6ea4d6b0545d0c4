"""Lists of trajectories with their filters: of everything, or of one job. Shared by the pages that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from agentcore_site.console.pages import Sort, listing, query_params, side_panel
from agentcore_site.encryption.models import DataKey
from agentcore_site.tenancy.actors import Actor
from experiences.trajectories.annotations.selectors import labels_used
from experiences.trajectories.archive.reading import job_rows
from experiences.trajectories.failures import FailureGroup
from experiences.trajectories.filters import OUTCOMES, PURPOSES, TrajectoryFilters
from experiences.trajectories.selectors import trajectories_visible
from experiences.trajectories.step_window import steps_between, trajectory_light

HEAVY: Final = ("steps", "components", "evidence")
LOWEST: Final = -1e9
STEPS_BESIDE: Final = 20
INSIDE: Final = {
    "words": "Words in steps",
    "tool": "Tool used",
    "failed_tool": "Tool that failed",
    "step_error": "Words in errors of steps",
    "label": "Label",
    "min_score": "Score from",
    "max_score": "Score to",
}
SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("best", "highest reward", "known_reward"),
    Sort("worst", "lowest reward", "known_reward", descending=False),
    Sort("longest", "most steps", "n_steps"),
    Sort("cost", "highest cost", "cost_micros", former="dearest"),
    Sort("slowest", "slowest", "duration_ms"),
)


@dataclass(frozen=True)
class InsideFilter:
    """A field of the form that filters by steps and annotations. ``kind``: that of its input."""

    name: str
    title: str
    kind: str
    value: str

    @property
    def chip(self) -> str:
        return f"{self.title}: {self.value[:40]}"


def trajectory_listing(request: HttpRequest, actor: Actor, *, job_id: UUID | None = None) -> dict[str, Any]:
    """Template context of a list: the page that the address asks for and the filters that are set. Rows of a job that
    are archived are read from there."""
    with job_rows(actor, job_id) as archive:
        return {**_listed(request, actor, job_id), "archive": archive}


def _listed(request: HttpRequest, actor: Actor, job_id: UUID | None) -> dict[str, Any]:
    everything = trajectories_visible(actor)
    if job_id is not None:
        everything = everything.filter(job_id=job_id)
    query, outcome, purpose, iteration, agent = query_params(request, "q", "outcome", "purpose", "iteration", "agent")
    given = {"search": query, "outcome": outcome, "purpose": purpose, "iteration": iteration, "agent": agent}
    given["annotated"], given["reason"] = query_params(request, "annotated", "reason")
    given |= dict(zip(INSIDE, query_params(request, *INSIDE), strict=True))
    rows = TrajectoryFilters.on_page(everything, given, actor=actor)
    rows = rows.annotate(known_reward=Coalesce("reward", Value(LOWEST))).defer(*HEAVY)
    found = listing(request, rows, SORTS, one="trajectory", of=everything)
    return {
        **side_panel(request, "trajectories/_panel.html", lambda key: _panel(actor, key)),
        "listing": found,
        "trajectories": found.rows,
        **given,
        "outcomes": [(key, title) for key, (title, _) in OUTCOMES.items()],
        "purposes": PURPOSES,
        "of_job": job_id,
        **_inside(actor, given),
        "reason_title": FailureGroup(given["reason"], 1).title,
        "to_dataset": urlencode({name: value for name, value in {**given, "job": job_id or ""}.items() if value}),
    }


def _inside(actor: Actor, given: Mapping[str, str]) -> dict[str, Any]:
    """The filters on steps and annotations: their fields, and those that are set."""
    fields = [
        InsideFilter(name, title, "number" if "score" in name else "text", given[name])
        for name, title in INSIDE.items()
    ]
    return {
        "fields": fields,
        "inside": [field for field in fields if field.value],
        "step_filters": tuple(INSIDE),
        "labels": labels_used(actor),
        "encrypted": DataKey.objects.visible_to(actor).filter(active=True).exists(),
    }


def _panel(actor: Actor, trajectory_id: str) -> dict[str, Any]:
    """Context of the side panel: the row with its first steps."""
    row = trajectory_light(actor, trajectory_id)
    steps = steps_between(row, 0, STEPS_BESIDE - 1)
    return {"row": row, "steps": steps, "more": row.n_steps - len(steps)}
