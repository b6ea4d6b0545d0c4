"""Data keys, decrypted once and kept in the process for some minutes: reading a row costs no call to the key holder."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from django.db import connection

from agentcore_site.encryption.envelope import OpenKey
from agentcore_site.encryption.holders import holder
from agentcore_site.encryption.models import DataKey
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.registry import UnknownName

KEPT_SECONDS: Final = 300.0
MOST_KEPT: Final = 1_000
_opened: dict[tuple[Any, int, str], tuple[float, OpenKey]] = {}


def active_version(organization_id: uuid.UUID) -> int:
    """The version that encrypts new values; 0 for none. It stays the same until the transaction ends: a change of
    encryption waits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT encryption_active_version(%s)", [organization_id])
        found = cursor.fetchone()
    return int(found[0]) if found else 0


def active_key(organization_id: uuid.UUID) -> OpenKey | None:
    """The key for values written in this transaction; None: they are written in plain.

    Raises:
        KeyUnavailable: nothing may be written now.
    """
    version = active_version(organization_id)
    return data_key(organization_id, version) if version else None


def data_key(organization_id: uuid.UUID, version: int) -> OpenKey:
    """Raises:
    KeyUnavailable: it can't be read, or was deleted.
    """
    place = organization_id, version, connection.settings_dict["NAME"]
    kept = _opened.get(place)
    if kept is not None and kept[0] > time.monotonic():
        return kept[1]
    row = DataKey.objects.filter(organization_id=organization_id, version=version).first()
    if row is None:
        raise KeyUnavailable(
            f"Data key {version} of this organisation is gone: what it encrypted can't be read any more."
        )
    try:
        opened = OpenKey.of(version, holder(row.holder).open(row.sealed))
    except UnknownName as error:
        raise KeyUnavailable(f"Data key {version} is kept by {row.holder!r}, which is not set up here.") from error
    if len(_opened) > MOST_KEPT:
        _opened.clear()
    _opened[place] = time.monotonic() + KEPT_SECONDS, opened
    return opened


def forget() -> None:
    """Drops the decrypted keys; they are decrypted again when they are next needed."""
    _opened.clear()
