"""Room on the disks of the data folder. Before it is used up, work with large writes waits: a full disk stops
PostgreSQL and Valkey in the middle of a write, and the whole site with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from django.conf import settings

from agentcore_site.lib.errors import DomainError, Insufficient
from agentcore_site.lib.service_paths import services_folder

MEBIBYTE = 2**20


def shortage() -> str:
    """Why nothing large may be written now, as a sentence that names the disk; "" while there is room."""
    least = settings.DISK_MINIMUM_FREE_MB * MEBIBYTE
    if not least:
        return ""
    for folder in (settings.DATA_DIR, services_folder(settings.DATA_DIR)):
        free = _free(folder)
        if free is not None and free < least:
            return (
                f"The disk of {folder} is nearly full: {free // MEBIBYTE:,} MiB are free, and below"
                f" {settings.DISK_MINIMUM_FREE_MB:,} MiB nothing large is written. Free some room."
            )
    return ""


def require_room(refused: type[DomainError] = Insufficient) -> None:
    """``refused``: Unavailable for programs that try again automatically.

    Raises:
        Insufficient, Unavailable: the disk is nearly full. The message names no folder: every caller reads it.
    """
    if shortage():
        raise refused("The server's disk is nearly full, so nothing new is taken. Ask an admin to free some room.")


def _free(folder: Path) -> int | None:
    """Bytes that are free where ``folder`` is; None if it can't be asked."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
