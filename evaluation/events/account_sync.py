"""Keeps the accounts of a local NATS server equal to the database, within seconds."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from django.conf import settings
from nats.errors import Error as NatsError

from agentcore_site import env
from agentcore_site.embedded.nats import ACCOUNT, accounts_text
from agentcore_site.lib.async_db import lasting
from agentcore_site.lib.database import TROUBLE
from evaluation.events.accounts import accounts_of, exports_of
from evaluation.events.inboxes import InboxStreams
from evaluation.events.interruptible_sleep import pause
from evaluation.events.selectors import publisher_accounts

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
READING_SECONDS: Final = 0.3


async def accounts_keep(streams: InboxStreams, stopping: asyncio.Event) -> None:
    """Runs until ``stopping`` is set. Does nothing if this process does not own the accounts file."""
    while settings.NATS_ACCOUNTS_FILE and not stopping.is_set():
        try:
            await streams.ensure()  # before: who may publish finds a stream
            await lasting(accounts_write)()
        except (OSError, NatsError, *TROUBLE) as error:
            log.warning("the accounts of publishers stay as they are: %s", error)
        await pause(stopping, POLL_SECONDS)


def accounts_wanted() -> str:
    """The required content of the file."""
    publishers = publisher_accounts()
    password = unquote(urlsplit(settings.NATS_URL.split(",")[0]).password or "")
    return accounts_text(password, exports_of(publishers), accounts_of(publishers, ACCOUNT))


def accounts_write() -> bool:
    """Writes the file. Returns whether it changed; the server then reads it again."""
    path, wanted = Path(settings.NATS_ACCOUNTS_FILE), accounts_wanted()
    if path.read_text(encoding="utf-8") == wanted:
        return False
    owner = path.stat()
    env.private_file(path, wanted)
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
    if settings.NATS_PID_FILE:
        # Twice: the server (2.15) adds an account at the first reading, and its imports only at the second one.
        for _ in range(2):
            os.kill(int(Path(settings.NATS_PID_FILE).read_text(encoding="utf-8")), signal.SIGHUP)
            time.sleep(READING_SECONDS)
    return True
