"""The real web server behind ways that can be cut or frozen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.support.proxy import Proxy
from tests.support.workers import Fleet, environment


@dataclass(frozen=True)
class Cut:
    """A site whose database and broker can go away; ``url`` is the site's."""

    url: str
    database: Proxy
    broker: Proxy


@contextmanager
def site_behind_proxies() -> Iterator[Cut]:
    fleet = Fleet()
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        database = stack.enter_context(Proxy(environment()["DATABASE_URL"]))
        broker = stack.enter_context(Proxy(os.environ["REDIS_URL"]))
        port = fleet.web(DATABASE_URL=database.url, REDIS_URL=broker.url, DB_POOL="12")
        yield Cut(f"http://127.0.0.1:{port}", database, broker)
