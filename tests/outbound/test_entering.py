"""Addresses as people enter them: a bad one is refused where it is saved, and nothing inside is read back."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

from agentcore_site.lib.errors import Invalid
from agentcore_site.outbound import current_policy
from agentcore_site.tenancy.actors import Actor
from budgets.models import BudgetSettings
from budgets.services import price_set
from experiences.agents.services.agent_tests import agent_test
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, ModelEndpoint, ToolServer
from tests.experiences.rollouts.tools.test_fetch import Pages
from tests.support.callers import Caller
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.names import Names

pytestmark = pytest.mark.django_db

BAD = [
    "http://0177.0.0.1/",
    "http://①②⑦.0.0.1/",
    "http://2130706433/",
    "http://127.1/",
    "http://a b/",
    "http://example.org:99999/",
    "http://example.org@127.0.0.1/",
    "http://127.0.0.1:9399/latest/meta-data?x=",
    "http://[::ffff:127.0.0.1]/",
    "http://169.254.169.254/",
    "http://inside.example/",
]
GYM = {"environment": "agentgym"}


class Elsewhere:
    """A server that sends each POST on to ``to``, or answers it with a page."""

    def __init__(self, to: str = "") -> None:
        self.asked, outer = 0, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked += 1
                self.send_response(307 if to else 200)
                self.send_header("Location", to)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def deployed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site without allowed private networks; the name inside.example leads into one."""
    settings.OUTBOUND_ALLOW = ()
    Names(monkeypatch, {"inside.example": ["10.0.0.7"]})


@pytest.fixture
def boss(adam: Any) -> Caller:
    """An admin who has set a price for the model ``small``."""
    price_set(
        Actor(adam),
        model="small",
        organization=adam.memberships.get().organization,
        input_micros=1_000,
        output_micros=1_000,
    )
    return Caller(adam)


@pytest.mark.parametrize("address", BAD)
def test_a_bad_address_is_refused_at_every_place_where_one_is_entered(
    deployed: None, boss: Caller, agent: Agent, adam: Any, address: str
) -> None:
    own = f"agents/{agent.slug}"
    gym = GYM | {"environment_options": {"base_url": address, "size": 30}}
    answers = {
        "endpoint": boss.post("model-endpoints", {"name": "e", "base_url": address, "model": "m"}),
        "tool server": boss.post("tool-servers", {"name": "t", "transport": "http", "url": address}),
        "agent": boss.patch(own, {"url": address}),
        "agent's test": boss.post(f"{own}/test", {"url": address}),
        "environment": boss.patch(own, gym),
    }
    boss.client.force_login(adam)
    form = {"name": "e", "kind": "openai", "base_url": address, "model": "m", "options": "{}"}
    page = boss.client.post("/endpoints/new/", form)
    assert page.status_code == 400, page.status_code
    boss.client.post("/budgets/settings/", {"webhook_url": address})
    for place, answer in answers.items():
        assert answer.status_code == 400, (place, answer.status_code, answer.content)
        assert len(answer.json()["detail"]) > 20, place
    agent.refresh_from_db()
    assert not agent.url and agent.environment != "agentgym"
    assert not ModelEndpoint.objects.exists() and not ToolServer.objects.exists()
    assert not BudgetSettings.objects.exclude(webhook_url="").exists()


def test_an_address_of_a_listed_network_is_taken(settings: Any, boss: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.OUTBOUND_ALLOW = ("10.0.0.0/24", "gpu.example")
    Names(monkeypatch, {"inside.example": ["10.0.0.7"], "gpu.example": ["192.168.1.9"]})
    for number, host in enumerate(("10.0.0.7", "inside.example", "gpu.example")):
        made = boss.post("model-endpoints", {"name": f"e{number}", "base_url": f"http://{host}/v1", "model": "m"})
        assert made.status_code == 201, made.content
    refused = boss.post("model-endpoints", {"name": "f", "base_url": "http://10.0.1.7/v1", "model": "m"})
    assert refused.status_code == 400 and "OUTBOUND_ALLOW" in refused.json()["detail"]


def test_the_sites_own_model_service_needs_no_entry(settings: Any, deployed: None) -> None:
    settings.LLM_BASE_URL = "http://ollama:11434/v1"
    assert current_policy().target("http://ollama:11434/v1/chat/completions")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("status", [200, 404, 500])
def test_the_test_of_an_endpoint_reads_nothing_back(adam: Any, boss: Caller, status: int) -> None:
    secret = b"INTERNAL-SECRET-73 role=admin"
    with ModelServer() as server:
        made = boss.post("model-endpoints", {"name": "e", "base_url": server.base_url, "model": "small"})
        objects = (b'{"message": "%s"}' % secret, b'{"detail": "%s"}' % secret)
        for body in (secret, *objects, *(b"data: %s\n\n" % each for each in (secret, *objects))):
            server.will(act("status", code=status, body=body))
            result = boss.post(f"model-endpoints/{made.json()['id']}/test").json()
            assert result["ok"] is False and "SECRET" not in result["message"] and "price" not in result["message"], (
                result
            )


@pytest.mark.django_db(transaction=True)
def test_the_test_of_an_agent_reads_nothing_back_and_follows_nothing(adam: Any) -> None:
    endpoint = endpoint_create(Actor(adam), name="e", base_url="http://127.0.0.1:9/v1", model="small")
    with Pages({}) as pages:  # it refuses a POST with a page of its own
        result = agent_test(Actor(adam), None, url=f"http://127.0.0.1:{pages.port}/", endpoint=endpoint)
    assert not result.ok and result.message == "agent: it answered with HTTP 501"


@pytest.mark.django_db(transaction=True)
def test_a_stored_address_is_checked_again_at_each_call(adam: Any, boss: Caller, settings: Any) -> None:
    """Stored while it was allowed, or before there was a guard."""
    made = boss.post("model-endpoints", {"name": "e", "base_url": "http://127.0.0.1:9/v1", "model": "small"})
    settings.OUTBOUND_ALLOW = ()
    body = boss.post(f"model-endpoints/{made.json()['id']}/test").json()
    assert body["ok"] is False and "private network" in body["message"] and "127.0.0.1" not in body["message"]
    ModelEndpoint.objects.update(base_url="http://①②⑦.0.0.1/")
    answer = boss.post(f"model-endpoints/{made.json()['id']}/test")
    assert answer.status_code == 200 and answer.json()["ok"] is False
    with pytest.raises(Invalid):
        endpoint_create(Actor(adam), name="f", base_url="http://127.0.0.1:9/v1", model="m")


@pytest.mark.django_db(transaction=True)
def test_the_offer_of_a_tool_server_follows_no_redirect(boss: Caller) -> None:
    with Elsewhere() as inside, Elsewhere(to=inside.url) as server:
        made = boss.post("tool-servers", {"name": "t", "transport": "http", "url": server.url})
        body = boss.post(f"tool-servers/{made.json()['id']}/offer").json()
    assert body["ok"] is False and "redirects (HTTP 307)" in body["message"], body
    assert server.asked == 1 and inside.asked == 0


@pytest.mark.parametrize(
    "address", ["http://0177.0.0.1/", "http://169.254.169.254/", "http://inside.example/", "nothing"]
)
def test_the_admin_refuses_a_bad_address_too(
    deployed: None, boss: Caller, adam: Any, agent: Agent, address: str
) -> None:
    boss.client.force_login(adam)
    page = f"/admin/experiences/agent/{agent.pk}/change/"
    form = boss.client.get(page).context["adminform"].form
    began = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    values = {name: value for name, value in began.items() if value is not None}
    given = {name: json.dumps(value) if isinstance(value, (dict, list)) else value for name, value in values.items()}
    answer = boss.client.post(page, given | {"url": address, "organization": agent.organization_id})
    assert answer.status_code == 200 and "url" in answer.context["adminform"].form.errors
    hook = {"organization": agent.organization_id, "webhook_url": address, "secret_version": 1}
    assert boss.client.post("/admin/budgets/budgetsettings/add/", hook).status_code in {200, 302}  # with a message
    agent.refresh_from_db()
    assert not agent.url and not BudgetSettings.objects.exists()
