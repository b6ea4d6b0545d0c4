"""Model endpoints with a gateway's secrets: sent on the wire as they should be, and shown nowhere."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.vault import opened
from budgets.llm.client import MeteredChatClient
from budgets.llm.errors import LLMError
from budgets.llm.types import Message
from budgets.meter_port import CallKey, FreeMeter
from experiences.agents.endpoint_config import BadEndpoint, endpoint_value
from experiences.agents.services.agents import agent_archive, agent_update
from experiences.agents.services.endpoints import endpoint_archive, endpoint_create, endpoint_update
from experiences.agents.services.tool_servers import tool_server_archive, tool_server_create, tool_server_update
from experiences.lessons.services.packs import pack_archive, pack_create, pack_update
from experiences.models import ModelEndpoint
from tests.factories import AgentFactory
from tests.support.llm_acts import act
from tests.support.llm_client import Prices, ask
from tests.support.llm_server import ModelServer

pytestmark = pytest.mark.django_db(transaction=True)

INNER, VIRTUAL = "innermost-provider-secret", "virtual-prod-secret"
CONFIG = {"strategy": {"mode": "fallback"}, "targets": [{"provider": "openai", "api_key": INNER}]}
PORTKEY = {"name": "gateway", "kind": "portkey", "model": "small", "options": {"max_retries": 0}}


@pytest.fixture
def boss(adam: Any) -> Actor:
    return Actor(adam)


def test_a_change_that_was_begun_before_an_archiving_brings_no_secret_back(boss: Actor) -> None:
    """Two admins at once: one has the row at hand while the other archives it, which forgets its keys."""
    endpoint = endpoint_create(boss, name="local", base_url="http://127.0.0.1:9/v1", model="small", api_key="sk-1")
    server = tool_server_create(boss, name="desk", url="http://127.0.0.1:9/mcp", token="t-1")
    pack = pack_create(boss, name="billing", system="Be exact.")
    began = [type(row).objects.get(pk=row.pk) for row in (endpoint, server, pack)]
    endpoint_archive(boss, endpoint)
    tool_server_archive(boss, server)
    pack_archive(boss, pack)
    with pytest.raises(Invalid, match="is archived"):
        endpoint_update(boss, began[0], model="large")
    with pytest.raises(Conflict, match="desk is archived"):
        tool_server_update(boss, began[1], tools=["ask"])
    with pytest.raises(Conflict, match="is archived"):
        pack_update(boss, began[2], system="Be quick.")
    now = [type(row).objects.get(pk=row.pk) for row in began]
    assert all(row.archived_at is not None for row in now)
    assert (now[0].api_key, now[1].tools, now[1].token) == ("", [], "")


def sent_to(server: ModelServer) -> dict[str, str]:
    return dict(server.requests[-1].headers)


async def call(value: Any) -> Any:
    return await ask(MeteredChatClient(value, FreeMeter(), Prices()))


def test_calls_of_a_purpose_send_the_key_of_that_purpose(boss: Actor, adam: Any) -> None:
    """Training leaves production its own pace where a provider limits each key."""
    from asgiref.sync import async_to_sync

    async def sent_by(value: Any, purpose: str) -> str:
        async with MeteredChatClient(value, FreeMeter(), Prices()) as client:
            await client.complete([Message("user", "?")], max_tokens=5, key=CallKey(purpose, purpose, "small"))
        return sent_to(server)["authorization"].removeprefix("Bearer ")

    client = Client()
    client.force_login(adam)
    with ModelServer(prices={"small": (1, 1)}) as server:
        keys = {"training": "sk-training", "production": "sk-production"}
        body = {"name": "two", "base_url": server.base_url, "model": "small", "api_key": "sk-all", "purpose_keys": keys}
        made = client.post("/api/v1/model-endpoints", json.dumps(body), content_type="application/json")
        assert made.status_code == 201 and made.json()["purpose_keys"] == ["production", "training"], made.content
        row = ModelEndpoint.objects.get()
        value = endpoint_value(row)
        sent = [async_to_sync(sent_by)(value, purpose) for purpose in ("training", "production", "evaluation")]
        assert sent == ["sk-training", "sk-production", "sk-all"]
        # The form keeps a key whose line is empty, and removes one whose line is gone.
        page = client.get(f"/endpoints/{row.id}/").content.decode()
        assert "production=\ntraining=" in page and not any(key in page for key in ("sk-all", *keys.values()))
        form = {"name": "two", "kind": "openai", "base_url": server.base_url, "model": "small", "options": "{}"}
        assert client.post(f"/endpoints/{row.id}/", form | {"purpose_keys": "training="}).status_code == 302
        value = endpoint_value(ModelEndpoint.objects.get())
        sent = [async_to_sync(sent_by)(value, purpose) for purpose in ("training", "production")]
        assert sent == ["sk-training", "sk-all"]
    for given, message in (
        ({"trainings": "sk"}, "There is no purpose 'trainings'"),
        ({"test": ""}, "test has no key"),
        ({"test": "s k\n1"}, "the key of test holds"),
        (["sk"], "object of texts"),
    ):
        with pytest.raises(Invalid, match=message) as refused:
            endpoint_update(boss, ModelEndpoint.objects.get(), purpose_keys=given)
        assert list(refused.value.fields) == ["purpose_keys"]
    with pytest.raises(Invalid, match="enter it again"):
        endpoint_update(boss, ModelEndpoint.objects.get(), base_url="http://127.0.0.2:1/v1", api_key="sk-all")
    log = json.dumps(list(AuditEvent.objects.values("before", "after")))
    assert "sk-" not in log and '"purpose_keys": ["production", "training"]' in log
    endpoint_archive(boss, ModelEndpoint.objects.get())
    assert ModelEndpoint.objects.get().purpose_keys == {}


@pytest.mark.parametrize("config", [CONFIG, json.dumps(CONFIG, indent=2)], ids=["object", "text"])
def test_a_config_goes_from_the_row_to_the_header_as_json(boss: Actor, config: Any) -> None:
    from asgiref.sync import async_to_sync

    with ModelServer() as server:
        options = {"max_retries": 0, "portkey_metadata": {"team": "search"}, "portkey_provider": "openai"}
        made = endpoint_create(
            boss, **PORTKEY | {"options": options}, base_url=server.base_url, gateway_config=config, virtual_key=VIRTUAL
        )
        async_to_sync(call)(endpoint_value(ModelEndpoint.objects.get(id=made.id)))
        sent = sent_to(server)
    assert json.loads(sent["x-portkey-config"]) == CONFIG
    assert sent["x-portkey-virtual-key"] == VIRTUAL and sent["x-portkey-provider"] == "openai"
    assert json.loads(sent["x-portkey-metadata"]) == {"team": "search"}


def test_a_saved_config_is_named_among_the_options(boss: Actor) -> None:
    from asgiref.sync import async_to_sync

    with ModelServer() as server:
        made = endpoint_create(
            boss, **PORTKEY | {"options": {"portkey_config": "pc-fall-1a2b"}}, base_url=server.base_url
        )
        async_to_sync(call)(endpoint_value(made))
        assert sent_to(server)["x-portkey-config"] == "pc-fall-1a2b"


def test_rest_the_audit_log_the_form_and_errors_hold_nothing_of_a_config(boss: Actor, adam: Any) -> None:
    from asgiref.sync import async_to_sync

    client = Client()
    client.force_login(adam)
    with ModelServer() as server:
        body = PORTKEY | {"base_url": server.base_url, "gateway_config": CONFIG, "virtual_key": VIRTUAL}
        made = client.post("/api/v1/model-endpoints", json.dumps(body), content_type="application/json")
        assert made.status_code == 201, made.content
        row = ModelEndpoint.objects.get()
        form = {"name": "gateway", "kind": "portkey", "base_url": server.base_url, "virtual_key": VIRTUAL}
        refused = client.post(f"/endpoints/{row.id}/", form | {"gateway_config": '{"api_key": "' + INNER})
        assert refused.status_code == 400 and "no JSON" in refused.content.decode()
        server.will(act("status", code=401, error={"message": f"Incorrect key {INNER} for {VIRTUAL}"}))
        with pytest.raises(LLMError) as caught:
            async_to_sync(call)(endpoint_value(row))
    assert made.json()["has_gateway_config"] and made.json()["has_virtual_key"]
    everywhere = [
        made.content.decode(),
        refused.content.decode(),
        client.get(f"/api/v1/model-endpoints/{row.id}").content.decode(),
        client.get(f"/endpoints/{row.id}/").content.decode(),
        client.get(f"/admin/experiences/modelendpoint/{row.id}/change/").content.decode(),
        json.dumps(list(AuditEvent.objects.values("before", "after", "target"))),
        json.dumps([row.options, row.gateway_config, row.virtual_key]),
        str(caught.value),
        repr(endpoint_value(row)),
    ]
    for text in everywhere:
        assert INNER not in text and VIRTUAL not in text
    assert "has_gateway_config" in everywhere[5]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"portkey_config": CONFIG}, "kept sealed"),
        ({"portkey_config": json.dumps(CONFIG)}, "kept sealed"),
        ({"portkey_config": 7}, "kept sealed"),
        ({"portkey_provider": {"a": 1}}, "is a text"),
        ({"portkey_metadata": "team"}, "object of texts"),
        ({"portkey_metadata": {"team": {"a": 1}}}, "object of texts"),
        ({"portkey_custom_host": "https://me:word@host/v1"}, "no user or password"),
        ({"extra": {"api_key": "whatever"}}, "looks like a key"),
        ({"portkey_provider": "sk-abcdefghijkl"}, "looks like a key"),
        ({"extra": {"user": "Bearer abcdefgh"}}, "looks like a key"),
        ({"extra": {"service_tier": "priority"}}, "cost more than what is held"),
    ],
)
def test_options_hold_no_secrets(boss: Actor, options: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        endpoint_create(boss, **PORTKEY | {"options": options}, base_url="https://gateway.example/v1")
    assert "whatever" not in str(caught.value) and "abcdefgh" not in str(caught.value)
    assert not ModelEndpoint.objects.exists()


def test_a_config_stays_with_its_host_gives_way_to_a_saved_one_and_is_forgotten_with_the_endpoint(boss: Actor) -> None:
    made = endpoint_create(boss, **PORTKEY, base_url="https://one.example/v1", gateway_config=CONFIG)
    endpoint_update(boss, made, model="other", gateway_config="")
    assert json.loads(opened(made.gateway_config)) == CONFIG
    with pytest.raises(Invalid, match="another host"):
        endpoint_update(boss, ModelEndpoint.objects.get(), base_url="https://two.example/v1")
    with pytest.raises(Invalid, match="not both"):
        endpoint_update(boss, ModelEndpoint.objects.get(), options={"portkey_config": "pc-1"}, gateway_config=CONFIG)
    named = endpoint_update(boss, ModelEndpoint.objects.get(), options={"portkey_config": "pc-1"}, virtual_key=VIRTUAL)
    assert (named.gateway_config, opened(named.virtual_key)) == ("", VIRTUAL)
    endpoint_archive(boss, named)
    named.refresh_from_db()
    assert (named.api_key, named.gateway_key, named.virtual_key, named.gateway_config) == ("", "", "", "")


@pytest.mark.parametrize("config", [json.dumps(CONFIG), "pc-saved-1"])
def test_the_environments_config_is_a_saved_ones_id_or_a_config_itself(settings: Any, config: str) -> None:
    settings.LLM_BASE_URL, settings.LLM_MODEL = "https://gateway.example/v1", "small"
    settings.PORTKEY_CONFIG, settings.PORTKEY_VIRTUAL_KEY = config, VIRTUAL
    value = endpoint_value(None)
    sent = value.headers["x-portkey-config"]
    assert value.kind == "portkey" and INNER not in repr(value) and INNER not in repr(value.headers)
    if config.startswith("{"):
        assert json.loads(sent.reveal()) == CONFIG  # type: ignore[union-attr]
        assert value.safe(f"bad key {INNER}") == "bad key ***"
    else:
        assert sent == "pc-saved-1"
    settings.PORTKEY_CONFIG = '{"api_key": "' + INNER
    with pytest.raises(BadEndpoint, match="PORTKEY_CONFIG") as caught:
        endpoint_value(None)
    assert INNER not in str(caught.value)


def test_a_config_that_stood_among_the_options_is_sealed_by_the_migration(acme: Organization) -> None:
    def made(name: str, config: Any) -> ModelEndpoint:
        options = {"portkey_config": config, "retry_s": 9}
        return ModelEndpoint.objects.create(
            organization=acme, name=name, base_url="https://a.example/v1", options=options
        )

    rows = [made("object", CONFIG), made("text", json.dumps(CONFIG)), made("id", "pc-1")]
    importlib.import_module("experiences.migrations.0007_gateway_secrets").seal(apps, None)
    for row in rows:
        row.refresh_from_db()
    assert [row.options for row in rows] == [{"retry_s": 9}] * 2 + [{"portkey_config": "pc-1", "retry_s": 9}]
    assert [json.loads(opened(row.gateway_config)) for row in rows[:2]] == [CONFIG] * 2 and not rows[2].gateway_config


def test_a_providers_quotation_of_a_prompt_reaches_no_error(boss: Actor) -> None:
    from asgiref.sync import async_to_sync

    with ModelServer() as server:
        made = endpoint_create(boss, **PORTKEY, base_url=server.base_url)
        server.will(act("status", code=400, error={"message": "bad prompt 'Write to jane.doe@example.org'"}))
        with pytest.raises(LLMError) as caught:
            async_to_sync(call)(endpoint_value(made))
    assert "bad prompt" in str(caught.value) and "jane" not in str(caught.value)


def test_an_archived_endpoints_name_is_free_and_an_archived_agent_stays_unchanged(adam: Any, acme: Any) -> None:
    boss = Actor(adam)
    first = endpoint_create(boss, name="desk", base_url="http://127.0.0.1:9/v1", model="small")
    with pytest.raises(Conflict, match="already an endpoint called"):
        endpoint_create(boss, name="desk", base_url="http://127.0.0.1:9/v1", model="small")
    endpoint_archive(boss, first)
    assert endpoint_create(boss, name="desk", base_url="http://127.0.0.1:9/v1", model="small").pk != first.pk
    agent = AgentFactory(organization=acme, created_by=adam)
    agent_archive(boss, agent)
    with pytest.raises(Conflict, match="is archived"):
        agent_update(boss, agent, description="Another one.")


def test_options_of_an_endpoint_win_over_those_of_its_services_profile(adam: Any, client: Client) -> None:
    row = endpoint_create(Actor(adam), name="M", base_url="https://api.mistral.ai/v1", model="mistral-small")
    assert {"seed", "stream_options"} <= set(endpoint_value(row).leave_out)
    assert endpoint_value(row).max_tokens_field == "max_tokens"
    endpoint_update(Actor(adam), row, options={"leave_out": ["temperature"]})
    assert endpoint_value(row).leave_out == ["temperature"]
    client.force_login(adam)
    assert "Facts about this service" in client.get(f"/endpoints/{row.pk}/").content.decode()
