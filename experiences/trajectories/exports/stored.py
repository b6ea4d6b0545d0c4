"""Stored parts of an export's file, and their deletion. Every worker loads this module; only workers that export load
the choice and the writing of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.encryption.data_keys import data_key
from agentcore_site.lib.object_storage import ObjectsUnavailable, object_delete
from experiences.models import ExportPart, TrajectoryExport
from experiences.trajectories.exports.files import StoredPart, place_of_part

KIND: Final = "export"  # of the job that writes the file


def stored_part(export: TrajectoryExport, part: ExportPart) -> StoredPart:
    key = data_key(export.organization_id, part.key_version) if part.key_version else None
    return StoredPart(part.path, part.size, key, place_of_part(export.organization_id, export.pk, part.number))


def export_delete(export: TrajectoryExport) -> bool:
    """Deletes the file; that there was one is kept. Returns whether there was."""
    files_delete(export)
    with transaction.atomic():
        gone = TrajectoryExport.objects.filter(pk=export.pk, deleted_at=None)
        if not gone.update(deleted_at=timezone.now()):
            return False
        export.parts.all().delete()
        record(None, "export.deleted", export.job, after={"rows": export.rows})
    return True


def files_delete(export: TrajectoryExport, keep: Sequence[str] = ()) -> None:
    """Deletes what is stored of an export but for ``keep``: parts, and what a process that died left behind.

    Raises:
        ObjectsUnavailable: the storage can't be asked.
    """
    try:
        _, names = default_storage.listdir(export.folder)
    except FileNotFoundError:
        return
    except Exception as error:
        raise ObjectsUnavailable from error
    object_delete(*(path for name in names if (path := f"{export.folder}/{name}") not in keep))
