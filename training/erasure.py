"""Where personal data may stand in training: what runs began with, what epochs proposed, what checkpoints would tell.

Jobs that run on what would be erased hold it in memory, and must end first.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from agentcore_site.errors import Conflict
from agentcore_site.jobs.models import ACTIVE
from agentcore_site.tenancy.erasure import Finding, holding, places
from experiences.erasure import rows_about
from experiences.library.lessons import ERASED
from training.models import Epoch, PolicyCheckpoint, TrainingRun
from training.services.checkpoints import Damaged, checkpoint_load, checkpoint_rewrite


@places.register("jobs at work on it")
def jobs(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """Raises:
    Conflict: there is one."""
    datasets = {row.dataset_id for row in rows_about(organization_id, words)}
    busy = TrainingRun.objects.filter(dataset_id__in=datasets, job__status__in=ACTIVE).select_related("job")
    names = [str(run.job) for run in busy[:3]]
    if names:
        raise Conflict(f"{', '.join(names)} still work with this data. Let them end, or cancel them, then try again.")
    return Finding(0, lambda: None)


@places.register("what runs began with")
def starting_libraries(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    found = list(
        holding(TrainingRun.objects.filter(organization_id=organization_id), words, texts=(), values=("library",))
    )

    def erase() -> None:
        for run in found:
            kept = [one for one in run.library if not _holds(one, words)]
            TrainingRun.objects.filter(pk=run.pk).update(library=kept)

    return Finding(len(found), erase)


@places.register("reports of epochs")
def epochs(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    found = list(
        holding(Epoch.objects.filter(run__organization_id=organization_id), words, texts=(), values=("changes",))
    )

    def erase() -> None:
        for epoch in found:
            changes = [one | {"text": ERASED, "why": ERASED} if _holds(one, words) else one for one in epoch.changes]
            Epoch.objects.filter(pk=epoch.pk).update(changes=changes)

    return Finding(len(found), erase)


@places.register("checkpoints that tell of it")
def contexts(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """The lessons in checkpoints of agents that are told something. The checkpoint stays, without the text."""
    rows = PolicyCheckpoint.objects.filter(organization_id=organization_id, run__isnull=False).select_related("run")
    rows = rows.exclude(run__policy_kind="action")
    found = [(row, data) for row in rows.iterator(chunk_size=20) if (data := _without(row, _naming(words))) is not None]

    def erase() -> None:
        for row, data in found:
            checkpoint_rewrite(row, data)

    return Finding(len(found), erase, "Checkpoints were changed: they tell nobody any more what was erased.")


def _without(checkpoint: PolicyCheckpoint, gone: Callable[[str], bool]) -> bytes | None:
    """The checkpoint's bytes without the lessons; None where it has none of them, or can't be read any more."""
    # Imported here: every process registers this place, and few ever load a policy.
    from training.policies.archive import CorruptState, nested, pack, under, unpack
    from training.policies.context import without_lessons

    try:
        state = unpack(checkpoint_load(checkpoint))
    except (Damaged, CorruptState):
        return None
    policy = under("policy", state)
    cleaned = without_lessons(policy, gone) if policy.get("kind") == "context" else None
    return None if cleaned is None else pack(state | nested("policy", cleaned))


def _naming(words: Sequence[str]) -> Callable[[str], bool]:
    folded = [word.casefold() for word in words]
    return lambda text: any(word in text.casefold() for word in folded)


def _holds(value: Any, words: Sequence[str]) -> bool:
    named = _naming(words)
    if isinstance(value, dict):
        return any(_holds(one, words) for one in value.values())
    if isinstance(value, list):
        return any(_holds(one, words) for one in value)
    return isinstance(value, str) and named(value)
