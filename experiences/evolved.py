"""How a playbook's evolutions went, as people read it."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings

from agentcore_site.jobs.models import Status
from agentcore_site.tenancy.actors import Actor
from experiences.evolution_settings import evolution_settings
from experiences.learned import Verdict
from experiences.models import Evolution, Playbook
from experiences.reviewing import proposals
from experiences.selectors_playbooks import (
    agent_holder,
    dead_letters,
    evolution_spent,
    evolutions_visible,
    queue_position,
)
from experiences.told import taken

SHOWN: Final = 10


def evolution_tab(actor: Actor, playbook: Playbook) -> dict[str, Any]:
    """The counts, who holds the agent, what runs, what failed, and what there was."""
    own = evolution_settings(playbook.agent)
    holder = agent_holder(playbook.agent_id)
    mine = evolutions_visible(actor).filter(playbook=playbook)
    running = mine.filter(job=holder).first() if holder is not None and holder.kind == "evolution" else None
    return {
        "running": running,
        "position": queue_position(running.job) if running and running.job.status == Status.QUEUED else None,
        "letters": list(dead_letters(actor).filter(playbook=playbook)[:SHOWN]),
        "ended": [
            {"evolution": one, "taken": taken(one)}
            for one in mine.filter(settled_at__isnull=False).order_by("-settled_at")[:SHOWN]
        ],
        "spent": evolution_spent(playbook.agent),
        "own": own,
        "missing": max(1, own.frequency - playbook.pending),
        "site_on": settings.ACE_ENABLED,
    }


def evolution_words(evolution: Evolution) -> Verdict:
    """What became of one evolution, in a sentence."""
    job = evolution.job
    if evolution.settled_at is not None:
        return Verdict(f"It {taken(evolution)}{_moved(evolution)}.", "good" if _is_new(evolution) else "")
    if job.status == Status.FAILED:
        return Verdict("It failed, and nothing was changed. Trying again asks the model anew.", "bad")
    if job.status == Status.CANCELLED:
        return Verdict("It was cancelled, and nothing was changed.")
    if job.status == Status.PAUSED:
        return Verdict("It waits; nothing was changed yet.", "warn")
    if job.status == Status.QUEUED:
        return Verdict(f"It waits for a worker: number {queue_position(job)} of the evolutions that wait.")
    return Verdict("A model reads the last executions and suggests changes." if job.progress < 0.8 else "It ends.")


def suggestions(evolution: Evolution) -> list[Any]:
    """What the model proposed, with what became of each."""
    return proposals(list(evolution.job.deltas.order_by("created_at", "id")))


def _is_new(evolution: Evolution) -> bool:
    return evolution.version_after != evolution.version_before


def _moved(evolution: Evolution) -> str:
    if not _is_new(evolution):
        return f"; the playbook stayed at version {evolution.version_before}"
    return f"; the playbook went from version {evolution.version_before} to {evolution.version_after}"
