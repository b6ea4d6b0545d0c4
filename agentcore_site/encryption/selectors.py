"""State of an organisation's encryption, for its admins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from agentcore_site.encryption.columns import tables
from agentcore_site.encryption.models import DataKey
from agentcore_site.encryption.services import COUNTED, KIND, job_active
from agentcore_site.jobs.models import Job, JobEvent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require


@dataclass(frozen=True)
class CountedRows:
    """Rows of a table under a version of the key; ``version`` 0: in plain."""

    table: str
    version: int
    rows: int


@dataclass(frozen=True)
class EncryptionState:
    """``active``: the version that encrypts now, None for none. ``counted_at``: when the last job counted ``rows``."""

    active: DataKey | None
    keys: list[DataKey]
    job: Job | None
    rows: list[CountedRows]
    counted_at: datetime | None


def encryption_state(actor: Actor, organization: Organization) -> EncryptionState:
    """Raises:
    Missing, Forbidden: the actor may not see it."""
    require(actor, "encryption.edit", organization)
    keys = list(DataKey.objects.visible_to(actor).filter(organization=organization).order_by("-version"))
    counted = JobEvent.objects.filter(job__organization=organization, job__kind=KIND, type=COUNTED)
    last = counted.order_by("-at", "-seq").first()
    rows = _rows(last.data["rows"]) if last else []
    active = next((key for key in keys if key.active), None)
    return EncryptionState(active, keys, job_active(organization.pk), rows, last and last.at)


def _rows(counted: Mapping[str, Mapping[str, int]]) -> list[CountedRows]:
    names = {table.name: name for name, table in tables.items()}
    return [
        CountedRows(names.get(table, table), int(version), rows)
        for table, versions in sorted(counted.items())
        for version, rows in sorted(versions.items(), key=lambda one: -int(one[0]))
    ]
