"""Serving adapters: each serves the plan, in the form of its receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from evaluation.serving.adapters import AdapterFailed, AdapterTarget, DeploymentArm, DeploymentPlan, serving_adapters
from evaluation.serving.adapters.registry import DEFAULT
from evaluation.serving.adapters.tensorzero import key_of, system_of, toml
from evaluation.serving.adapters.webhook import serving_secret
from evaluation.serving.releases.bundle import Bundle, ModelPart, PolicyPart, digest
from experiences.learning.lessons.library import Lesson
from tests.support.llm_server import ModelServer
from training.policies.served_context import ServedContext

NOWHERE = AdapterTarget()
SYSTEM = 'You {{ answer }} {% endraw %} "customers" <b>&amp;</b>\n\\n Grüße \U0001f680 \x7f {# no comment #}'


def bundle(url: str = "https://models.example.org/v1", **changes: Any) -> Bundle:
    model = ModelPart("small", "1", "Zanzibar models", "openai", url, {"extra": {"top_p": 0.5, "a/b": [1]}}, 77)
    context = ServedContext((Lesson("x1", "When an order is late, say when it comes.", status="active"),))
    return Bundle(**{"runtime": "llm", "model": model, "system": SYSTEM, "context": context, **changes})


def plan(*shares: float, **changes: Any) -> DeploymentPlan:
    arms = (DeploymentArm(f"release-{n}", share, bundle(**changes)) for n, share in enumerate(shares, 1))
    return DeploymentPlan("change-1", "clerk", tuple(arms))


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ((), "named by small letters"),
        ((("a", 0.5), ("a", 0.5)), "each once"),
        ((("A b", 1.0),), "named by small letters"),
        ((("a", 0.5), ("b", 0.4)), "add up to 1"),
        ((("a", 1.5), ("b", -0.5)), "between 0 and 1"),
    ],
)
def test_a_plan_is_whole(arms: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeploymentPlan("c", "clerk", tuple(DeploymentArm(name, share, bundle()) for name, share in arms))


def test_the_gateway_is_the_default_and_takes_every_plan() -> None:
    assert set(serving_adapters.built_in()) == {"gateway", "tensorzero", "webhook"}
    gateway = serving_adapters.get(DEFAULT)
    chooser = plan(1.0, runtime="action", policy=PolicyPart("1", "0" * 64))
    assert gateway.faults(chooser) == [] and "clerk" in gateway.apply(chooser, NOWHERE).sentence


# -- TensorZero --------------------------------------------------------------------------------------------------------

# In a process of its own: the gateway writes its log to the process's output, and keeps threads.
ASK = """
import json, sys
from tensorzero import TensorZeroGateway
with TensorZeroGateway.build_embedded(config_file=sys.argv[1]) as gateway:
    found = []
    for _ in range(int(sys.argv[2])):
        given = {"messages": [{"role": "user", "content": "Where is it?"}]}
        first = gateway.inference(function_name="clerk", input=given)
        again = gateway.inference(function_name="clerk", input=given, episode_id=first.episode_id)
        found.append([first.variant_name, again.variant_name])
print(); print(json.dumps(found))
"""


def asked(folder: Path, files: Any, times: int, **env: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    command = [sys.executable, "-c", ASK, str(folder / "tensorzero.toml"), str(times)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | env)


def test_its_own_gateway_serves_each_release_by_its_share(tmp_path: Path) -> None:
    with ModelServer(keys={"sk-test"}) as server:
        made = plan(0.75, 0.25, 0.0, url=server.base_url)
        applied = serving_adapters.get("tensorzero").apply(made, NOWHERE)
        assert "with ZANZIBAR_MODELS_API_KEY in its environment" in applied.sentence
        assert "sk-test" not in str(applied.files) and "release-3" not in str(applied.files)
        ran = asked(tmp_path, applied.files, 80, ZANZIBAR_MODELS_API_KEY="sk-test")
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        calls = [call.body for call in server.requests]
    result = json.loads(ran.stdout.splitlines()[-1])
    drawn = [first for first, _ in result]
    # 80 draws of 3 in 4: 43 to 75 in all but 1 of 100,000 cases.
    assert set(drawn) == {"release-1", "release-2"} and 43 <= drawn.count("release-1") <= 75
    assert all(first == again for first, again in result), "an episode keeps its release"
    assert len(calls) == 160
    for body in calls:
        assert body["messages"][0] == {"role": "system", "content": system_of(made.arms[0].bundle)}
        assert (body["model"], body["top_p"], body["a/b"], body["max_tokens"]) == ("small", 0.5, [1], 77)


def test_without_the_key_its_gateway_does_not_start(tmp_path: Path) -> None:
    files = serving_adapters.get("tensorzero").apply(plan(1.0), NOWHERE).files
    ran = asked(tmp_path, files, 0)
    assert ran.returncode != 0 and f"`{key_of(bundle())}` is missing" in ran.stderr


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"runtime": "action"}, "release-1 is no agent of a language model"),
        ({"runtime": "http"}, "release-1 is no agent of a language model"),
        ({"model": ModelPart("m", kind="portkey", base_url="https://x/v1")}, "an endpoint of kind 'portkey'"),
        ({"model": ModelPart("m")}, "an endpoint of kind 'none'"),
        ({"model": ModelPart("m", "1", "e", "vllm", "https://x/v1", {"extra": {"a": [None]}})}, "adds null"),
    ],
)
def test_a_release_that_an_adapter_can_not_serve_is_refused_before_the_deployment(changes: Any, why: str) -> None:
    adapter, made = serving_adapters.get("tensorzero"), plan(1.0, **changes)
    assert any(why in fault for fault in adapter.faults(made))
    with pytest.raises(ValueError, match=why):
        adapter.apply(made, NOWHERE)


json_values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_toml_is_the_same_after_writing_and_reading(value: Any) -> None:
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value


# -- webhook -----------------------------------------------------------------------------------------------------------

SECRET = serving_secret(UUID(int=7))


class PlanReceiver(ThreadingHTTPServer):
    """A foreign server: takes a POST, or answers ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.came = 200, []  # type: ignore[var-annotated]
        self.url = f"http://127.0.0.1:{self.server_address[1]}/plans"


class _Handler(BaseHTTPRequestHandler):
    server: PlanReceiver

    def do_POST(self) -> None:
        self.server.came.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[PlanReceiver]:
    with PlanReceiver() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_the_webhook_holds_the_plan_and_its_signature_is_of_the_standard(receiver: PlanReceiver) -> None:
    webhook, made = serving_adapters.get("webhook"), plan(0.9, 0.1)
    assert webhook.needs_url
    for _ in range(2):  # sent again, the receiver knows it by its id
        webhook.apply(made, AdapterTarget(receiver.url, SECRET))
    (headers, body), (again, _) = receiver.came
    event = Webhook(SECRET).verify(body, headers)
    assert event["type"] == "deployment.changed" and event["timestamp"].endswith("+00:00")
    assert event["data"]["agent"] == "clerk" and [one["share"] for one in event["data"]["arms"]] == [0.9, 0.1]
    arm = event["data"]["arms"][0]
    assert digest(arm["bundle"]) == arm["digest"] and Bundle.from_json(arm["bundle"]) == made.arms[0].bundle
    lower = [{name.lower(): value for name, value in one.items()} for one in (headers, again)]
    assert [one["webhook-id"] for one in lower] == ["change-1", "change-1"]
    for secret, content in ((serving_secret(UUID(int=7), 2), body), (SECRET, body.replace(b"0.9", b"0.8"))):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(content, headers)


def test_a_webhook_that_does_not_accept_a_release_is_reported(receiver: PlanReceiver, settings: Any) -> None:
    webhook, target = serving_adapters.get("webhook"), AdapterTarget(receiver.url, SECRET)
    receiver.status = 500
    with pytest.raises(AdapterFailed, match="of clerk did not take it: It answered 500"):
        webhook.apply(plan(1.0), target)
    with pytest.raises(AdapterFailed, match="secret can't be read"):
        webhook.apply(plan(1.0), AdapterTarget(receiver.url, "plain"))
    settings.OUTBOUND_ALLOW = ()
    with pytest.raises(AdapterFailed, match="private network"):
        webhook.apply(plan(1.0), target)
    assert "whsec" not in repr(target) and len(receiver.came) == 1
