"""Requests as other programs send them to the gateway, and refusals as they have to see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.endpoints import endpoint_create
from tests.evaluation.serving.production import ASKED, Production, production
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = "https://app.example.org"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str) -> Production:
    return production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal, GATEWAY_ORIGINS=PAGE)


def test_other_programs_requests_are_taken_as_they_come(shop: Production, server: ModelServer, adam: Any) -> None:
    base, key = shop.base_url, {"authorization": f"Bearer {shop.key}"}
    name = f"agent:{shop.agent.slug}"

    # one model by its name, also with a slash in it
    assert openai.OpenAI(base_url=base, api_key=shop.key).models.retrieve(name).id == name
    endpoint_create(Actor(adam), name="Many", base_url=server.base_url, model="small/of")
    result = httpx.get(f"{base}/models/small/of", headers=key).json()
    assert (result["id"], result["object"]) == ("small/of", "model")
    missing = httpx.get(f"{base}/models/other", headers=key)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")

    # the key in Azure's or Anthropic's header, a slash at the end, the caller's own name of the length
    body = {"model": name, "messages": ASKED, "max_completion_tokens": 30, "service_tier": "default"}
    for header in ("api-key", "x-api-key"):
        answer = httpx.post(f"{base}/chat/completions/", json=body, headers={header: shop.key}, timeout=60)
        assert answer.status_code == 200, answer.text
    received = server.requests[-1].body
    assert received["max_completion_tokens"] == 30 and "max_tokens" not in received
    assert httpx.post(f"{base}/chat/completions", json=body, headers={"api-key": "ac_no"}).status_code == 401

    # a base URL without /v1
    for path in ("chat/completions", "responses/"):
        lost = httpx.post(f"{base.removesuffix('/v1')}/{path}", json=body, headers=key)
        assert lost.status_code == 404 and "ends with /v1" in lost.json()["error"]["message"]

    # a page of an allowed site, and one of another
    allowed = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "api-key"}
    asks = httpx.options(f"{base}/chat/completions", headers=allowed)
    assert asks.status_code == 204 and asks.headers["access-control-allow-origin"] == PAGE
    assert asks.headers["access-control-allow-headers"] == "api-key"
    refused = httpx.get(f"{base}/models", headers={"origin": PAGE})
    assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == PAGE
    streamed = httpx.post(f"{base}/chat/completions", json={**body, "stream": True}, headers={**key, "origin": PAGE})
    assert streamed.headers["access-control-allow-origin"] == PAGE and "[DONE]" in streamed.text
    other = httpx.options(f"{base}/models", headers={**allowed, "origin": "https://evil.example"})
    assert other.status_code == 204 and "access-control-allow-origin" not in other.headers

    # what the service refuses does not reach it, and the caller sees that
    row = shop.agent.endpoint
    row.options = {"leave_out": ["temperature"], "system_as_user": True}
    row.save()
    mine = {"model": "small", "messages": [{"role": "system", "content": "Short."}, *ASKED], "temperature": 0.3}
    fitted = httpx.post(f"{base}/chat/completions", json=mine, headers=key, timeout=60)
    assert fitted.headers["x-agentcore-left-out"] == "temperature"
    received = server.requests[-1].body
    assert "temperature" not in received and [one["role"] for one in received["messages"]] == ["user"]


def test_a_refusal_keeps_its_code_and_an_odd_answer_is_paid_for_once(shop: Production, server: ModelServer) -> None:
    client = openai.OpenAI(base_url=shop.base_url, api_key=shop.key, max_retries=2)

    def refused(**more: Any) -> Any:
        with pytest.raises(openai.APIStatusError) as error:
            client.chat.completions.create(model=f"agent:{shop.agent.slug}", messages=ASKED, **more)
        return error.value

    for code, param in (("content_filter", "prompt"), ("context_length_exceeded", "messages")):
        server.will(act("status", code=400, error={"message": "no", "code": code, "param": param}))
        result = refused()
        assert (result.status_code, result.code, result.param) == (400, code, param)
    server.will(act("status", code=400, body=json.dumps({"message": "prompt is too long"}).encode()))
    assert refused().code == "context_length_exceeded"
    server.requests.clear()
    server.will(*[act("status", code=429, error={"message": "used up", "code": "insufficient_quota"})] * 3)
    assert refused().code == "insufficient_quota" and len(server.requests) == 1
    server.script.clear()
    # the site's key at the service: no word about the caller's key, and nothing that a client sends again
    for status, code in ((401, "invalid_api_key"), (403, "model_not_allowed")):
        server.requests.clear()
        server.will(*[act("status", code=status, error={"message": "no access to the model", "code": code})] * 3)
        result = refused()
        assert (result.status_code, result.code, result.type) == (424, "upstream_authentication", "upstream_error")
        assert "not yours" in result.message and "no access to the model" in result.message
        assert len(server.requests) == 1
        server.script.clear()
    # so is a model or an address that the service does not know: the caller's ``model`` is the agent
    server.requests.clear()
    server.will(*[act("status", code=404, error={"message": "no such model", "code": "model_not_found"})] * 3)
    result = refused()
    assert (result.status_code, result.code, result.param) == (424, "upstream_model_not_found", None)
    assert "no such model" in result.message and len(server.requests) == 1
    server.script.clear()
    assert {one.status for one in shop.traces(7)[-3:]} == {"failed"}
    server.will(act("status", code=403, error={"code": 403, "message": "Your input was flagged"}))
    result = refused()
    assert (result.status_code, result.code) == (403, "content_filter") and "flagged" in result.message
    server.will(act("status", code=451, body=b'{"message": "not in your region"}'))
    assert "not in your region" in refused().message

    for stream in (False, True):
        anthropic = {"type": "message", "content": [{"type": "text", "text": "Hi"}]}
        for body, word in (
            ({"choices": []}, "choices"),
            ({"choices": None}, "choices"),
            ({"choices": [{"message": 3}]}, "choices"),
            (anthropic, "https://api.anthropic.com/v1"),
        ):
            server.requests.clear()
            server.will(*[act("json_body", value=body)] * 3)
            result = refused(stream=stream)
            assert result.status_code == 424 and word in result.message
            assert len(server.requests) == 1
            server.script.clear()
