"""Annotations of jobs by users: a note, tags and comments for all, pins for oneself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.notices.mentions import mention_notify
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from training.models import JobComment, JobPin, TrainingRun

NOTE: Final = 2_000  # characters of a note, and of a comment
TAG: Final = 40
TAGS: Final = 20
COMMENTS: Final = 500  # of a job
PINS: Final = 25  # of a person: a page of the list


@transaction.atomic
def job_describe(
    who: Any, run: TrainingRun, *, note: str | None = None, tags: Sequence[str] | None = None
) -> TrainingRun:
    """Sets the note, the tags or both; what is None stays.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the note or a tag is too long, or there are too many tags.
    """
    require(who, "agent.edit", run.organization_id)
    wanted: dict[str, Any] = {}
    if note is not None:
        wanted["note"] = _text(note, "note", "A note")
    if tags is not None:
        wanted["tags"] = _tags(tags)
    before = {name: getattr(run, name) for name in wanted}
    if before == wanted:
        return run
    for name, value in wanted.items():
        setattr(run, name, value)
    run.save(update_fields=[*wanted])
    record(who, "job.described", run, before=before, after=wanted)
    return run


@transaction.atomic
def comment_add(who: Any, run: TrainingRun, text: str) -> JobComment:
    """Raises:
    Missing, Forbidden: the actor may not.
    Invalid: it is empty or too long, or the job has too many."""
    require(who, "agent.edit", run.organization_id)
    text = _checked(text)
    if run.comments.count() >= COMMENTS:
        raise Invalid(f"A job has at most {COMMENTS} comments.")
    comment = JobComment.objects.create(
        organization_id=run.organization_id, run=run, author=Actor.of(who).user, text=text
    )
    record(who, "job.commented", run, after={"comment": str(comment.pk)})
    _notify_mentioned(who, run, comment)
    return comment


@transaction.atomic
def comment_edit(who: Any, run: TrainingRun, comment_id: UUID, text: str) -> JobComment:
    """Puts another text in the place of the comment's, which says from then on that it was edited.

    Raises:
        Missing: there is no such comment.
        Forbidden: it is another person's.
        Invalid: the text is empty or too long.
    """
    comment = _own_comment(who, run, comment_id)
    text = _checked(text)
    if text == comment.text:
        return comment
    former, comment.text, comment.edited_at = comment.text, text, timezone.now()
    comment.save(update_fields=["text", "edited_at"])
    record(who, "job.comment_edited", run, after={"comment": str(comment_id)})
    _notify_mentioned(who, run, comment, former)
    return comment


@transaction.atomic
def comment_remove(who: Any, run: TrainingRun, comment_id: UUID) -> None:
    """Raises:
    Missing: there is no such comment.
    Forbidden: it is another person's."""
    _own_comment(who, run, comment_id).delete()
    record(who, "job.comment_removed", run, before={"comment": str(comment_id)})


@transaction.atomic
def job_pin(who: Any, run: TrainingRun) -> None:
    """Puts the job first in the person's own list. Pinned already: nothing happens.

    Raises:
        Invalid: the person has pinned too many.
    """
    require(who, "view", run.organization_id)
    user = Actor.of(who).user
    if JobPin.objects.filter(person=user).exclude(run=run).count() >= PINS:
        raise Invalid(f"You have pinned {PINS} jobs already. Take a pin off first.")
    _, new = JobPin.objects.get_or_create(person=user, run=run, defaults={"organization_id": run.organization_id})
    if new:
        record(who, "job.pinned", run)


@transaction.atomic
def job_unpin(who: Any, run: TrainingRun) -> None:
    require(who, "view", run.organization_id)
    gone, _ = JobPin.objects.filter(person=Actor.of(who).user, run=run).delete()
    if gone:
        record(who, "job.unpinned", run)


def _own_comment(who: Any, run: TrainingRun, comment_id: UUID) -> JobComment:
    require(who, "agent.edit", run.organization_id)
    comment: JobComment | None = run.comments.filter(pk=comment_id).first()
    if comment is None:
        raise Missing("There is no such comment.")
    if comment.author_id != Actor.of(who).user.pk:
        raise Forbidden("This comment is another person's. Its author may change or remove it.")
    return comment


def _notify_mentioned(who: Any, run: TrainingRun, comment: JobComment, former: str = "") -> None:
    page = reverse("training:job", args=[run.pk])
    mention_notify(
        who,
        run.organization_id,
        comment.text,
        former=former,
        place=f"a comment on {run.job}",
        path=f"{page}#comment-{comment.pk}",
    )


def _checked(given: str) -> str:
    text = _text(given, "text", "A comment")
    if not text:
        raise Invalid("Write a comment first.", fields={"text": "Write something."})
    return text


def _text(given: str, name: str, what: str) -> str:
    """A form sends line ends as two characters, which a person has not typed."""
    text = given.replace("\r\n", "\n").strip()
    if len(text) > NOTE:
        raise Invalid(f"{what} has at most {NOTE:,} characters.", fields={name: f"At most {NOTE:,} characters."})
    return text


def _tags(given: Sequence[str]) -> list[str]:
    tags = sorted({" ".join(one.split()) for one in given} - {""})
    if any(len(tag) > TAG for tag in tags) or len(tags) > TAGS:
        message = f"A job has at most {TAGS} tags of at most {TAG} characters."
        raise Invalid(message, fields={"tags": message})
    return tags
