"""Reads of annotations, scoped to the actor."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final, TypedDict

from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.expressions import RawSQL

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from experiences.models import Annotation, TrajectoryRecord

LABELS_OFFERED: Final = 30


def annotations_visible(actor: Actor) -> QuerySet[Annotation]:
    """Raises:
    Forbidden: the actor's role does not read them."""
    require_somewhere(actor, "data.view")
    return Annotation.objects.visible_to(actor).select_related("author")


def annotation_get(actor: Actor, annotation_id: Any) -> Annotation:
    found = annotations_visible(actor).filter(id=as_uuid(annotation_id, "annotation")).first()
    if found is None:
        raise Missing(f"There is no annotation {annotation_id}.")
    return found


def annotations_of(actor: Actor, row: TrajectoryRecord) -> list[Annotation]:
    """Annotations of one trajectory, the oldest first."""
    return list(annotations_visible(actor).filter(month=row.month, trajectory_id=row.pk))


def annotations_by_trajectory(keys: Iterable[tuple[date, uuid.UUID]]) -> dict[uuid.UUID, list[Annotation]]:
    """Annotations of several trajectories (month and id) that the caller may see, the oldest first. One query, by an
    index that begins with the month."""
    found: dict[uuid.UUID, list[Annotation]] = {}
    asked = list(keys)
    # One text: a thousand parameters take longer to be written into the statement than to be looked up.
    ids = RawSQL("SELECT unnest(%s::uuid[])", [f"{{{','.join(id.hex for _, id in asked)}}}"])
    rows = Annotation.objects.filter(month__in={month for month, _ in asked}, trajectory_id__in=ids)
    for row in rows.select_related("author"):
        found.setdefault(row.trajectory_id, []).append(row)
    return found


class ExportedAnnotation(TypedDict):
    """An annotation as an export has it with its trajectory. ``step`` None: of the whole trajectory."""

    step: int | None
    label: str
    score: float | None
    comment: str
    answer: str
    by: str
    created_at: str


def as_noted(annotation: Annotation) -> ExportedAnnotation:
    return {
        "step": annotation.step,
        "label": annotation.label,
        "score": annotation.score,
        "comment": annotation.comment,
        "answer": annotation.answer,
        "by": annotation.by,
        "created_at": annotation.created_at.isoformat(),
    }


def labels_used(actor: Actor) -> Sequence[str]:
    """The labels of the actor's organisations, by name: the offer of a filter and of a form."""
    rows = Annotation.objects.visible_to(actor).exclude(label="").order_by("label")
    return list(rows.values_list("label", flat=True).distinct()[:LABELS_OFFERED])


def annotated(rows: QuerySet[TrajectoryRecord], **wanted: Any) -> QuerySet[TrajectoryRecord]:
    """The trajectories with an annotation that has all of ``wanted``."""
    mine = Annotation.objects.filter(month=OuterRef("month"), trajectory_id=OuterRef("id"), **wanted)
    return rows.filter(Exists(mine))


def not_annotated(rows: QuerySet[TrajectoryRecord]) -> QuerySet[TrajectoryRecord]:
    return rows.exclude(Exists(Annotation.objects.filter(month=OuterRef("month"), trajectory_id=OuterRef("id"))))
