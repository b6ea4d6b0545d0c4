"""Large objects in the default storage (a bucket, or files), with one error for a storage that can't be reached."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Final

from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage
from django.utils import timezone

from agentcore_site.lib.errors import Unavailable
from agentcore_site.lib.http_client import http_client_of
from agentcore_site.lib.row_scope import in_request

STRAY: Final = timedelta(days=1)


class ObjectsUnavailable(Unavailable):
    """The storage can't be reached now; the request may be repeated."""

    title = "Object storage away"

    def __init__(self) -> None:
        super().__init__("The object storage can't be reached at the moment. Try again in a minute.")


def _require_answer() -> None:
    """Raises:
    ObjectsUnavailable: in a request, if a storage with an address of its own does not answer.
    """
    address = getattr(default_storage, "endpoint_url", None)
    if address and in_request() and not http_client_of(address).server_answers():
        raise ObjectsUnavailable


def object_save(name: str, data: bytes) -> str:
    """Stores the bytes and returns their path.

    Raises:
        ObjectsUnavailable: they could not be stored.
    """
    _require_answer()
    try:
        return str(default_storage.save(name, ContentFile(data)))
    except Exception as error:  # each storage has errors of its own, which do not depend on the bytes
        raise ObjectsUnavailable from error


def object_load(path: str) -> bytes:
    """Raises:
    FileNotFoundError: there is no such object.
    ObjectsUnavailable: the storage does not answer.
    """
    _require_answer()
    try:
        with default_storage.open(path) as stored:
            return bytes(stored.read())
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ObjectsUnavailable from error


def object_save_file(name: str, path: Path) -> None:
    """Stores a file under exactly this name, replacing any other, without reading it whole.

    Raises:
        ObjectsUnavailable: it could not be stored.
    """
    _require_answer()
    try:
        default_storage.delete(name)
        with path.open("rb") as data:
            default_storage.save(name, File(data))
    except Exception as error:
        raise ObjectsUnavailable from error


@contextmanager
def object_open(path: str) -> Iterator[IO[bytes]]:
    """A file of the object that can be read at any place.

    Raises:
        FileNotFoundError: there is no such object.
        ObjectsUnavailable: the storage can't be asked.
    """
    _require_answer()
    try:
        stored = default_storage.open(path)
        _ = stored.file  # an object of a bucket is fetched here: what fails later would be no error of the storage
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ObjectsUnavailable from error
    with stored:
        yield stored


def object_delete(*paths: str) -> None:
    """Deletes objects; nothing where there is none.

    Raises:
        ObjectsUnavailable: the storage can't be asked."""
    _require_answer()
    try:
        for path in paths:
            default_storage.delete(path)
    except Exception as error:
        raise ObjectsUnavailable from error


def objects_unnamed_delete(folder: str, named: Container[str]) -> int:
    """Deletes objects of a folder that are not among ``named`` and older than a day: an upload is younger. Returns how
    many.

    Raises:
        ObjectsUnavailable: the storage can't be asked.
    """
    _require_answer()
    gone = 0
    try:
        for path in _objects_in(folder):
            if path not in named and default_storage.get_modified_time(path) < timezone.now() - STRAY:
                default_storage.delete(path)
                gone += 1
    except Exception as error:
        raise ObjectsUnavailable from error
    return gone


def _objects_in(folder: str) -> Iterator[str]:
    try:
        folders, files = default_storage.listdir(folder)
    except FileNotFoundError:
        return
    yield from (f"{folder}/{name}" for name in files)
    for name in folders:
        yield from _objects_in(f"{folder}/{name}")
