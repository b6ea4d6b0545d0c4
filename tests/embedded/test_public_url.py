"""The address of the site: PUBLIC_URL and its consequences, and TLS that `up` speaks itself."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from agentcore_site import env
from agentcore_site.checks import plain_http, tls_is_somewhere
from agentcore_site.embedded.management.commands.up import Command
from agentcore_site.embedded.ports import free_port
from agentcore_site.lib.links import absolute, site_of
from tests.support.workers import environment, eventually

NAMES = ("ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "HTTPS", "SESSION_COOKIE_SECURE", "SECURE_SSL_REDIRECT",
         "SILENCED_SYSTEM_CHECKS")  # fmt: skip
REPORT = "import json; from agentcore_site import settings as s; print(json.dumps([getattr(s, n) for n in {!r}]))"


def settings_with(*names: str, **variables: str) -> dict[str, Any]:
    names = names or NAMES
    kept = {name: value for name, value in os.environ.items() if name not in {*NAMES, "PUBLIC_URL"}}
    command = [sys.executable, "-c", REPORT.format(names)]
    done = subprocess.run(command, cwd=env.ROOT, env=kept | variables, capture_output=True, text=True, check=True)
    return dict(zip(names, json.loads(done.stdout), strict=True))


def test_one_address_gives_hosts_origins_and_secure_cookies() -> None:
    result = settings_with(PUBLIC_URL="https://agentcore.example.org/")
    assert result["ALLOWED_HOSTS"][-1] == "agentcore.example.org" and "localhost" in result["ALLOWED_HOSTS"]
    assert result["CSRF_TRUSTED_ORIGINS"] == ["https://agentcore.example.org"]
    assert result["HTTPS"] and result["SESSION_COOKIE_SECURE"] and result["SECURE_SSL_REDIRECT"]
    assert result["SILENCED_SYSTEM_CHECKS"] == ["security.W005", "security.W021"]  # HSTS for this host alone
    plain = settings_with(PUBLIC_URL="http://intranet:8080")
    assert plain["CSRF_TRUSTED_ORIGINS"] == ["http://intranet:8080"] and not plain["HTTPS"]
    assert settings_with(PUBLIC_URL="https://a.example", HTTPS="0")["HTTPS"] is False  # what is said counts
    assert settings_with()["CSRF_TRUSTED_ORIGINS"] == [] and settings_with()["SILENCED_SYSTEM_CHECKS"] == []
    assert (
        settings_with(PRIVATE_SITE="1")["SILENCED_SYSTEM_CHECKS"]
        and settings_with(HTTPS="1", PRIVATE_SITE="1")["SILENCED_SYSTEM_CHECKS"] == result["SILENCED_SYSTEM_CHECKS"]
    )


@pytest.mark.parametrize(
    ("bind", "given", "refused"),
    [
        ("127.0.0.1", {}, ""),  # `make run`
        ("::1", {"PUBLIC_URL": "http://localhost:8000"}, ""),
        ("0.0.0.0", {}, "Web would listen on 0.0.0.0 without TLS."),
        ("10.1.2.3", {"HTTPS": True}, ""),
        ("0.0.0.0", {"PRIVATE_SITE": True}, ""),
        ("0.0.0.0", {"DEBUG": True}, ""),
        ("127.0.0.1", {"PUBLIC_URL": "http://intranet:8080"}, "People would reach http://intranet:8080 without TLS."),
        ("", {}, "There is no TLS: PUBLIC_URL is not set."),  # `check --deploy`
        ("", {"PUBLIC_URL": "http://localhost"}, "People would reach http://localhost without TLS."),
        ("", {"PRIVATE_SITE": True}, ""),
        ("", {"HTTPS": True, "PUBLIC_URL": "https://a.example"}, ""),
    ],
)
def test_a_site_without_tls_is_refused_unless_a_person_declares_the_network_private(
    settings: Any, bind: str, given: dict[str, Any], refused: str
) -> None:
    for name, value in {"PUBLIC_URL": "", "HTTPS": False, "DEBUG": False, "PRIVATE_SITE": False, **given}.items():
        setattr(settings, name, value)
    assert plain_http(bind) == refused
    if not bind:
        assert [one.id for one in tls_is_somewhere(None)] == (["agentcore.E002"] if refused else [])
    elif refused:
        with pytest.raises(CommandError, match="PRIVATE_SITE=1 says"):
            call_command("up", bind=bind)


@pytest.mark.parametrize(
    "value", ["agentcore.example.org", "ftp://a.example", "https://a.example/b", "https://u@a.example"]
)
def test_an_address_that_can_not_be_used_says_so(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBLIC_URL", value)
    with pytest.raises(env.BadEnvironment, match="PUBLIC_URL must"):
        env.origin("PUBLIC_URL")


def test_a_certificate_comes_with_its_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLS_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(env.BadEnvironment, match="belong together"):
        env.certificate()
    monkeypatch.setenv("TLS_KEY_FILE", str(tmp_path / "none.key"))
    with pytest.raises(env.BadEnvironment, match="cannot be read"):
        env.certificate()


def test_links_lead_to_where_people_find_the_site(settings: Any) -> None:
    request = RequestFactory().get("/", headers={"host": "localhost"})
    assert absolute(request, "/shared/x/") == "http://localhost/shared/x/"
    settings.PUBLIC_URL = "https://agentcore.example.org"
    assert absolute(request, "/shared/x/") == "https://agentcore.example.org/shared/x/"


def test_a_path_of_the_address_is_in_front_of_all_that_is_made_here(settings: Any) -> None:
    names = ("PUBLIC_URL", "SUB_PATH", "STATIC_URL", "LOGIN_URL", "SESSION_COOKIE_PATH", "CSRF_COOKIE_PATH")
    found = settings_with(*names, PUBLIC_URL="https://example.org/agentcore/")
    place = ["/agentcore", "/agentcore/static/", "/agentcore/sign-in/", "/agentcore/", "/agentcore/"]
    assert [found[name] for name in names] == ["https://example.org", *place]
    request = RequestFactory().get("/", headers={"host": "localhost"})
    settings.SUB_PATH = "/agentcore"
    for path in ("/shared/x/", "/agentcore/shared/x/"):
        assert absolute(request, path) == "http://localhost/agentcore/shared/x/"
    assert site_of(request) == "http://localhost/agentcore"


def test_hsts_is_for_this_host_unless_more_is_asked_for() -> None:
    names = ("SECURE_HSTS_SECONDS", "SECURE_HSTS_INCLUDE_SUBDOMAINS", "SECURE_HSTS_PRELOAD")
    for given, expected in (
        ({}, [31_536_000, False, False]),
        ({"HSTS_PRELOAD": "1"}, [31_536_000, False, False]),
        ({"HSTS_SUBDOMAINS": "1"}, [31_536_000, True, False]),
        ({"HSTS_SUBDOMAINS": "1", "HSTS_PRELOAD": "1"}, [31_536_000, True, True]),
    ):
        assert list(settings_with(*names, HTTPS="1", **given).values()) == expected


@pytest.mark.thorough(reason="a site is started")
def test_up_speaks_tls_with_a_given_certificate(db: None, tmp_path: Path, settings: Any) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    made += f" -addext subjectAltName=DNS:localhost -keyout {key} -out {cert}"
    subprocess.run(made.split(), check=True, capture_output=True)
    settings.TLS_CERT_FILE, settings.TLS_KEY_FILE = str(cert), str(key)
    port = free_port(18_443)
    stack: Any = SimpleNamespace(data_dir=tmp_path, run_folder=tmp_path, role="")
    web = next(one for one in Command()._processes(stack, port, 1, "127.0.0.1") if one.name == "web")
    inherited = [one.fileno() for one in web.sockets]
    process = subprocess.Popen(
        web.command, cwd=env.ROOT, env=environment(), stderr=subprocess.DEVNULL, pass_fds=inherited
    )
    trusting = ssl.create_default_context(cafile=str(cert))

    def answer() -> bytes:
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=2) as link,
                trusting.wrap_socket(link, server_hostname="localhost") as secure,
            ):
                secure.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return secure.recv(100)
        except OSError:
            return b""

    try:
        assert eventually(answer, why="it answers over TLS").startswith(b"HTTP/1.1 200")
    finally:
        process.terminate()
        process.wait(20)
