"""Changes by admins of their organisation's encryption. A job converts stored rows; readers never wait for it."""

from __future__ import annotations

import os
import uuid
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max

from agentcore_site.audit.services import record
from agentcore_site.encryption.data_keys import active_version
from agentcore_site.encryption.envelope import KEY_BYTES
from agentcore_site.encryption.holders import holder
from agentcore_site.encryption.models import DataKey
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ACTIVE, Job
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require

KIND: Final = "encryption"
COUNTED: Final = "rows_counted"  # an event of the job


@transaction.atomic
def key_rotate(actor: Actor | None, organization: Organization) -> Job:
    """Creates a data key for new values, and a job that encrypts stored rows with it: also the way to switch encryption
    on. Without an actor: for the server's own commands.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: such a job is running.
        KeyUnavailable: the key holder does not answer.
        TooMany, Insufficient: no job is accepted now.
    """
    before = _ready(actor, organization)
    mine = DataKey.objects.filter(organization=organization)
    made = DataKey(
        organization=organization,
        version=(mine.aggregate(last=Max("version"))["last"] or 0) + 1,
        holder=settings.ENCRYPTION_HOLDER,
        sealed=holder(settings.ENCRYPTION_HOLDER).seal(os.urandom(KEY_BYTES)),
        active=True,
    )
    mine.update(active=False)
    made.save()
    return _changed(actor, organization, before, made.version)


@transaction.atomic
def encryption_end(actor: Actor, organization: Organization) -> Job:
    """Writes new values in plain; a job decrypts stored rows. Keys stay for archives.

    Raises:
        Missing, Forbidden, TooMany, Insufficient: as above.
        Conflict: nothing is encrypted, or such a job is running.
    """
    before = _ready(actor, organization)
    if not before:
        raise Conflict("Encryption is switched off already.")
    DataKey.objects.filter(organization=organization).update(active=False)
    return _changed(actor, organization, before, 0)


def texts_move(actor: Actor, organization: Organization) -> Job:
    """Starts only the job, if one was cancelled, or rows came back from an archive.

    Raises:
        Missing, Forbidden, Conflict, TooMany, Insufficient: as above.
    """
    with transaction.atomic():
        _ready(actor, organization)
        return _job(actor, organization)


def job_stop(actor: Actor, organization: Organization) -> Job:
    """Cancels the job; each row stays readable in its present state.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: there is no such job.
    """
    require(actor, "encryption.edit", organization)
    if (job := job_active(organization.pk)) is None:
        raise Conflict("Nothing is being encrypted or decrypted.")
    return lifecycle.cancel(actor, job)


def keys_seal_again(organization: Organization | None = None) -> int:
    """Seals data keys again under the newest key of the present holder; texts are not changed. Returns how many.

    Raises:
        KeyUnavailable: a holder does not answer; earlier keys are done.
    """
    name = settings.ENCRYPTION_HOLDER
    keys = DataKey.objects.all() if organization is None else DataKey.objects.filter(organization=organization)
    done = 0
    for key in keys:
        old = holder(key.holder)
        sealed = old.seal_again(key.sealed) if key.holder == name else holder(name).seal(old.open(key.sealed))
        with transaction.atomic():
            done += DataKey.objects.filter(pk=key.pk, sealed=key.sealed).update(sealed=sealed, holder=name)
            record(None, "encryption.key_sealed_again", key, before={"holder": key.holder}, after={"holder": name})
    return done


def job_active(organization_id: uuid.UUID) -> Job | None:
    return Job.objects.filter(kind=KIND, organization_id=organization_id, status__in=ACTIVE).first()


def _ready(actor: Actor | None, organization: Organization) -> int:
    """Locks the switch in this transaction, and returns the active version."""
    if actor is not None:
        require(actor, "encryption.edit", organization)
    if job_active(organization.pk):
        raise Conflict(
            "What is stored is being encrypted or decrypted. Let that job end, or cancel it, then try again."
        )
    with connection.cursor() as cursor:
        # Waits for the transactions that write by the previous version.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('encryption ' || %s, 0))", [str(organization.pk)])
    return active_version(organization.pk)


def _changed(actor: Actor | None, organization: Organization, before: int, after: int) -> Job:
    was, now = {"version": before}, {"version": after}
    record(actor, "encryption.changed", organization=organization, before=was, after=now)
    return _job(actor, organization)


def _job(actor: Actor | None, organization: Organization) -> Job:
    return lifecycle.submit(
        actor,
        kind=KIND,
        organization=organization,
        title="Encryption at rest",
        exclusive_key=f"{KIND}:{organization.pk}",
    )
