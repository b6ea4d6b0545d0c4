"""Writes of releases. A release never changes after it was made; only a deployment changes what is served."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.models import AgentServing, Release, ReleaseSource
from evaluation.serving.releases.bundle import Bundle, digest
from evaluation.serving.releases.bundle_builder import (
    bundle_of_agent,
    bundle_of_checkpoint,
    bundle_of_playbook,
    evidence_of,
)
from evaluation.serving.releases.selectors import release_get
from evaluation.serving.releases.weights_upload import weights_bring
from experiences.models import Agent, AgentRuntime, Playbook
from training.models import PolicyCheckpoint

MOST_NOTE = 300


class Unchanged(Conflict):
    """Nothing has changed since ``release``, the agent's last one."""

    def __init__(self, release: Release) -> None:
        super().__init__(f"Nothing has changed since release {release.number}.")
        self.release = release


def release_make(
    actor: Actor,
    agent: Agent,
    *,
    checkpoint: PolicyCheckpoint | None = None,
    playbook_version: int | None = None,
    note: str = "",
) -> Release:
    """Makes the agent's next release: of a ``checkpoint`` of its own, of a version of its playbook, or of its current
    state.

    Raises:
        Missing, Forbidden: the actor may not, or there is no such version.
        Invalid: the note is too long, or both sources are given (``fields`` names the field).
        Unchanged: nothing changed since the last release.
        Conflict: the agent is archived, the checkpoint is another agent's or can't be read, the agent's prompt pack
            was altered, or the model server of its weights is unavailable.
    """
    require(actor, "release.make", agent.organization_id)
    if checkpoint is not None and checkpoint.agent_id == agent.pk:
        weights_bring(agent, checkpoint)
    with transaction.atomic():
        return _made(actor, agent, checkpoint=checkpoint, playbook_version=playbook_version, note=note)


def _made(
    actor: Actor, agent: Agent, *, checkpoint: PolicyCheckpoint | None, playbook_version: int | None, note: str
) -> Release:
    if len(note) > MOST_NOTE:
        message = f"A note has at most {MOST_NOTE} characters; this one has {len(note)}."
        raise Invalid(message, fields={"note": message})
    if checkpoint is not None and playbook_version is not None:
        message = "A release is made from a checkpoint or from a version of the playbook. Name one of them."
        raise Invalid(message, fields={"playbook_version": message})
    hold_row(agent)  # numbers have no gaps
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    source, bundle, evidence = _made_from(agent, checkpoint, playbook_version)
    stored = bundle.as_json()
    named = digest(stored)
    latest = Release.objects.filter(agent=agent).order_by("-number").first()
    if latest is not None and latest.digest == named and latest.evidence == evidence:
        raise Unchanged(latest)
    erased = AgentServing.objects.filter(agent=agent).values_list("last_erased", flat=True).first() or 0
    number = 1 + max(erased, latest.number if latest is not None else 0)
    release = Release.objects.create(
        organization_id=agent.organization_id,
        agent=agent,
        number=number,
        digest=named,
        bundle=stored,
        evidence=evidence,
        source=source,
        checkpoint=checkpoint,
        playbook_version=playbook_version,
        note=note.strip(),
        created_by=Actor.of(actor).user,
    )
    after = {"agent": agent.slug, "number": release.number, "digest": release.digest, "source": str(source)}
    record(actor, "release.made", release, after=after)
    return release


def release_download(actor: Actor, release_id: Any, *, form: str = "json") -> Release:
    """A release for download as a file; the download is logged.

    Raises:
        Missing: no such release is visible to this actor.
        Forbidden: the actor's role may not see the addresses in it.
    """
    release = release_get(actor, release_id)
    require(actor, "data.view", release.organization_id)
    record(actor, "release.downloaded", release, after={"digest": release.digest, "form": form})
    return release


def _made_from(
    agent: Agent, checkpoint: PolicyCheckpoint | None, playbook_version: int | None
) -> tuple[ReleaseSource, Bundle, dict[str, Any]]:
    if checkpoint is not None:
        if checkpoint.agent_id != agent.pk:
            raise Conflict(f"{checkpoint.label} is a checkpoint of another agent.")
        return ReleaseSource.CHECKPOINT, bundle_of_checkpoint(checkpoint), evidence_of(checkpoint)
    if playbook_version is not None:
        playbook = Playbook.objects.filter(agent=agent).first()
        if playbook is None:
            raise Conflict(f"{agent.name} has no playbook.")
        return ReleaseSource.PLAYBOOK, bundle_of_playbook(agent, playbook, playbook_version), {}
    if agent.runtime == AgentRuntime.ACTION:
        raise Conflict("An agent that chooses actions is released from a checkpoint, which holds its parameters.")
    return ReleaseSource.AGENT, bundle_of_agent(agent), {}
