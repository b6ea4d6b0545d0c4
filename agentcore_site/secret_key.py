"""One SECRET_KEY for all hosts of a database, which keeps a fingerprint of it.

Stored keys of models are sealed with it: a host with another one could open none of them, and would stop every paid job
that it takes. So a process with another key does not start, and takes no job.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError, connection

from agentcore_site.models import SiteFact

log = logging.getLogger(__name__)

FACT: Final = "secret_key_fingerprint"


class OtherSecretKey(Exception):
    """This process has another SECRET_KEY than the one that the database knows."""

    MESSAGE = (
        "SECRET_KEY is not the one with which the secrets in this database were sealed. Give every host the same"
        " SECRET_KEY (a host without one made its own, in DATA_DIR/secret_key). To change it, set the new one and put"
        " the old one into SECRET_KEY_FALLBACKS."
    )

    def __init__(self) -> None:
        super().__init__(self.MESSAGE)


def fingerprint(key: str) -> str:
    """A keyed digest from which the key can't be found."""
    return hmac.new(key.encode(), b"agentcore/fingerprint/v1", hashlib.sha256).hexdigest()


def require_same() -> None:
    """Remembers the first key, follows a change by way of SECRET_KEY_FALLBACKS, and refuses any other.

    Raises:
        OtherSecretKey: the database knows another one.
        DatabaseError: the database could not be asked.
    """
    mine = fingerprint(settings.SECRET_KEY)
    known = SiteFact.objects.get_or_create(name=FACT, defaults={"value": mine})[0].value
    if known == mine:
        return
    if known not in {fingerprint(key) for key in settings.SECRET_KEY_FALLBACKS}:
        raise OtherSecretKey
    SiteFact.objects.filter(name=FACT, value=known).update(value=mine)


_same: list[bool] = []


def require_same_once() -> None:
    """``require_same``, asked of the database until it was so once in this process."""
    if not _same:
        require_same()
        _same.append(True)


def require_same_or_exit() -> None:
    """For the start of a process. With the database away it may start; a worker asks again before it takes a job.

    Raises:
        SystemExit: after it wrote the reason.
    """

    def ask() -> str:
        try:
            require_same_once()
        except OtherSecretKey as error:
            return str(error)
        except DatabaseError as error:
            log.warning("SECRET_KEY was not compared, the database can't be asked: %s", error)
        finally:
            connection.close()
        return ""

    # In a thread, since a web server imports its application inside its event loop.
    with ThreadPoolExecutor(1) as thread:
        if refused := thread.submit(ask).result():
            print(refused, file=sys.__stderr__, flush=True)
            raise SystemExit(1)


@register(Tags.database)
def secret_key_is_the_same(app_configs: Any, databases: Any = None, **_: Any) -> list[CheckMessage]:
    """Part of ``migrate`` and ``check --database default``, and so of ``up``."""
    try:
        if databases:
            require_same()
    except OtherSecretKey as error:
        return [Error(str(error), id="agentcore.E001")]
    except DatabaseError:  # the table is not there before the first migration
        pass
    return []
