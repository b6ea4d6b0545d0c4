"""Models of our own as people ask for them: who may, what is refused and why, and whose servers are seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agentcore_site.lib import own_models
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.lib.own_models import server_token
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership
from agentcore_site.tenancy.roles import Role
from agentcore_site.vault import opened
from budgets.metering.price_book import DatabasePriceBook
from experiences.agents.services.endpoints import endpoint_archive
from experiences.agents.services.model_servers import model_server_switch, own_model_endpoint
from experiences.models import Agent, EndpointServer, ModelEndpoint
from tests.support.pages import html

pytestmark = pytest.mark.django_db

FORM = {"name": "Ours", "runtime": "llm", "philosophy": "cot", "environment": "dataset", "max_tokens": "4"}


@pytest.fixture(autouse=True)
def kept_up(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site as ``up`` runs it, with the packages for models."""
    settings.MODEL_SERVER_PLACE, settings.MODEL_SERVERS, settings.DATA_DIR = "here", 2, tmp_path
    (tmp_path / "secrets").mkdir()
    monkeypatch.setattr(own_models, "PACKAGES", ("json",))


@pytest.fixture
def boss(adam: Any) -> Actor:
    return Actor(adam)


@pytest.fixture
def their_boss(charlie: Any) -> Actor:
    Membership.objects.filter(user=charlie).update(role=Role.ADMIN)
    return Actor(type(charlie).objects.get(pk=charlie.pk))


def page_of(actor: Actor) -> Client:
    client = Client()
    client.force_login(actor.user)
    return client


def test_the_form_makes_server_endpoint_price_and_agent_in_one_go(boss: Actor, tmp_path: Path) -> None:
    client = page_of(boss)
    assert 'value="own:smollm2"' in html(client.get("/agents/new/"))
    answer = client.post("/agents/new/", FORM | {"endpoint": "own:smollm2"})
    assert answer.status_code == 302, html(answer)
    row, agent = EndpointServer.objects.get(), Agent.objects.get()
    assert (row.source, row.wanted, row.state, row.place) == ("smollm2", True, "starting", "here")
    endpoint = row.endpoint
    assert agent.endpoint == endpoint and endpoint.model == "SmolLM2-135M-Instruct" and endpoint.kind == "weights"
    assert endpoint.base_url == f"http://127.0.0.1:{row.port}/v1"
    assert opened(endpoint.api_key) == server_token(tmp_path, endpoint.organization_id, "smollm2")
    assert DatabasePriceBook.load(endpoint.organization_id).price(endpoint.model).input_micros == 0


def test_a_second_agent_takes_the_server_that_is_there(boss: Actor) -> None:
    first = own_model_endpoint(boss, "random")
    model_server_switch(boss, first, on=False)
    assert own_model_endpoint(boss, "random") == first
    assert [row.wanted for row in EndpointServer.objects.all()] == [True]


def test_rest_takes_the_same_and_refuses_an_unknown_model(boss: Actor) -> None:
    client = page_of(boss)
    body = {"name": "Ours", "runtime": "llm", "environment": "dataset", "own_model": "random"}
    made = client.post("/api/v1/agents", json.dumps(body), content_type="application/json")
    assert made.status_code == 201 and made.json()["endpoint_id"] == str(EndpointServer.objects.get().pk), made.content
    wrong = json.dumps(body | {"name": "Other", "own_model": "../../etc"})
    refused = client.post("/api/v1/agents", wrong, content_type="application/json")
    assert refused.status_code == 400 and "Known: smollm2, random" in refused.content.decode()
    assert EndpointServer.objects.count() == 1


def test_folders_below_the_sites_folder_are_offered_and_no_other(boss: Actor, settings: Any, tmp_path: Path) -> None:
    for name in ("qwen3", "maker/small", "no model", "empty"):
        (tmp_path / "models" / name).mkdir(parents=True)
        if name != "empty":
            (tmp_path / "models" / name / "config.json").write_text("{}")
    assert list(own_models.own_models()) == ["smollm2", "random"]
    settings.MODELS_FOLDER = str(tmp_path / "models")
    assert list(own_models.own_models()) == ["maker/small", "qwen3", "smollm2", "random"]
    assert own_model_endpoint(boss, "maker/small").model == "small"
    for wrong in (str(tmp_path / "models" / "qwen3"), "../models/qwen3", "empty", "no model", "qwen3/", ""):
        with pytest.raises(Invalid, match="There is no model"):
            own_model_endpoint(boss, wrong)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MODEL_SERVERS", 0, "allows them with the setting MODEL_SERVERS"),
        ("MODEL_SERVER_PLACE", "", "started by manage.py up"),
        ("PACKAGES", ("json", "nowhere_at_all"), "nowhere_at_all missing"),
    ],
)
def test_a_site_that_can_start_none_says_why_in_the_form_and_when_it_refuses(
    boss: Actor, settings: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, words: str
) -> None:
    if name == "PACKAGES":
        monkeypatch.setattr(own_models, name, value)
    else:
        setattr(settings, name, value)
    client = page_of(boss)
    assert words in html(client.get("/agents/new/"))
    refused = client.post("/agents/new/", FORM | {"endpoint": "own:random"})
    assert refused.status_code == 400 and html(refused).count(words) >= 2
    assert not EndpointServer.objects.exists() and not Agent.objects.exists() and not ModelEndpoint.objects.exists()


def test_a_site_that_calls_no_server_of_its_own_machine_says_which_setting_allows_it(
    boss: Actor, settings: Any
) -> None:
    settings.OUTBOUND_ALLOW = ()
    with pytest.raises(Invalid, match=r"OUTBOUND_ALLOW=127\.0\.0\.1"):
        own_model_endpoint(boss, "random")
    assert not EndpointServer.objects.exists()


def test_the_site_runs_so_many_servers_of_all_organisations(boss: Actor, their_boss: Actor, settings: Any) -> None:
    settings.MODEL_SERVERS = 1
    endpoint = own_model_endpoint(boss, "random")
    with pytest.raises(Conflict, match=r"at most 1 model servers.*MODEL_SERVERS"):
        own_model_endpoint(their_boss, "random")
    model_server_switch(boss, endpoint, on=False)
    theirs = own_model_endpoint(their_boss, "random")
    assert theirs.base_url != endpoint.base_url and opened(theirs.api_key) != opened(endpoint.api_key)
    with pytest.raises(Conflict, match="at most 1"):
        model_server_switch(boss, endpoint, on=True)
    endpoint_archive(their_boss, theirs)
    assert model_server_switch(boss, endpoint, on=True).wanted


def test_others_neither_see_nor_stop_a_server(boss: Actor, their_boss: Actor, operator: Actor) -> None:
    endpoint = own_model_endpoint(boss, "random")
    for actor, status in ((their_boss, 404), (operator, 403)):
        client = page_of(actor)
        for path, method in (("server/", client.get), ("server/switch/", client.post)):
            assert method(f"/endpoints/{endpoint.pk}/{path}").status_code == status
    with pytest.raises(Missing):
        model_server_switch(their_boss, endpoint, on=False)
    with pytest.raises(Forbidden):
        model_server_switch(operator, endpoint, on=False)
    with pytest.raises(Forbidden):
        own_model_endpoint(operator, "random")
    assert 'value="own:' not in html(page_of(operator).get("/agents/new/"))
    assert EndpointServer.objects.get().wanted


def test_its_page_shows_what_was_reported_and_stops_and_starts_it(boss: Actor) -> None:
    endpoint, client = own_model_endpoint(boss, "random"), page_of(boss)
    failed = {"state": "failed", "reason": "It ended with status 1: no such file"}
    EndpointServer.objects.update(**failed, memory=2**30, adapters=3, tokens_per_second=12.34, restarts=4)
    page = html(client.get(f"/endpoints/{endpoint.pk}/"))
    for shown in ("Failed", "1.0", "12.3, in its latest answers", "<dd>3</dd>", "<dd>4</dd>", failed["reason"]):
        assert shown in page
    assert "Start the server" in page and "Stop the server" not in page and 'hx-trigger="every 2s"' in page
    started = html(client.post(f"/endpoints/{endpoint.pk}/server/switch/", {"on": "yes"}))
    assert "Starting" in started and failed["reason"] not in started
    stopped = html(client.post(f"/endpoints/{endpoint.pk}/server/switch/", {"on": "no"}))
    assert "Stopped" in stopped and "every 2s" not in stopped
    assert "model-server" not in html(client.get("/endpoints/new/"))
