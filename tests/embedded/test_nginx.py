"""The site behind a real nginx, with the block that the documentation shows, at the root of a host and under a path."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from agentcore_site import env
from agentcore_site.embedded.ports import answers, free_port, wait_until
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create
from experiences.models import Agent
from tests.evaluation.serving.production import ASKED, Production, production
from tests.factories import PASSWORD
from tests.support.examples import example
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.rows import queued_run
from tests.support.workers import Fleet, environment

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="a site and another program are started"),
    pytest.mark.skipif(shutil.which("nginx") is None and not os.environ.get("CI"), reason="nginx is not installed"),
]
PAUSE = 0.25


@pytest.fixture(params=["/", "/agentcore/", "/agentcore/ taken off"])
def front(
    request: pytest.FixtureRequest, fleet: Fleet, adam: Any, acme: Any, tmp_path: Path
) -> Iterator[tuple[str, Production, ssl.SSLContext]]:
    """The site's address, what it serves, and the trust in its certificate."""
    path, _, off = request.param.partition(" ")
    port = free_port(0)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    made += f" -addext subjectAltName=DNS:localhost -keyout {key} -out {cert}"
    subprocess.run(made.split(), check=True, capture_output=True)
    address = f"https://localhost:{port}{path.rstrip('/')}"
    static = str(tmp_path / "static")
    collect = [sys.executable, str(env.ROOT / "manage.py"), "collectstatic", "--noinput", "--verbosity", "0"]
    subprocess.run(collect, env=environment() | {"STATIC_ROOT": static}, check=True)
    with ModelServer() as server:
        server.will(act("words", pause=PAUSE))
        given = {"PUBLIC_URL": address, "TRUSTED_PROXIES": "127.0.0.1", "STATIC_ROOT": static}
        shop = production(fleet, Actor(adam), server, acme, **given)
        block = example("nginx", "nginx", env.ROOT / "docs" / "proxies.md")
        for shown, here in (
            ("127.0.0.1:8000", f"127.0.0.1:{shop.port}"),
            ("listen 443 ssl", f"listen {port} ssl"),
            ("agentcore.example.org", "localhost"),
            ("/etc/ssl/agentcore.pem", str(cert)),
            ("/etc/ssl/agentcore.key", str(key)),
            ("location / {", f"location {path} {{"),
            *([("proxy_pass http://agentcore;", "proxy_pass http://agentcore/;")] if off else []),
        ):
            assert shown in block
            block = block.replace(shown, here)
        folders = "".join(
            f"{name}_temp_path {tmp_path}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        head = f"daemon off; user root; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}}\n"
        config = tmp_path / "nginx.conf"
        config.write_text(f"{head}http {{\naccess_log off;\n{folders}{block}}}\n")
        nginx = subprocess.Popen(["nginx", "-e", str(tmp_path / "log"), "-c", str(config)])
        try:
            assert wait_until(lambda: answers(port), 15), (tmp_path / "log").read_text()
            yield address, shop, ssl.create_default_context(cafile=str(cert))
        finally:
            nginx.terminate()
            nginx.wait(10)


def test_the_site_works_behind_nginx(front: tuple[str, Production, ssl.SSLContext], olivia: Any, agent: Agent) -> None:
    address, shop, trust = front
    place = address.partition("localhost")[2].partition("/")[2]
    place = f"/{place}" if place else ""
    run = queued_run(Actor(olivia), agent)
    with httpx.Client(verify=trust, follow_redirects=True, timeout=60) as browser:
        page = browser.get(f"{address}/")
        assert str(page.url).startswith(f"{address}/sign-in/") and page.status_code == 200, page.url
        assert page.headers["strict-transport-security"] == "max-age=31536000"
        form = {"username": "olivia", "password": PASSWORD, "next": f"{place}/"}
        form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
        page = browser.post(f"{address}/sign-in/", data=form, headers={"referer": f"{address}/sign-in/"})
        assert str(page.url) == f"{address}/" and page.status_code == 200, page.url
        assert {(one.name, one.path, one.secure) for one in browser.cookies.jar} >= {("sessionid", f"{place}/", True)}
        page = browser.get(f"{address}/jobs/{run.job_id}/")
        assert page.status_code == 200
        links = set(re.findall(r'(?:href|src|action|hx-get|hx-post|data-socket)="(/[^"]*)"', page.text))
        assert len(links) > 20 and all(link.startswith(f"{place}/") for link in links), links
        for link in [one for one in links if "/static/" in one]:
            assert browser.get(f"{address.removesuffix(place)}{link}").status_code == 200, link
        [socket] = {link for link in links if "/ws/" in link}
        cookies = "; ".join(f"{one.name}={one.value}" for one in browser.cookies.jar)
        asyncio.run(live(f"{address.removesuffix(place)}{socket}", address, cookies, trust))
        _, key = api_key_create(Actor(olivia), name="n", scopes=SCOPES)
        browser.headers["authorization"] = f"Bearer {key}"
        servers = browser.get(f"{address}/api/v1/schema/?format=json").json().get("servers", [])
        assert servers == ([{"url": place}] if place else [])
        index = browser.get(f"{address}/api/v1/", headers={"accept": "application/json"}).json()
        assert index["mcp"] == f"{address}/mcp" and index["resources"]["agents"] == f"{address}/api/v1/agents"
        rows = [{"query": "x" * 1_000} for _ in range(1_600)]
        made = browser.post(f"{address}/api/v1/datasets", json={"name": "large", "rows": rows})
        assert made.status_code == 201, made.text[:500]
        export = browser.get(f"{address}/api/v1/trajectories/export?format=jsonl")
        assert export.status_code == 200
    came = streamed(address, shop, trust)
    assert came[-1] - came[0] > 2 * PAUSE, came  # the words came as they were said, and not all at the end


async def live(address: str, origin: str, cookies: str, trust: ssl.SSLContext) -> None:
    headers = {"cookie": cookies}
    site = "/".join(origin.split("/")[:3])
    async with connect(
        f"wss{address.removeprefix('https')}?after=0", additional_headers=headers, origin=site, ssl=trust
    ) as socket:  # type: ignore[arg-type]
        assert json.loads(await asyncio.wait_for(socket.recv(), 20))


def streamed(address: str, shop: Production, trust: ssl.SSLContext) -> list[float]:
    """The moments at which pieces of an answer came."""
    body = {"model": f"agent:{shop.agent.slug}", "messages": ASKED, "stream": True}
    came = []
    with httpx.stream(
        "POST",
        f"{address}/v1/chat/completions",
        json=body,
        headers={"authorization": f"Bearer {shop.key}"},
        verify=trust,
        timeout=60,
    ) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"] == "text/event-stream"
        for piece in answer.iter_bytes():
            came += [time.monotonic()] * (b"content" in piece)
    return came
