"""A warehouse for these tests: chdb in this process, and the same behind ClickHouse's HTTP interface."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection

from agentcore_site.embedded.ports import free_port
from evaluation.warehouse.clickhouse.client import ClickHouseStore, store_at
from evaluation.warehouse.clickhouse.schema import schema_apply
from evaluation.warehouse.clickhouse.server import ChdbServer
from evaluation.warehouse.clickhouse.transports import ChdbTransport, HttpTransport
from evaluation.warehouse.loading import warehouse_setup

PASSWORD = "it's a secret: %/?"


@pytest.fixture(scope="session")
def chdb() -> Iterator[ChdbTransport]:
    pytest.importorskip("chdb", reason="the extra [warehouse] is not installed")
    with tempfile.TemporaryDirectory(prefix="agentcore-warehouse-") as name:
        transport = ChdbTransport(Path(name))
        schema_apply(ClickHouseStore(transport))
        yield transport
        transport.close()


@pytest.fixture(scope="session")
def served(chdb: ChdbTransport) -> Iterator[str]:
    """The address of ClickHouse's interface over it."""
    port = free_port(0)
    server = ChdbServer(chdb, port, PASSWORD)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://default:{'it%27s%20a%20secret%3A%20%25%2F%3F'}@127.0.0.1:{port}/agentcore"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def alone(db: None) -> None:
    """Tests that end leave their trajectories: Django doesn't know the table, and doesn't empty it."""
    cache.clear()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM experiences_trajectory")
        cursor.execute("DELETE FROM warehouse_rowchange")


@pytest.fixture
def in_process(chdb: ChdbTransport) -> ClickHouseStore:
    """The warehouse, empty."""
    store = ClickHouseStore(chdb)
    for table in ("trajectories", "trainings"):
        store.command(f"TRUNCATE TABLE {table}")
    return store


@pytest.fixture
def warehouse(in_process: ClickHouseStore, served: str, settings: Any) -> ClickHouseStore:
    """The same over HTTP, set up and configured."""
    settings.CLICKHOUSE_URL = served
    store = store_at(served)
    assert isinstance(store.transport, HttpTransport)
    warehouse_setup(store)
    return store
