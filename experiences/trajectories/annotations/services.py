"""Writes of annotations: a person notes, and changes or removes what they noted."""

from __future__ import annotations

import math
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Annotation, TrajectoryRecord
from experiences.privacy import redact

LONGEST_LABEL: Final = 40
LONGEST_TEXT: Final = 4_000
LARGEST_SCORE: Final = 1_000.0
TEXTS: Final = ("label", "comment", "answer")
SAID: Final = (*TEXTS, "score")


@transaction.atomic
def annotation_create(
    actor: Actor,
    trajectory: TrajectoryRecord,
    *,  # the fields of the REST request
    step: int | None = None,
    label: str = "",
    score: float | None = None,
    comment: str = "",
    answer: str = "",
) -> Annotation:
    """Notes something on a trajectory, or on one step of it (from 1). Texts are kept without personal data.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: it says nothing, there is no such step, or it can't be stored (``fields`` says which).
    """
    require(actor, "annotation.edit", trajectory.organization_id)
    if step is not None and not 1 <= step <= trajectory.n_steps:
        raise _wrong("step", f"There is no step {step}: the trajectory has {trajectory.n_steps:,}.")
    values = _clean({"label": label, "score": score, "comment": comment, "answer": answer})
    row = Annotation.objects.create(
        organization_id=trajectory.organization_id,
        agent_id=trajectory.agent_id,
        job_id=trajectory.job_id,
        month=trajectory.month,
        trajectory_id=trajectory.pk,
        step=step,
        author=Actor.of(actor).user,
        **values,
    )
    record(actor, "annotation.created", row, after=_logged(row))
    return row


@transaction.atomic
def annotation_update(actor: Actor, row: Annotation, **given: Any) -> Annotation:
    """Changes what is given of label, score, comment and answer. One's own alone.

    Raises:
        Missing, Forbidden: the actor may not, or another wrote it.
        Invalid: nothing would be left, or it can't be stored.
    """
    _own(actor, row)
    hold_row(row)
    before = _logged(row)
    for name, value in _clean({name: getattr(row, name) for name in SAID} | given).items():
        setattr(row, name, value)
    row.updated_at = timezone.now()
    row.save(update_fields=[*SAID, "updated_at"])
    record(actor, "annotation.changed", row, before=before, after=_logged(row))
    return row


@transaction.atomic
def annotation_delete(actor: Actor, row: Annotation) -> None:
    """Takes one's own annotation back.

    Raises:
        Missing, Forbidden: the actor may not, or another wrote it."""
    _own(actor, row)
    record(actor, "annotation.deleted", row, before=_logged(row))
    row.delete()


def _own(actor: Actor, row: Annotation) -> None:
    require(actor, "annotation.edit", row.organization_id)
    if row.author_id != Actor.of(actor).user.pk:
        raise Forbidden("Another person wrote this. Write an annotation of your own beside it.")


def _clean(values: dict[str, Any]) -> dict[str, Any]:
    found = {name: str(values[name] or "").strip() for name in TEXTS}
    for name, text in found.items():
        longest = LONGEST_LABEL if name == "label" else LONGEST_TEXT
        if fault := unstorable(text) or (f"it has more than {longest:,} characters" if len(text) > longest else ""):
            raise _wrong(name, f"The {name} can't be kept: {fault}.")
    score = values["score"]
    if score is not None and not (math.isfinite(score) and abs(score) <= LARGEST_SCORE):
        raise _wrong("score", f"A score is a number from {-LARGEST_SCORE:,.0f} to {LARGEST_SCORE:,.0f}.")
    if score is None and not any(found.values()):
        raise _wrong("comment", "Give a comment, a label, a score or the correct answer.")
    return {
        **{name: redact(text)[: None if name != "label" else LONGEST_LABEL] for name, text in found.items()},
        "score": score,
    }


def _logged(row: Annotation) -> dict[str, Any]:
    """Values for the audit log, without the texts of a comment or an answer, which an erasure would have to find
    there."""
    about = {"trajectory": str(row.trajectory_id), "step": row.step, "label": row.label, "score": row.score}
    return about | {"comment": len(row.comment), "answer": len(row.answer)}


def _wrong(field: str, message: str) -> Invalid:
    return Invalid(message, fields={field: message})
