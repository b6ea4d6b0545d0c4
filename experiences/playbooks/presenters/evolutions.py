"""Outcomes of a playbook's evolutions, for its page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from django.conf import settings

from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Unavailable
from agentcore_site.tenancy.actors import Actor
from experiences.agents.evolution_settings import evolution_settings
from experiences.lessons.presenters import LessonVerdict
from experiences.models import Agent, Evolution, Playbook, Question
from experiences.playbooks.evolution.costs import evolution_worst_case_micros
from experiences.playbooks.presenters.items import taken
from experiences.playbooks.presenters.reviews import proposals
from experiences.playbooks.selectors import (
    agent_holder,
    dead_letters,
    evolution_spent_micros,
    evolutions_visible,
    queue_position,
)

SHOWN: Final = 10
REFLECTED: Final = "insights"  # the stage of such questions


def evolution_tab(actor: Actor, playbook: Playbook) -> dict[str, Any]:
    """Context of the Evolution tab: counts, the job that holds the agent, and evolutions that run, failed or ended."""
    own = evolution_settings(playbook.agent)
    holder = agent_holder(playbook.agent_id)
    mine = evolutions_visible(actor).filter(playbook=playbook)
    running = mine.filter(job=holder).first() if holder is not None and holder.kind == "evolution" else None
    return {
        "running": running,
        "at_work": _at_work(running) if running else "",
        "position": queue_position(running.job) if running and running.job.status == Status.QUEUED else None,
        "letters": list(dead_letters(actor).filter(playbook=playbook)[:SHOWN]),
        "ended": [
            {"evolution": evolution, "taken": taken(evolution)}
            for evolution in mine.filter(settled_at__isnull=False).order_by("-settled_at")[:SHOWN]
        ],
        "spent_micros": evolution_spent_micros(playbook.agent),
        "own": own,
        "most_micros": _most_micros(playbook.agent),
        "missing": max(1, own.frequency - playbook.pending),
        "site_on": settings.ACE_ENABLED,
    }


def _most_micros(agent: Agent) -> int | None:
    """The highest cost of an evolution; None where there is no model to ask."""
    try:
        return evolution_worst_case_micros(agent)
    except Unavailable:
        return None


def evolution_words(evolution: Evolution) -> LessonVerdict:
    """The outcome of an evolution, in a sentence."""
    job = evolution.job
    if evolution.settled_at is not None:
        return LessonVerdict(f"It {taken(evolution)}{_moved(evolution)}.", "good" if _is_new(evolution) else "")
    if job.status == Status.FAILED:
        return LessonVerdict("It failed, and nothing was changed. Trying again makes new model calls.", "bad")
    if job.status == Status.CANCELLED:
        return LessonVerdict("It was cancelled, and nothing was changed.")
    if job.status == Status.PAUSED:
        return LessonVerdict("It waits; nothing was changed yet.", "warn")
    if job.status == Status.QUEUED:
        return LessonVerdict(f"It waits for a worker: number {queue_position(job)} of the evolutions that wait.")
    return LessonVerdict(_at_work(evolution))


def _at_work(evolution: Evolution) -> str:
    if evolution.job.progress >= 0.8:
        return "It ends."
    most, done = evolution_settings(evolution.agent).reflection_rounds, len(rounds_of(evolution))
    if not most:
        return "A model reads the last executions and suggests changes."
    ended = f"; {done} of at most {most} round{'' if most == 1 else 's'} of reflection ended" if done else ""
    return f"A reflector reads the last executions, and then changes are suggested{ended}."


@dataclass(frozen=True)
class Round:
    """One round of reflection, as its page shows it. ``insights`` is None where the answer could not be used; those of
    the last round that wrote any are ``current``: the curator was shown them."""

    number: int
    model: str
    cost_micros: int
    tokens: int
    calls: int
    insights: list[dict[str, Any]] | None
    unchanged: bool
    reason: str
    current: bool = False


def rounds_of(evolution: Evolution) -> list[Round]:
    """The reflector's answers in the last try, the first round first."""
    rows = list(Question.objects.filter(job_id=evolution.job_id, stage=REFLECTED).order_by("id"))
    last = max((_try(row) for row in rows), default=0)
    n = len(evolution.trace_ids)
    found = [_round(row, n) for row in sorted(rows, key=lambda row: row.iteration) if _try(row) == last]
    current = max((one.number for one in found if one.insights), default=0)
    return [replace(one, current=one.number == current) for one in found]


def _try(row: Question) -> int:
    return int(row.key.split("/")[1])


def _round(row: Question, n: int) -> Round:
    """``n``: how many executions were read; a model may name others."""
    reply = row.reply if row.usable and isinstance(row.reply, dict) else None
    return Round(
        number=row.iteration,
        model=row.model,
        cost_micros=row.cost_micros,
        tokens=row.tokens,
        calls=row.calls,
        insights=None if reply is None else [_of_those(one, n) for one in reply.get("insights", [])],
        unchanged=bool(reply and reply.get("unchanged")),
        reason=row.reason,
    )


def _of_those(insight: dict[str, Any], n: int) -> dict[str, Any]:
    return insight | {"executions": [number for number in insight.get("executions", []) if 1 <= number <= n]}


def suggestions(evolution: Evolution) -> list[Any]:
    """The model's proposals, each with its outcome."""
    return proposals(list(evolution.job.deltas.order_by("created_at", "id")))


def _is_new(evolution: Evolution) -> bool:
    return evolution.version_after != evolution.version_before


def _moved(evolution: Evolution) -> str:
    if not _is_new(evolution):
        return f"; the playbook stayed at version {evolution.version_before}"
    return f"; the playbook went from version {evolution.version_before} to {evolution.version_after}"
