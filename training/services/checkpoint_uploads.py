"""Checkpoints from a file: a download that comes back, here or at another site."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from django.core.files.uploadedfile import UploadedFile
from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib import disk
from agentcore_site.lib.errors import Conflict, Invalid, TooLarge
from agentcore_site.lib.registry import UnknownName
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent
from experiences.rollouts.environments import environments
from experiences.rollouts.options import own_options
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.learners import StoredPolicy, stored_policy
from training.models import PolicyCheckpoint
from training.policies.context import ContextPolicy
from training.services.checkpoints import checkpoint_rewrite, place_of

UPLOADED: Final = "uploaded"
MOST_BYTES: Final = 64 * 2**20
MOST_ITERATIONS: Final = 10_000
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def download_name(checkpoint: PolicyCheckpoint) -> str:
    """The name of a downloaded file, by which it is known again (``sha256_in``)."""
    return f"{checkpoint.label}.{checkpoint.sha256}.bin"


def sha256_in(name: str) -> str:
    """The SHA-256 that a download's name ends with; "" where it has none."""
    found = _SHA256.findall(name)
    return found[-1] if found else ""


def read_upload(file: UploadedFile[Any]) -> bytes:
    """Raises:
    TooLarge: it is larger than what is taken."""
    if (file.size or 0) > MOST_BYTES:
        raise TooLarge(f"The file has {(file.size or 0) >> 20} MB; at most {MOST_BYTES >> 20} MB are taken.")
    return file.read()


def checkpoint_upload(actor: Actor, agent: Agent, data: bytes, *, sha256: str) -> PolicyCheckpoint:
    """Stores a file as a checkpoint of this agent, tagged "uploaded". Nothing in the file is executed. If the agent has
    the checkpoint already and it is damaged, its bytes are restored.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a byte differs from what ``sha256`` is of, or it is no checkpoint of this program, or not one for this
            agent (``fields`` says which).
        Conflict: the agent has it already, or is archived.
        Insufficient: the disk is nearly full.
    """
    require(actor, "checkpoint.edit", agent.organization_id)
    disk.require_room()
    sha256 = sha256.strip().lower()
    if not _SHA256.fullmatch(sha256):
        message = "Give the SHA-256 of the file, 64 hexadecimal digits: it is shown beside the checkpoint, and in the"
        raise Invalid(f"{message} name of a download.", fields={"sha256": "Must be 64 hexadecimal digits."})
    if (actual := PolicyCheckpoint.digest(data)) != sha256:
        raise _refused(f"at least one byte differs: its SHA-256 is {actual}, and should be {sha256}")
    if known := _known(agent, sha256):
        return _mended(actor, known, data)
    return checkpoint_admit(actor, agent, data)


def checkpoint_admit(actor: Actor, agent: Agent, data: bytes) -> PolicyCheckpoint:
    """Stores bytes that the agent has no checkpoint of, for services that have authorised the actor. They go to storage
    before the agent's row is locked: a storage that falls silent would hold up its jobs.

    Raises:
        Invalid, Conflict: as ``checkpoint_upload`` raises.
    """
    sha256 = PolicyCheckpoint.digest(data)
    stored = _read(data)
    _check_fits(agent, stored)
    made = PolicyCheckpoint(
        organization_id=agent.organization_id,
        agent=agent,
        iteration=stored.iteration,
        sha256=sha256,
        size=len(data),
        tags=[UPLOADED],
    )
    for name, value in place_of(made, data).items():
        setattr(made, name, value)
    with transaction.atomic():
        hold_row(agent)
        if _known(agent, sha256):
            raise Conflict(f"{agent.name} has it already: it was uploaded a moment ago.")
        made.save(force_insert=True)
        record(actor, "checkpoint.uploaded", made, after={"agent": agent.slug, "sha256": sha256, "size": len(data)})
    return made


def _known(agent: Agent, sha256: str) -> PolicyCheckpoint | None:
    """Raises:
    Conflict: the agent is archived."""
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    return PolicyCheckpoint.objects.filter(agent=agent, sha256=sha256).first()


def _mended(actor: Actor, known: PolicyCheckpoint, data: bytes) -> PolicyCheckpoint:
    """Raises:
    Conflict: its bytes are whole."""
    try:
        checkpoint_load(known)
    except Damaged:
        with transaction.atomic():
            checkpoint_rewrite(known, data)
            record(actor, "checkpoint.mended", known, after={"sha256": known.sha256})
        known.refresh_from_db()
        return known
    raise Conflict(f"{known.agent.name} has it already: it is {known.label}.")


def _read(data: bytes) -> StoredPolicy:
    """Raises:
    Invalid: it is no checkpoint of this program."""
    try:
        # A file and what it unpacks to are in memory together.
        stored = stored_policy(data, most=2 * MOST_BYTES - len(data))
        if not 0 <= stored.iteration <= MOST_ITERATIONS:
            raise ValueError(f"it is of iteration {stored.iteration}")
        if stored.learner.learns_context:
            served = cast(ContextPolicy, stored.policy).serves
            served.text_for("")
            if fault := unstorable(served.as_json()):
                raise ValueError(fault)
    except Exception as error:  # a learner may raise any exception on a state that it did not write
        raise _refused(f"it is no checkpoint of this program, or is damaged ({error})") from error
    return stored


def _check_fits(agent: Agent, stored: StoredPolicy) -> None:
    """Raises:
    Invalid: the agent is of another kind, or its environment has other actions."""
    if agent.runtime not in stored.learner.runtimes:
        raise _refused(f"it holds {stored.learner.title}, and {agent.name} can't act by that")
    if not hasattr(stored.policy, "actions"):
        return
    try:
        there = environments.get(agent.environment)(own_options(agent.environment_options)).actions
    except (UnknownName, ValueError) as error:
        raise _refused(f"{agent.name}'s environment can't be asked for its actions ({error})") from error
    if not stored.chooses_among(there):
        raise _refused(f"it chooses among other actions than {agent.name}'s environment has")


def _refused(why: str) -> Invalid:
    message = f"The file was refused: {why}. Nothing was stored."
    return Invalid(message, fields={"file": message})
