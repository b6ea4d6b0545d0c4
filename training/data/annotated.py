"""Datasets made of annotated trajectories: each query with the answer that a person, or a good trajectory, gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from agentcore_site.lib.errors import Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.agents.selectors import dataset_rows
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Annotation, Dataset, TrajectoryRecord
from experiences.models.trajectories import DatasetOrigin
from experiences.trajectories.annotations.selectors import annotations_by_trajectory
from experiences.trajectories.archive.reading import job_rows, trajectory_rows
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.presenters.first_messages import answered_by
from experiences.trajectories.selectors import trajectories_visible, trajectory_get
from training.data.uploads import clean_rows
from training.splits import normalized

MOST: Final = 500  # trajectories at once: their steps are read for the answers
GOOD: Final = ("good", "correct", "right")  # labels that say so of the trajectory's own answer
PERSON: Final = "person"
TRAJECTORY: Final = "trajectory"


@dataclass
class Picked:
    """Annotated trajectories that become rows: by query, the newest annotation first. ``without``: unsuccessful
    trajectories without a correct answer by a person. ``more``: whether the filter has more than were read."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    without: int = 0
    more: bool = False
    agents: set[UUID] = field(default_factory=set)


def picked(actor: Actor, filters: Mapping[str, Any], *, answer: str = "") -> Picked:
    """The annotated trajectories that pass the filters (names of ``TrajectoryFilters``), or the one that ``trajectory``
    names, with their answers. ``answer`` is a person's, for that one.

    Raises:
        Missing: the trajectory, job or agent is not there. Invalid: a filter is wrong.
    """
    asked = {name: value for name, value in filters.items() if value not in (None, "")}
    if one := asked.pop("trajectory", None):
        with trajectory_rows(actor, one):
            rows, more = [trajectory_get(actor, one)], False
    else:
        with job_rows(actor, asked.get("job")):
            found = trajectories_filtered(trajectories_visible(actor), actor, asked | {"annotated": "true"})
            rows = list(found.order_by("-created_at", "-id")[: MOST + 1])
        rows, more = rows[:MOST], len(rows) > MOST
    return _picked(rows, more, answer)


def _picked(rows: Sequence[TrajectoryRecord], more: bool, answer: str) -> Picked:
    notes = annotations_by_trajectory((row.month, row.pk) for row in rows)
    result, known = Picked(more=more), set()
    for row in rows:
        text, source = _expected(row, notes.get(row.pk, ()), answer)
        if not text:
            result.without += 1
        elif (query := normalized(row.query)) not in known:
            known.add(query)
            result.agents.add(row.agent_id)
            about = {"trajectory": str(row.pk), "answer_from": source}
            result.rows.append({"query": row.query, "expected_outcome": {"answer": text}, "metadata": about})
    return result


def _expected(row: TrajectoryRecord, notes: Iterable[Annotation], answer: str) -> tuple[str, str]:
    """The correct answer and who gave it."""
    given = [note.answer for note in notes if note.answer]
    if answer or given:
        return answer or given[-1], PERSON
    good = row.success or any(note.label.casefold() in GOOD for note in notes)
    return (str(answered_by(row, row.steps)) if good else ""), TRAJECTORY


def dataset_from_annotated(
    actor: Actor,
    filters: Mapping[str, Any],
    *,
    answer: str = "",
    name: str = "",
    follows: Dataset | None = None,
) -> Dataset:
    """A dataset of these trajectories, or with ``follows`` that dataset's next version: its rows with the new ones, of
    which one with a query that it has already takes that row's place.

    Raises:
        Forbidden, Missing: the actor may not. Invalid: there is no row. Conflict: as ``dataset_create``.
    """
    found = picked(actor, filters, answer=answer.strip())
    if not found.rows:
        message = "None of these trajectories has a correct answer: give one, or label a good one “good”."
        raise Invalid(message, fields={"answer": message})
    owners = Agent.objects.visible_to(actor).filter(pk__in=found.agents)
    organizations = set(owners.values_list("organization_id", flat=True))
    for organization in organizations:
        require(actor, "dataset.edit", organization)
    if follows is not None and organizations != {follows.organization_id}:
        raise Missing(f"There is no dataset {follows.pk} of the organisation of these trajectories.")
    agents = ", ".join(sorted(owners.values_list("name", flat=True)))
    return dataset_create(
        actor,
        name=name or ("" if follows is not None else f"annotated: {agents}"),
        rows=clean_rows(rows_joined(dataset_rows(follows) if follows is not None else [], found.rows)),
        origin=DatasetOrigin.ANNOTATED,
        origin_detail=f"{len(found.rows):,} of {agents}",
        follows=follows,
    )


def rows_joined(before: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows with new ones, of which one with a query that is there already takes that row's place."""
    fresh = {normalized(row["query"]): row for row in new}
    kept = [fresh.pop(normalized(row["query"]), row) for row in before]
    return [*kept, *fresh.values()]
