"""A model of our own, from the form to an answer: ``up`` starts its server, restarts it, and stops it."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentcore_site.embedded.ports import free_port
from tests.support.up import Up, manage
from tests.support.workers import eventually

pytestmark = [
    pytest.mark.thorough(reason="a site and a model server are started"),
    pytest.mark.slow(reason="a site and a model server are started"),
]
SEEN = "state, restarts, memory, adapters, tokens_per_second, port, reason"
STATE = f"SELECT state = %s, {SEEN} FROM experiences_endpointserver"
KEY = """
from django.contrib.auth import get_user_model
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
actor = Actor(get_user_model().objects.get(username="adam"), interface="command")
print(api_key_create(actor, name="test", scopes=["gateway:call"], days=1)[1])
"""


def signed_in(site: str, data: Path, name: str) -> httpx.Client:
    passwords = dict(line.split(": ") for line in (data / "secrets" / "demo-users.txt").read_text().splitlines())
    client = httpx.Client(base_url=site, timeout=60, follow_redirects=True)
    client.get("/sign-in/")
    sent(client, "/sign-in/", username=name, password=passwords[name])
    return client


def sent(client: httpx.Client, path: str, **values: str) -> httpx.Response:
    token = {"csrfmiddlewaretoken": client.cookies["csrftoken"]}
    return client.post(path, data=values | token, headers={"referer": str(client.base_url)})


def state_is(up: Up, state: str, seconds: float = 120) -> Any:
    def found() -> Any:
        row = up.rows(STATE, state)[0]
        return row if row[0] else None

    return eventually(found, seconds=seconds, why=f"the server is {state}: {up.rows(STATE, state)} {up.tail()}")


def server_pid(up: Up, port: int) -> int:
    """The process that was given this port."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"model_server" in words and str(port).encode() in words and int(path.parent.name) != up.process.pid:
            return int(path.parent.name)
    raise AssertionError(f"no process has port {port}")


def test_a_model_of_our_own_is_started_from_the_form_restarted_after_a_kill_and_answers(
    folder: Path, own_services: None
) -> None:
    pytest.importorskip("torch", reason="the extra [weights] is not installed")
    port, data = free_port(0), folder / "data"
    up = Up(data, "--workers", "1", "--port", str(port), MODELS_FOLDER="")
    try:
        site = f"http://127.0.0.1:{port}"
        up.until("SELECT count(*) > 0 FROM jobs_hostprocess WHERE name = 'beat'")
        assert manage(data, "seed_demo").returncode == 0
        adam = signed_in(site, data, "adam")
        form = {"name": "Letters of ours", "runtime": "llm", "philosophy": "cot", "environment": "dataset"}
        answer = sent(adam, "/agents/new/", **form, endpoint="own:random", max_tokens="4")
        assert answer.status_code == 200 and "was created" in answer.text, answer.text
        ready = state_is(up, "ready")
        assert ready[2:5] == (0, ready[3], 0) and ready[3] > 50_000_000

        key = manage(data, "shell", "--no-imports", "-c", KEY).stdout.strip().splitlines()[-1]
        asked = {"model": "random", "messages": [{"role": "user", "content": "alpha 1"}], "max_tokens": 4}

        def answered() -> bool:
            reply = httpx.post(
                f"{site}/v1/chat/completions", json=asked, headers={"authorization": f"Bearer {key}"}, timeout=60
            )
            return reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] > 0

        assert answered()
        eventually(lambda: up.rows(STATE, "ready")[0][5], seconds=20, why="tokens per second are reported")

        pid = server_pid(up, ready[6])
        os.kill(pid, signal.SIGKILL)
        state_is(up, "restarting")
        again = state_is(up, "ready")
        assert again[2] == 1 and again[6] == ready[6] and "signal 9" in again[7]
        assert answered() and server_pid(up, ready[6]) != pid

        [(endpoint,)] = up.rows("SELECT endpoint_id FROM experiences_endpointserver")
        page = adam.get(f"/endpoints/{endpoint}/").text
        assert re.search(r"Ready\s+since", page) and "Stop the server" in page and "Adapters" in page
        switched = sent(adam, f"/endpoints/{endpoint}/server/switch/", on="no")
        assert switched.status_code == 200 and "Start the server" in switched.text
        eventually(lambda: not is_there(up, ready[6]), seconds=30, why="the process has ended")
        assert up.rows(STATE, "stopped")[0][:2] == (True, "stopped")
        assert "Stop the server" in sent(adam, f"/endpoints/{endpoint}/server/switch/", on="yes").text
        state_is(up, "ready")
    finally:
        up.stop()
    time.sleep(0.5)
    assert not is_there(up, ready[6])  # nothing is left behind


def is_there(up: Up, port: int) -> bool:
    try:
        return bool(server_pid(up, port))
    except AssertionError:
        return False
