"""Large objects in the default storage (a bucket, or files), with one error for a storage that can't be reached."""

from __future__ import annotations

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from agentcore_site.lib.errors import Unavailable


class ObjectsAway(Unavailable):
    """The storage can't be reached now; what was asked may be tried again."""

    title = "Object storage away"

    def __init__(self) -> None:
        super().__init__("The object storage can't be reached at the moment. Try again in a minute.")


def object_save(name: str, data: bytes) -> str:
    """Stores the bytes and returns the path under which they are found.

    Raises:
        ObjectsAway: they could not be stored.
    """
    try:
        return str(default_storage.save(name, ContentFile(data)))
    except Exception as error:  # each storage has errors of its own; none says anything about the bytes
        raise ObjectsAway from error


def object_load(path: str) -> bytes:
    """Raises:
    FileNotFoundError: there is no such object.
    ObjectsAway: the storage can't be asked."""
    try:
        with default_storage.open(path) as stored:
            return bytes(stored.read())
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ObjectsAway from error
