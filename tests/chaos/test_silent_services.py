"""The bucket, the warehouse or the server of keys fell silent: a waiting request gets an error within two seconds."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from agentcore_site import env
from agentcore_site.encryption.transit import TransitHolder
from agentcore_site.lib.http_client import http_client_of
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.object_storage import ObjectsUnavailable, object_delete, object_load, object_open, object_save
from agentcore_site.tenancy.row_scopes import RowScope
from evaluation.warehouse.clickhouse.transports import HttpTransport, WarehouseUnavailable

SECONDS = 2.0


@pytest.fixture
def silent() -> Iterator[str]:
    """It takes connections and says nothing, as a host does whose disk hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def seconds_until(error: type[Exception], work: Callable[[], Any]) -> float:
    """The seconds that a request waits for it."""

    def view(_: Any) -> HttpResponse:
        with pytest.raises(error):
            work()
        return HttpResponse()

    began = time.monotonic()
    RowScope(view)(RequestFactory().get("/"))
    return time.monotonic() - began


def opened(path: str) -> None:
    with object_open(path):
        pass


@pytest.mark.parametrize(
    "work", [lambda: object_load("a"), lambda: object_save("a", b""), lambda: object_delete("a"), lambda: opened("a")]
)
def test_a_bucket(silent: str, settings: Any, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-test")
    settings.STORAGES = settings.STORAGES | {"default": env.bucket_storage("any", silent)}
    assert seconds_until(ObjectsUnavailable, work) < SECONDS
    assert seconds_until(ObjectsUnavailable, work) < 0.1  # it is known by then


def test_a_warehouse(silent: str) -> None:
    ask = HttpTransport(silent)
    assert seconds_until(WarehouseUnavailable, lambda: ask.send("SELECT 1", {})) < SECONDS


def test_a_server_of_keys(silent: str, settings: Any) -> None:
    settings.VAULT_ADDR, settings.VAULT_TOKEN = silent, "hvs.any"
    assert seconds_until(KeyUnavailable, lambda: TransitHolder().open("vault:v1:AAAA")) < SECONDS


def test_a_refusal_is_an_answer() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        assert http_client_of(f"http://127.0.0.1:{server.server_port}").server_answers()
        server.shutdown()
