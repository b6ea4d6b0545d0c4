"""An erasure that orders changes of the past, without the services that find what it erases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from agentcore_site.audit.services import record
from agentcore_site.tenancy.models import Erasure, Organization


@contextmanager
def erasure_of(organization: Organization) -> Iterator[uuid.UUID]:
    """Under way inside of the ``with``. At its end it has its result, and the log knows it."""
    report = Erasure.objects.create(organization=organization, digests=["d"], found={"audit log": 1}, left={})
    yield report.id
    report.left = {"audit log": 0}
    report.save(update_fields=["left"])
    record(None, "subject.erased", report, organization=organization)
