"""Each dialect of chat completions behind the gateway, and the ``openai`` package before it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from budgets.llm.profiles import profile_options
from budgets.services import price_set
from experiences.agents.services.endpoints import endpoint_create
from tests.support.dialects import DIALECTS, DialectServer
from tests.support.workers import Fleet

pytestmark = pytest.mark.django_db(transaction=True)

FEW = ("openai-gpt-5", "azure", "mistral", "groq")
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Calculates.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
SHAPE = {"type": "json_schema", "json_schema": {"name": "ready", "schema": {"type": "object"}}}
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Are you ready?"}]


@contextlib.contextmanager
def served(
    adam: Any, fleet: Fleet, journal: str, names: Any
) -> Iterator[tuple[openai.OpenAI, dict[str, DialectServer]]]:
    """A gateway before a server of each dialect, whose endpoint is called by the dialect's name."""
    actor, organization = Actor(adam), adam.memberships.get().organization
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(DialectServer(DIALECTS[name])) for name in names}
        for name, server in servers.items():
            dialect = server.dialect
            options = profile_options(dialect.address, dialect.model, dialect.kind) | {"max_retries": 0}
            endpoint_create(
                actor,
                name=name,
                base_url=server.base_url,
                model=dialect.model,
                kind=dialect.kind,
                api_key="sk-1",
                options=options,
            )
            price_set(actor, model=dialect.model, organization=organization, input_micros=10**6, output_micros=10**6)
        _, key = api_key_create(actor, name="dialects", scopes=["gateway:call"])
        port = fleet.web(GATEWAY_JOURNAL=journal)
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0), servers


def answered_as_it_should(client: openai.OpenAI, model: str) -> None:
    """Chat, tools in two turns, JSON, a stream and Responses, as any program calls them."""
    completions: Any = client.chat.completions
    sampling = {"temperature": 0.7, "seed": 7, "top_p": 0.9}
    plain = completions.create(model=model, messages=TALK, max_tokens=60, **sampling)
    assert plain.choices[0].message.content == "I am ready." and plain.usage.total_tokens > 0

    tools_used(completions, model, sampling)

    shaped = completions.create(model=model, messages=TALK, response_format=SHAPE, max_tokens=60)
    assert json.loads(shaped.choices[0].message.content) == {"ready": True}

    pieces = completions.create(model=model, messages=TALK, stream=True, max_tokens=60, **sampling)
    assert "".join(one.choices[0].delta.content or "" for one in pieces if one.choices) == "I am ready."

    responded = client.responses.create(
        model=model,
        instructions="Be brief.",
        input="Are you ready?",
        max_output_tokens=60,
        temperature=0.7,
        store=False,
    )
    assert responded.output_text == "I am ready."


def tools_used(completions: Any, model: str, sampling: dict[str, Any]) -> None:
    asked = [*TALK, {"role": "user", "content": "What is 17 * 25?"}]
    first = completions.create(model=model, messages=asked, tools=[CALCULATOR], max_completion_tokens=60, **sampling)
    [call] = first.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"expression": "17 * 25"}
    given = [
        first.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "425"},
    ]
    second = completions.create(model=model, messages=[*asked, *given], tools=[CALCULATOR], max_tokens=60, **sampling)
    assert second.choices[0].message.content == "Answer: 425"


def test_programs_reach_services_of_a_few_dialects(adam: Any, fleet: Fleet, journal: str) -> None:
    with served(adam, fleet, journal, FEW) as (client, servers):
        for name, server in servers.items():
            answered_as_it_should(client, f"{name}/{server.dialect.model}")
            assert not server.refused, name


@pytest.mark.thorough(reason="eighteen servers, six calls each")
def test_programs_reach_services_of_all_dialects(adam: Any, fleet: Fleet, journal: str) -> None:
    with served(adam, fleet, journal, DIALECTS) as (client, servers):
        for name, server in servers.items():
            answered_as_it_should(client, f"{name}/{server.dialect.model}")
            assert not server.refused, name
