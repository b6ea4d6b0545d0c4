"""The fetch tool against a real server: what is allowed is read, and nothing leads inside."""

from __future__ import annotations

import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from experiences.rollouts.tools.base import ToolResult
from experiences.rollouts.tools.fetch import FetchTool, text_of_html
from experiences.rollouts.tools.toolset import Toolset
from tests.support.names import Names


class Pages:
    """``with Pages({path: (status, headers, body)}) as pages``. A body may be a number of bytes that never ends."""

    def __init__(self, pages: dict[str, Any], tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        stopping = self._stopping = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                status, headers, body = pages.get(self.path, (404, {}, b"nothing here"))
                self.send_response(status)
                for name, value in {"content-type": "text/plain", **headers}.items():
                    self.send_header(name, value.replace("PORT", str(outer.port)))
                self.end_headers()
                try:
                    self.wfile.write(body if isinstance(body, bytes) else b"x" * body)
                    while not isinstance(body, bytes) and not stopping.wait(0.001):
                        self.wfile.write(b"x" * 65536)
                except OSError:
                    outer.cut = True

            def log_message(self, *_: Any) -> None: ...

        self.cut = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()


def tool(**changes: Any) -> FetchTool:
    return FetchTool(**{"allowed_hosts": ("pages.test", "*.docs.test"), "timeout": 5.0, **changes})


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    here = ["127.0.0.1"]
    return Names(monkeypatch, {"pages.test": here, "a.docs.test": here, "docs.test": here})


async def fetched(one: FetchTool, url: Any) -> ToolResult:
    return await Toolset([one]).call("fetch", {"url": url})


@pytest.fixture
def pages() -> Iterator[Pages]:
    html = {"content-type": "text/html; charset=utf-8"}
    known = {
        "/": (200, {}, b"hello"),
        "/page": (200, html, "<title>Tea</title><script>steal()</script><p>Grüße<br>&amp; tea".encode()),
        "/latin": (200, {"content-type": "text/plain; charset=iso-8859-1"}, "Grüße".encode("latin-1")),
        "/odd": (200, {"content-type": "text/plain; charset=punycode"}, b"plain"),
        "/data": (200, {"content-type": "application/ld+json"}, b'{"a": 1}'),
        "/image": (200, {"content-type": "image/png"}, b"\x89PNG"),
        "/unnamed": (200, {"content-type": ""}, b"?"),
        "/zipped": (200, {"content-encoding": "gzip"}, b"\x1f\x8b"),
        "/endless": (200, {}, 65536),
        "/here": (302, {"location": "/"}, b""),
        "/there": (301, {"location": "http://a.docs.test:PORT/"}, b""),
        "/away": (302, {"location": "http://elsewhere.test:PORT/"}, b""),
        "/inside": (302, {"location": "http://169.254.169.254/latest/meta-data/"}, b""),
        "/file": (302, {"location": "file:///etc/passwd"}, b""),
        "/as": (302, {"location": "http://me:secret@pages.test:PORT/"}, b""),
        "/round": (302, {"location": "/round"}, b""),
        "/broken": (500, {}, b"secret stack trace"),
    }
    with Pages(known) as server:
        yield server


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/", "hello"),
        ("/page", "Tea\nGrüße\n& tea"),
        ("/latin", "Grüße"),
        ("/odd", "plain"),
        ("/data", '{"a": 1}'),
    ],
)
async def test_fetch_reads_pages_as_text(pages: Pages, path: str, text: str) -> None:
    assert await fetched(tool(), f"http://pages.test:{pages.port}{path}") == ToolResult(True, text)


async def test_fetch_asks_for_the_name_and_sends_nothing_of_ours(pages: Pages) -> None:
    assert (await fetched(tool(), f"http://pages.test:{pages.port}/")).ok
    [(path, headers)] = pages.asked
    assert path == "/" and headers["host"] == f"pages.test:{pages.port}"
    assert set(headers) == {"host", "user-agent", "accept", "accept-encoding"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nowhere", "HTTP 404"),
        ("/broken", "HTTP 500"),
        ("/image", "no text but image/png"),
        ("/unnamed", "no text but of an unknown type"),
        ("/zipped", "compressed"),
        ("/here", "redirects to /: fetch that address"),
    ],
)
async def test_fetch_says_why_a_page_can_not_be_read(pages: Pages, path: str, said: str) -> None:
    result = await fetched(tool(), f"http://pages.test:{pages.port}{path}")
    assert not result.ok and said in result.error and "secret" not in result.error


async def test_fetch_stops_reading_at_its_limit(pages: Pages) -> None:
    result = await tool(max_bytes=100_000).run({"url": f"http://pages.test:{pages.port}/endless"})
    assert result.output == "x" * 100_000 + "\n[cut: only 100,000 bytes were read]"


async def test_fetch_stops_reading_when_its_time_is_over(pages: Pages) -> None:
    result = await fetched(tool(max_bytes=2**40, timeout=0.3), f"http://pages.test:{pages.port}/endless")
    assert result == ToolResult(False, "", "timeout: no page within 0.3 s")


async def test_fetch_takes_another_address_of_a_name_where_one_can_not_be_reached(pages: Pages, names: Names) -> None:
    names.names["pages.test"] = ["::1 127.0.0.1"]
    assert (await fetched(tool(), f"http://pages.test:{pages.port}/")).output == "hello"


async def test_fetch_reports_a_server_that_does_not_answer(pages: Pages) -> None:
    result = await fetched(tool(), "http://pages.test:1/")
    assert not result.ok and result.error.startswith("it can't be reached")


# -- refusing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://elsewhere.test/", "'elsewhere.test' is not allowed"),
        ("http://docs.test/", "'docs.test' is not allowed"),  # below it is allowed, it is not
        ("http://evildocs.test/", "not allowed"),
        ("http://pages.test.evil.test/", "not allowed"),
        ("http://pages.test@evil.test/", "no user or password"),
        ("http://me:secret@pages.test/", "no user or password"),
        ("http://127.0.0.1/", "not allowed"),
        ("http://[::1]/", "not allowed"),
        ("http://2130706433/", "usual form"),
        ("file:///etc/passwd", "http:// or https://"),
        ("gopher://pages.test/", "http:// or https://"),
        ("//pages.test/", "http:// or https://"),
        ("http://", "http:// or https://"),
        ("http://pages.test:99999999/", "Write an address"),
        ("http://" + "a" * 2_000, "call it with"),
        (None, "call it with"),
        (3, "call it with"),
    ],
)
async def test_fetch_refuses_what_is_not_on_the_list(pages: Pages, names: Names, url: Any, said: str) -> None:
    result = await fetched(tool(), url)
    assert not result.ok and said in result.error, result
    assert not pages.asked and not names.asked  # not even the name is looked up


@pytest.mark.parametrize("path", ["/there", "/away", "/inside", "/file", "/as", "/round"])
async def test_fetch_follows_no_redirect_and_names_its_target(pages: Pages, path: str) -> None:
    result = await fetched(tool(), f"http://pages.test:{pages.port}{path}")
    assert not result.ok and result.error.startswith("the page redirects to ")
    assert [path for path, _ in pages.asked] == [path]


INSIDE = "private network, which this site does not call"


@pytest.mark.parametrize("addresses", ["127.0.0.1", "10.0.0.7 93.184.215.14", "169.254.169.254", "::ffff:10.0.0.7"])
async def test_fetch_refuses_a_name_that_leads_inside(
    pages: Pages, names: Names, settings: Any, addresses: str
) -> None:
    settings.OUTBOUND_ALLOW = ()
    names.names["pages.test"] = [addresses]
    result = await fetched(tool(), f"http://pages.test:{pages.port}/")
    assert not result.ok and ("never called" if "169" in addresses else INSIDE) in result.error and not pages.asked


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_fetch_refuses_this_host_by_the_systems_own_resolver(pages: Pages, settings: Any, host: str) -> None:
    settings.OUTBOUND_ALLOW = ()
    result = await fetched(FetchTool((host,)), f"http://{host}:{pages.port}/")
    assert INSIDE in result.error and not pages.asked


async def test_fetch_connects_to_the_checked_address(pages: Pages, names: Names) -> None:
    names.names["pages.test"] = ["127.0.0.1", "10.0.0.7"]  # a name that changes once it was checked
    assert (await fetched(tool(), f"http://pages.test:{pages.port}/")).ok and names.asked == ["pages.test"]
    assert INSIDE in (await fetched(tool(), f"http://pages.test:{pages.port}/")).error


@pytest.mark.parametrize("host", ["*", "http://a.test", "a.test/x", "a.test:80", "*.*.test", "A.test", "", "a..test"])
def test_fetch_takes_no_host_of_the_wrong_form(host: str) -> None:
    with pytest.raises(ValueError, match="no host"):
        FetchTool((host,))


async def test_fetch_fetches_nothing_where_no_host_is_listed(pages: Pages) -> None:
    result = await fetched(tool(allowed_hosts=()), f"http://pages.test:{pages.port}/")
    assert result.error.endswith("allowed: none") and not pages.asked


def test_fetch_names_the_allowed_hosts_to_the_model() -> None:
    spec = tool().spec
    assert spec.name == "fetch" and "pages.test, *.docs.test" in spec.description
    json.dumps(dict(spec.parameters))


# -- certificates -----------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> Path:
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    signed = builder.add_extension(names, critical=False).sign(private, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / "certificate.pem"
    secret = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(signed.public_bytes(pem) + secret)
    return path


@pytest.mark.parametrize(("name", "good"), [("pages.test", True), ("other.test", False)])
async def test_fetch_checks_the_certificate_against_the_name(
    tmp_path: Path, settings: Any, name: str, good: bool
) -> None:
    path = certificate(tmp_path, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    settings.OUTBOUND_CA_FILE = str(path)
    with Pages({"/": (200, {}, b"hello")}, tls=context) as pages:
        result = await fetched(tool(), f"https://pages.test:{pages.port}/")
    assert result.ok is good
    assert good or "certificate" in result.error.lower()


# -- HTML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<!DOCTYPE html><head><title>T</title><style>p{}</style></head><body><p>a<p>b", "T\na\nb"),
        ("<script>if (a < b) { x('</p>') }</SCRIPT >after", "after"),
        ("a<!-- <p>hidden</p> -->b", "a\nb"),
        ("<table><tr><td>1</td><td>2</td></tr></table>", "1 2"),
        ("one <b>bold</b> word &lt;tag&gt; &euro;", "one bold word <tag> €"),
        ("3 < 4 and 5 > 4", "3 < 4 and 5 > 4"),
        ("text <p never closed", "text"),
        ("x<script>never closed", "x"),
        ("", ""),
    ],
)
def test_fetch_reduces_html_to_its_text(page: str, text: str) -> None:
    assert text_of_html(page) == text
