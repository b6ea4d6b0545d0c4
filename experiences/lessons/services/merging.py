"""Merging of equal lessons: two jobs of one agent that wrote down the same sentence taught it one thing."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, Final

from django.db import transaction

from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.lessons.selectors import SAME
from experiences.lessons.services.lessons import (
    LONGEST_WHY,
    check_version,
    cleaned_reason,
    experience_log,
    experience_remember,
    experience_update,
)
from experiences.lessons.stamps import stamp_fault
from experiences.models import Experience, ExperienceStatus

IN_CONTEXTS: Final = (ExperienceStatus.PROPOSED, ExperienceStatus.ACTIVE)


def equal_lessons(experience: Experience) -> list[Experience]:
    """Lessons of the same agent and domain with the same sentence, including this one, that may be in a context; newest
    first."""
    same = {name: getattr(experience, name) for name in SAME}
    rows = Experience.objects.filter(**same, status__in=IN_CONTEXTS)
    return list(rows.select_related("job", "agent__prompt_pack").order_by("-created_at", "-pk"))


@transaction.atomic
def experience_merge(actor: Actor, experience: Experience, *, why: str = "", version: int | None = None) -> Experience:
    """Makes one lesson of all that say the same to the agent, and gives that one back.

    The newest keeps its handle and its own reason. Rollouts that saw them add up, as do the trajectories that taught
    them; their effects are averaged by precision (the fixed effect of a meta-analysis); it is active if one was. The
    others are taken out, with a line of history that names it. ``version`` is that of ``experience``, as it was read.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: no other says the same, one moved meanwhile, or the newest's stamp does not fit.
    """
    require(actor, "agent.edit", experience.organization_id)
    check_version(experience, version)
    found = equal_lessons(experience)
    if len(found) < 2 or experience.pk not in {one.pk for one in found}:
        raise Conflict("No other proposed or active lesson says the same, so there is nothing to merge.")
    newest, *others = found
    if fault := stamp_fault(newest):
        raise Conflict(f"{fault} Edit {newest.handle} to vouch for its text, then try again.")
    handles = [one.handle for one in others]
    reason = cleaned_reason(why) or f"the same sentence as {', '.join(handles)}"[:LONGEST_WHY]
    before = {"rollouts": newest.rollouts, "status": newest.status}
    experience_update(newest, _together(newest, others))
    experience_remember(actor, newest, "merged", newest.summary, newest.summary, reason)
    after = {"rollouts": newest.rollouts, "status": newest.status, "merged": handles}
    experience_log(actor, newest, "merged", before, after)
    for one in others:
        was = one.status
        experience_update(one, {"status": ExperienceStatus.PRUNED})
        experience_remember(actor, one, "pruned", was, one.status, f"merged into {newest.handle}")
        experience_log(actor, one, "pruned", {"status": was}, {"status": one.status, "merged_into": newest.handle})
    return newest


def _together(newest: Experience, others: Sequence[Experience]) -> dict[str, Any]:
    # One that was merged before and brought back is counted already.
    fresh = [one for one in others if one.handle not in newest.parents]
    effect, error = _average([newest, *fresh])
    taught = dict.fromkeys(key for experience in (newest, *others) for key in experience.taught_by)
    return {
        "status": ExperienceStatus.ACTIVE
        if any(experience.status == ExperienceStatus.ACTIVE for experience in (newest, *others))
        else newest.status,
        "rollouts": newest.rollouts + sum(experience.rollouts for experience in fresh),
        "effect": effect,
        "effect_error": error,
        "taught_by": list(taught),
        "parents": list(dict.fromkeys([*newest.parents, *(experience.handle for experience in others)])),
    }


def _average(rows: Sequence[Experience]) -> tuple[float | None, float | None]:
    """Effects with their standard errors, weighted by 1 / error²; of those that were measured."""
    known = [(row.effect, row.effect_error) for row in rows if row.effect is not None and row.effect_error]
    if not known:
        return rows[0].effect, rows[0].effect_error
    weights = [1 / error**2 for _, error in known]
    mean = sum(weight * effect for weight, (effect, _) in zip(weights, known, strict=True)) / sum(weights)
    return mean, 1 / sqrt(sum(weights))
