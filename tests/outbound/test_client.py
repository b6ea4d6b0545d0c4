"""The outbound client on real sockets: names that change, proxies, certificates, redirects, logs."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_site.outbound import AddressRefused, ConnectFailed, OutboundClient, OutboundPolicy, Redirected
from agentcore_site.outbound.addresses import AllowList
from agentcore_site.outbound.webhooks import WebhookFailed
from budgets.alerts.webhooks import webhook_post
from tests.experiences.rollouts.tools.test_fetch import Pages, certificate
from tests.support.names import Names

LOOPBACK = AllowList.of(["127.0.0.0/8", "localhost"])


async def got(policy: OutboundPolicy, address: str) -> str:
    async with (
        OutboundClient(policy=policy) as client,
        await client.send("GET", client.target(address), headers={}) as response,
    ):
        return (await response.read(1_000)).decode()


@pytest.fixture
def page() -> Iterator[Pages]:
    with Pages({"/": (200, {}, b"hello"), "/away": (302, {"location": "http://127.0.0.1:9/"}, b"")}) as pages:
        yield pages


async def test_a_name_that_changes_between_check_and_call_is_not_called(
    page: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, address = OutboundPolicy(), f"http://rebinding.example:{page.port}/"
    Names(monkeypatch, {"rebinding.example": ["93.184.215.14", "127.0.0.1"]})
    policy.check_entered(address)  # as it is saved
    with pytest.raises(AddressRefused, match="private network") as caught:
        await got(policy, address)
    assert "127.0.0.1" not in str(caught.value) and "rebinding" not in str(caught.value) and not page.asked


async def test_each_connection_goes_to_an_address_that_was_checked_for_that_connection(
    page: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, {"pages.test": ["127.0.0.1", "169.254.169.254"]})
    assert await got(OutboundPolicy(LOOPBACK), f"http://pages.test:{page.port}/") == "hello"
    assert names.asked == ["pages.test"]  # once: there is no second look-up to answer otherwise
    with pytest.raises(AddressRefused, match="never called"):
        await got(OutboundPolicy(LOOPBACK), f"http://pages.test:{page.port}/")


@pytest.mark.parametrize("addresses", ["127.0.0.1 10.0.0.7", "::ffff:10.0.0.7", "64:ff9b::a00:7"])
async def test_one_private_address_refuses_a_name(page: Pages, monkeypatch: pytest.MonkeyPatch, addresses: str) -> None:
    Names(monkeypatch, {"pages.test": [addresses]})
    with pytest.raises(AddressRefused):
        await got(OutboundPolicy(LOOPBACK), f"http://pages.test:{page.port}/")
    assert not page.asked


async def test_a_redirect_is_an_error_that_says_so(page: Pages) -> None:
    with pytest.raises(Redirected, match=r"redirects \(HTTP 302\)"):
        await got(OutboundPolicy(LOOPBACK), f"http://127.0.0.1:{page.port}/away")
    assert [path for path, _ in page.asked] == ["/away"]


# -- proxies ----------------------------------------------------------------------------------------------------------


class Proxy:
    """A proxy that notes the head of each request and passes bytes to the port ``to``, for any requested host."""

    def __init__(self, to: int) -> None:
        self.to, self.heads = to, list[str]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://me:word@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += caller.recv(4096)
        self.heads.append(head.decode())
        server = socket.create_connection(("127.0.0.1", self.to))
        if head.startswith(b"CONNECT"):
            caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            server.sendall(head.replace(b"GET http://api.example/", b"GET /", 1))
        for one, other in ((caller, server), (server, caller)):
            threading.Thread(target=pump, args=(one, other), daemon=True).start()

    def close(self) -> None:
        self._listener.close()


def pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def through(proxy: Proxy, **changes: Any) -> OutboundPolicy:
    return OutboundPolicy(proxies={"http": proxy.url, "https": proxy.url, "no": "direct.test,127.0.0.1"}, **changes)


async def test_a_proxy_is_asked_for_the_name_in_absolute_form(page: Pages) -> None:
    proxy = Proxy(page.port)
    assert await got(through(proxy), "http://api.example/") == "hello"  # no resolver here knows that name
    assert proxy.heads[0].startswith("GET http://api.example/ HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6d29yZA==" in proxy.heads[0]
    proxy.close()


async def test_a_proxy_connects_to_a_server_over_tls(tmp_path: Path) -> None:
    secured, path = tls_server(tmp_path, "api.example")
    with secured as pages:
        proxy = Proxy(pages.port)
        assert await got(through(proxy, ca_file=str(path)), "https://api.example/") == "hello"
        with pytest.raises(ConnectFailed, match="not trusted"):
            await got(through(proxy), "https://api.example/")
    assert proxy.heads[0].startswith("CONNECT api.example:443 HTTP/1.1\r\n")
    proxy.close()


async def test_no_proxy_is_asked_for_an_exception(page: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, {"direct.test": ["127.0.0.1"]})
    proxy = Proxy(page.port)
    assert await got(through(proxy, allowed=LOOPBACK), f"http://direct.test:{page.port}/") == "hello"
    assert not proxy.heads
    proxy.close()


@pytest.mark.parametrize(
    "address", ["http://10.0.0.1/", "http://169.254.169.254/", "http://redis/", "http://localhost/"]
)
async def test_a_proxy_leads_to_no_private_address(address: str) -> None:
    with pytest.raises(AddressRefused):
        await got(OutboundPolicy(AllowList.of(["192.168.0.0/16"]), proxies={"http": "http://127.0.0.1:9"}), address)


# -- certificates -----------------------------------------------------------------------------------------------------


def tls_server(folder: Path, name: str) -> tuple[Pages, Path]:
    path = certificate(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return Pages({"/": (200, {}, b"hello")}, tls=context), path


async def test_a_private_certificate_authority_is_trusted_only_where_the_site_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names(monkeypatch, {"inside.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    secured, path = tls_server(tmp_path, "inside.test")
    with secured as pages:
        with pytest.raises(ConnectFailed, match="OUTBOUND_CA_FILE"):
            await got(OutboundPolicy(LOOPBACK), f"https://inside.test:{pages.port}/")
        trusting = OutboundPolicy(LOOPBACK, ca_file=str(path))
        assert await got(trusting, f"https://inside.test:{pages.port}/") == "hello"
        with pytest.raises(ConnectFailed, match="certificate"):  # and only for its own name
            await got(trusting, f"https://other.test:{pages.port}/")


# -- what is said and logged ------------------------------------------------------------------------------------------


def test_a_webhooks_path_is_in_no_log(page: Pages, caplog: pytest.LogCaptureFixture) -> None:
    """At INFO, which is the level that is shipped."""
    with caplog.at_level(logging.INFO):
        with pytest.raises(WebhookFailed, match="It answered 501"):  # this server takes no POST
            webhook_post(f"http://127.0.0.1:{page.port}/services/T000/SECRETPATH", {"a": 1}, secret="s")
        with pytest.raises(WebhookFailed) as caught:
            webhook_post("http://127.0.0.1:9/services/T000/SECRETPATH", {"a": 1}, secret="s")
    assert "SECRETPATH" not in caplog.text and "SECRETPATH" not in str(caught.value)


@pytest.mark.parametrize("name", ["aiohttp.client", "httpx", "httpx2", "httpcore.connection", "mcp.client"])
def test_http_libraries_log_no_request(name: str) -> None:
    assert not logging.getLogger(name).isEnabledFor(logging.INFO)


async def test_a_server_that_says_nothing_ends_with_the_callers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await got(OutboundPolicy(LOOPBACK), f"http://127.0.0.1:{silent.getsockname()[1]}/")
