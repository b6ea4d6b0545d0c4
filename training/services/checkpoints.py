"""Checkpoints: saved with a digest, verified on load, retained by their validation scores."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, TypedDict
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import ACTIVE, Status
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.object_storage import ObjectsUnavailable, object_save, objects_unnamed_delete
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent
from training.checkpoint_bytes import checkpoint_load
from training.models import PolicyCheckpoint, TrainingRun
from training.signals import checkpoint_saved

log = logging.getLogger(__name__)

FOLDER = "rl-checkpoints"
DATABASE_LIMIT = 10 * 1024 * 1024
KEEP_BEST = 5
KEEP_DAYS = 90


def checkpoint_save(
    run: TrainingRun,
    *,  # the state of the run, as its worker has it
    iteration: int,
    data: bytes,
    metrics: dict[str, Any],
    place: StoredBytes | None = None,
    selection: dict[str, Any] | None = None,
    final: bool = False,
    prune: bool = True,
) -> PolicyCheckpoint:
    """Saves the state after ``iteration``; saving it again replaces nothing. Call it inside a fenced transaction.

    ``place``: of ``place_ahead``; without it, large bytes are stored within the transaction.

    ``prune``: deletes what is not worth keeping any more. A slice saves many, and prunes with its last.

    Bytes go to storage before the row is written: a crash between leaves an object without a row, never a row
    without its object (``strays_delete``).
    """
    # Without the bytes: those of the one before are not read here.
    upto = PolicyCheckpoint.objects.filter(run=run, iteration__lte=iteration).order_by("-iteration")
    before = upto.defer("data", "metrics").first()
    if before is not None and before.iteration == iteration:
        found = before
    else:
        found = PolicyCheckpoint.objects.create(
            organization_id=run.organization_id,
            agent_id=run.agent_id,
            run=run,
            parent=before,
            iteration=iteration,
            sha256=PolicyCheckpoint.digest(data),
            size=len(data),
            metrics=metrics,
            **(place or place_of(run, data)),
        )
    if selection:
        found.validation_score = selection["success_rate"]
        found.validation_low = selection["low"]
        found.save(update_fields=["validation_score", "validation_low"])
        _note_best(run)
    if prune:
        _prune(run)
    checkpoint_id, run_id = found.id, run.job_id
    transaction.on_commit(
        lambda: checkpoint_saved.send(PolicyCheckpoint, checkpoint_id=checkpoint_id, run_id=run_id, final=final),
        robust=True,
    )
    return found


def checkpoint_rewrite(checkpoint: PolicyCheckpoint, data: bytes) -> None:
    """Replaces the bytes of a checkpoint during an erasure, in its transaction: the old content is deleted for good."""
    old = checkpoint.path
    values = {"sha256": PolicyCheckpoint.digest(data), "size": len(data), "data": None, "path": ""}
    PolicyCheckpoint.objects.filter(pk=checkpoint.pk).update(**(values | place_of(checkpoint, data)))
    if old:
        transaction.on_commit(lambda: default_storage.delete(old), robust=True)


def latest(run: TrainingRun) -> PolicyCheckpoint | None:
    return PolicyCheckpoint.objects.filter(run=run).order_by("-iteration").first()


def best(run: TrainingRun) -> PolicyCheckpoint | None:
    """The checkpoint with the highest lower bound on the selection queries, ties to the earlier; without scores, the
    latest."""
    scored = PolicyCheckpoint.objects.filter(run=run, validation_low__isnull=False)
    return scored.order_by("-validation_low", "iteration").first() or latest(run)


def best_of_agent(agent: Agent) -> PolicyCheckpoint | None:
    """The best over all of an agent's runs, by the same measure; without scores, the newest."""
    mine = PolicyCheckpoint.objects.filter(agent=agent, run__isnull=False)
    scored = mine.filter(validation_low__isnull=False).order_by("-validation_low", "iteration")
    return scored.first() or mine.order_by("-created_at").first()


@transaction.atomic
def checkpoint_tag(actor: Actor, checkpoint: PolicyCheckpoint, tags: list[str]) -> PolicyCheckpoint:
    """Sets the tags. A tagged checkpoint is never pruned.

    Raises:
        Invalid: a tag is empty or longer than 40 characters.
    """
    require(actor, "checkpoint.edit", checkpoint.organization_id)
    wanted = sorted({tag.strip() for tag in tags if tag.strip()})
    if any(len(tag) > 40 for tag in wanted):
        raise Invalid("A tag has at most 40 characters.", fields={"tags": "A tag has at most 40 characters."})
    before = {"tags": checkpoint.tags}
    checkpoint.tags = wanted
    checkpoint.save(update_fields=["tags"])
    record(actor, "checkpoint.tagged", checkpoint, before=before, after={"tags": wanted})
    return checkpoint


def checkpoint_download(actor: Actor, checkpoint: PolicyCheckpoint) -> bytes:
    """The bytes, for an actor who may download them; the download is logged."""
    require(actor, "checkpoint.download", checkpoint.organization_id)
    data = checkpoint_load(checkpoint)
    record(actor, "checkpoint.downloaded", checkpoint, after={"sha256": checkpoint.sha256})
    return data


def checkpoint_of(actor: Actor, checkpoint_id: Any) -> PolicyCheckpoint:
    from agentcore_site.jobs.selectors import as_uuid

    found = (
        PolicyCheckpoint.objects.visible_to(actor)
        .select_related("run", "run__job", "agent", "parent")
        .filter(id=as_uuid(checkpoint_id, "checkpoint"))
        .first()
    )
    if found is None:
        raise Missing(f"There is no checkpoint {checkpoint_id}.")
    return found


def job_with_queries(checkpoint: PolicyCheckpoint) -> UUID:
    """The job on whose queries it is evaluated: the one that saved it, or the newest of its agent if it was uploaded.

    Raises:
        Conflict: it was uploaded, and the agent has had no job.
    """
    if checkpoint.run_id is not None:
        return checkpoint.run_id
    newest = TrainingRun.objects.filter(agent_id=checkpoint.agent_id).order_by("-job__created_at").first()
    if newest is None:
        raise Conflict(f"{checkpoint.label} was uploaded, and its agent has had no job with queries to evaluate it on.")
    return newest.pk


def retention() -> int:
    """Deletes the expired ones. Returns how many."""
    gone = expired()
    for checkpoint in gone:
        _delete(checkpoint)
    return len(gone)


def expired() -> list[PolicyCheckpoint]:
    """Untagged checkpoints older than ninety days, but none that ``_kept`` names."""
    old = timezone.now() - timedelta(days=KEEP_DAYS)
    kept: dict[UUID, set[UUID]] = {}
    found = []
    for checkpoint in PolicyCheckpoint.objects.filter(created_at__lt=old, tags=[]).defer("data"):
        agent_id = checkpoint.agent_id
        if agent_id not in kept:
            kept[agent_id] = _kept(agent_id)
        if checkpoint.id not in kept[agent_id]:
            found.append(checkpoint)
    return found


def _kept(agent_id: UUID) -> set[UUID]:
    """Checkpoints of an agent that are never deleted automatically: its best five and its newest, the best of each run,
    released (also deployed) and promoted ones, those that a run started from, and those that an active run resumes
    from."""
    mine = PolicyCheckpoint.objects.filter(agent_id=agent_id)
    runs = TrainingRun.objects.filter(agent_id=agent_id)
    scored = mine.filter(validation_low__isnull=False).order_by("-validation_low", "iteration")
    going = mine.filter(run__job__status__in=(*ACTIVE, Status.FAILED)).order_by("run_id", "-iteration")
    return {
        *scored.values_list("id", flat=True)[:KEEP_BEST],
        *mine.order_by("-created_at").values_list("id", flat=True)[:1],
        *(key for key in runs.values_list("best_checkpoint_id", flat=True) if key is not None),
        *mine.filter(Q(releases__isnull=False) | Q(promoted_at__isnull=False)).values_list("id", flat=True),
        *runs.filter(starts_from__isnull=False).values_list("starts_from", flat=True),
        *going.distinct("run_id").values_list("id", flat=True),
    }


class StoredBytes(TypedDict, total=False):
    """The column that holds the bytes of a checkpoint: they themselves, or their path in the object storage."""

    data: bytes
    path: str


def place_of(owner: TrainingRun | PolicyCheckpoint, data: bytes) -> StoredBytes:
    """Columns that hold the bytes of a run or of a checkpoint without a run. While the storage is unavailable, the
    database holds large ones too (``checkpoints_move``)."""
    if len(data) <= DATABASE_LIMIT:
        return {"data": data}
    try:
        return {"path": object_save(_name(owner), data)}
    except ObjectsUnavailable as error:
        log.warning("a checkpoint of %s bytes stays in the database: %s", len(data), error)
        return {"data": data}


def place_ahead(run: TrainingRun, iteration: int, data: bytes) -> StoredBytes:
    """``place_of`` before the transaction of ``checkpoint_save``, so that no row is locked meanwhile: an object storage
    that falls silent in the middle of an upload takes minutes. Empty: this iteration is saved already."""
    if PolicyCheckpoint.objects.filter(run=run, iteration=iteration).exists():
        return {}
    return place_of(run, data)


def _name(owner: TrainingRun | PolicyCheckpoint) -> str:
    return f"{FOLDER}/{owner.organization_id}/{owner.pk}/{uuid7()}.bin"


def strays_delete() -> int:
    """Deletes objects that no checkpoint names: of a save that was rolled back, or whose deletion met a storage that
    was away. Returns how many. Folders of organisations that this database does not know stay: another installation
    may share the bucket."""
    named = set(PolicyCheckpoint.objects.exclude(path="").values_list("path", flat=True))
    known = Organization.objects.values_list("pk", flat=True)
    return sum(objects_unnamed_delete(f"{FOLDER}/{organization_id}", named) for organization_id in known)


def checkpoints_move(most: int = 100) -> int:
    """Moves large checkpoints that the database kept while the storage was away. Returns how many."""
    waiting = PolicyCheckpoint.objects.filter(data__isnull=False, size__gt=DATABASE_LIMIT).order_by("created_at")
    moved = 0
    for checkpoint in waiting[:most]:
        try:
            path = object_save(_name(checkpoint), bytes(checkpoint.data or b""))
        except ObjectsUnavailable:
            break
        moved += PolicyCheckpoint.objects.filter(pk=checkpoint.pk, path="").update(data=None, path=path)
    return moved


def _note_best(run: TrainingRun) -> None:
    if chosen := best(run):
        TrainingRun.objects.filter(job_id=run.job_id).update(best_checkpoint=chosen)
        run.best_checkpoint = chosen


def _prune(run: TrainingRun) -> None:
    """Keeps the agent's best five, this run's best and latest, and every tagged one."""
    mine = PolicyCheckpoint.objects.filter(agent_id=run.agent_id)
    keep = _kept(run.agent_id)
    this = mine.filter(run=run)
    scored = this.filter(validation_low__isnull=False).order_by("-validation_low", "iteration")
    keep |= set(scored.values_list("id", flat=True)[:1])
    # What each run ended with stays, for ninety days.
    last = mine.order_by("run_id", "-iteration").distinct("run_id")
    keep |= set(last.values_list("id", flat=True))
    for checkpoint in mine.exclude(id__in=keep).filter(tags=[]).defer("data"):
        _delete(checkpoint)


def _delete(checkpoint: PolicyCheckpoint) -> None:
    path = checkpoint.path
    checkpoint.delete()
    if path:
        transaction.on_commit(lambda: default_storage.delete(path), robust=True)
