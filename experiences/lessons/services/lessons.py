"""Writes of lessons by people: remove, restore, approve, edit.

Each is one conditional update of the row that the person saw: if the row changed meanwhile, nothing is written (409).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.learning.lessons.library import line_tokens
from experiences.learning.lessons.states import summary_fault
from experiences.lessons.job_prompt import with_pack
from experiences.lessons.services.review_events import review_notify
from experiences.lessons.stamps import max_words_of, stamp_fault, stamp_of_agent, stamped, stamps
from experiences.models import Experience, ExperienceChange, ExperienceStatus
from experiences.privacy import redact

PROPOSED, ACTIVE, PRUNED, QUARANTINED = (
    ExperienceStatus.PROPOSED,
    ExperienceStatus.ACTIVE,
    ExperienceStatus.PRUNED,
    ExperienceStatus.QUARANTINED,
)
LONGEST_WHY: Final = 2000


@dataclass(frozen=True, slots=True)
class LessonMove:
    """A step between the states of a lesson. ``vouched``: a person vouches for its text, whose stamp has to fit."""

    action: str
    origins: frozenset[str]
    to: str
    vouched: bool = False


RESTORE: Final = LessonMove("restored", frozenset({PRUNED}), PROPOSED, vouched=True)
PRUNE: Final = LessonMove("pruned", frozenset({PROPOSED, ACTIVE}), PRUNED)
QUARANTINE: Final = LessonMove("quarantined", frozenset({PROPOSED, ACTIVE, PRUNED}), QUARANTINED)
APPROVE: Final = LessonMove("approved", frozenset({QUARANTINED}), PROPOSED, vouched=True)
REJECT: Final = LessonMove("rejected", frozenset({QUARANTINED}), PRUNED)
MOVED: Final = frozenset(move.action for move in (RESTORE, PRUNE, QUARANTINE, APPROVE, REJECT))
UNDO_WITHIN: Final = timedelta(minutes=10)
UNMEASURED: Final[dict[str, Any]] = {"effect": None, "effect_error": None, "rollouts": 0}


def experience_restore(
    actor: Actor, experience: Experience, *, why: str = "", version: int | None = None
) -> Experience:
    """Brings a pruned lesson back: it is tried again.

    ``version`` is the one that the person saw, if known.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it is not pruned, it moved meanwhile, or its stamp does not fit.
    """
    return _move(actor, experience, RESTORE, why, version)


def experience_prune(actor: Actor, experience: Experience, *, why: str = "", version: int | None = None) -> Experience:
    """Takes a lesson out; it can be brought back.

    Raises:
        Missing, Forbidden, Conflict: as for ``experience_restore``.
    """
    return _move(actor, experience, PRUNE, why, version)


def experience_quarantine(
    actor: Actor, experience: Experience, *, why: str = "", version: int | None = None
) -> Experience:
    """Keeps a lesson out of all contexts until a person approves it.

    Raises:
        Missing, Forbidden, Conflict: as for ``experience_restore``.
    """
    return _move(actor, experience, QUARANTINE, why, version)


def experience_approve(
    actor: Actor, experience: Experience, *, why: str = "", version: int | None = None
) -> Experience:
    """Lets a lesson out of quarantine: a person vouches for its text, and it is tried.

    Raises:
        Missing, Forbidden, Conflict: as for ``experience_restore``.
    """
    return _move(actor, experience, APPROVE, why, version)


def experience_reject(actor: Actor, experience: Experience, *, why: str = "", version: int | None = None) -> Experience:
    """Refuses a quarantined lesson: it is taken out, and can be brought back.

    Raises:
        Missing, Forbidden, Conflict: as for ``experience_restore``.
    """
    return _move(actor, experience, REJECT, why, version)


@transaction.atomic
def experience_undo(actor: Actor, experience: Experience) -> Experience:
    """Takes the person's own last move of the lesson back: its status is the one before.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: the last change is another person's or a job's, changed the text, or is older than ten minutes.
    """
    require(actor, "agent.edit", experience.organization_id)
    last = experience.changes.order_by("-id").first()
    own = last is not None and last.job_id is None and last.by == Actor.of(actor).name[:150]
    if last is None or not own or last.action not in MOVED or last.after != experience.status:
        raise Conflict("Its last change is no move of yours, so there is nothing to undo. Look at it again.")
    if last.at < timezone.now() - UNDO_WITHIN:
        raise Conflict("Your change is older than ten minutes. Use the actions on the lesson's page.")
    move = LessonMove("undone", frozenset({last.after}), last.before)
    return _move(actor, experience, move, "", None)


@transaction.atomic
def experience_edit(
    actor: Actor, experience: Experience, *, summary: str | None = None, why: str = "", version: int | None = None
) -> Experience:
    """Edits the text of a lesson; its status stays. Measurements of the old text do not apply to the new one.

    The same text again approves it: it is stamped under the prompt for which it holds, or, where it holds for none,
    under the one that the agent has now. ``why``: why it was changed, for the history.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the text is empty, or has too many words.
        Conflict: it moved meanwhile, or the agent's prompt pack was altered.
    """
    require(actor, "agent.edit", experience.organization_id)
    check_version(experience, version)
    before, seen = experience.summary, experience.version
    agent = with_pack(experience.agent, stamps([experience])[experience.pk].pack)
    text = _clean(before if summary is None else summary, max_words_of(agent))
    reason = cleaned_reason(why)
    after = Experience(
        pk=experience.pk, handle=experience.handle, domain=experience.domain, summary=text, version=seen + 1
    )
    changed = UNMEASURED | {
        "summary": text,
        "tokens": line_tokens(text),
        "version": seen + 1,
        "stamp": stamped(after, stamp_of_agent(agent)),
    }
    experience_update(experience, changed)
    experience_remember(actor, experience, "edited", before, text, reason)
    experience_log(actor, experience, "edited", {"version": seen}, {"version": seen + 1})
    return experience


# -- how ---------------------------------------------------------------------------------------------------------------


@transaction.atomic
def _move(actor: Actor, experience: Experience, move: LessonMove, why: str, version: int | None) -> Experience:
    require(actor, "agent.edit", experience.organization_id)
    check_version(experience, version)
    before, reason = experience.status, cleaned_reason(why)
    if before not in move.origins:
        raise Conflict(f"It is {before}, so it can't be {move.action}. Look at it again.")
    if move.vouched and (fault := stamp_fault(experience)):
        raise Conflict(f"{fault} Edit it to vouch for its text, then try again.")
    experience_update(experience, {"status": move.to})
    experience_remember(actor, experience, move.action, before, move.to, reason)
    experience_log(actor, experience, move.action, {"status": before}, {"status": move.to})
    if before == QUARANTINED:
        page = reverse("experiences:experience", args=[experience.pk])
        review_notify(actor, experience.agent, move.action, "a lesson", page=page)
    return experience


def check_version(experience: Experience, version: int | None) -> None:
    if version is not None and version != experience.version:
        raise _moved_meanwhile()


def experience_update(experience: Experience, values: dict[str, Any]) -> None:
    """Changes the row if it still is what was read.

    Raises:
        Conflict: another change was first.
    """
    values = values | {"updated_at": timezone.now()}
    seen = Experience.objects.filter(
        pk=experience.pk, status=experience.status, version=experience.version, stamp=experience.stamp
    )
    if not seen.update(**values):
        raise _moved_meanwhile()
    for name, value in values.items():
        setattr(experience, name, value)


def _moved_meanwhile() -> Conflict:
    return Conflict("This lesson was changed meanwhile, and nothing was done. Look at it again.")


def _clean(summary: str, max_words: int) -> str:
    """The text without personal data.

    Raises:
        Invalid: it is no summary.
    """
    text = redact(summary.strip())
    if fault := unstorable(text) or summary_fault(text, max_words):
        raise Invalid(f"The lesson can't be kept: {fault}.", fields={"summary": _sentence(fault)})
    return text


def cleaned_reason(why: str) -> str:
    text = redact(why.strip())
    if fault := unstorable(text) or ("it is too long" if len(text) > LONGEST_WHY else ""):
        raise Invalid(f"The reason can't be kept: {fault}.", fields={"why": _sentence(fault)})
    return text


def _sentence(fault: str) -> str:
    return f"{fault[0].upper()}{fault[1:]}."


def experience_remember(actor: Actor, experience: Experience, action: str, before: str, after: str, why: str) -> None:
    ExperienceChange.objects.create(
        experience=experience,
        version=experience.version,
        action=action,
        before=before,
        after=after,
        why=why,
        by=Actor.of(actor).name[:150],
    )


def experience_log(
    actor: Actor, experience: Experience, action: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The audit log names the lesson by its handle: its text may be erased one day, and the log may not."""
    named = Experience(pk=experience.pk, organization_id=experience.organization_id, summary=experience.handle)
    record(actor, f"experience.{action}", named, before=before, after=after)
