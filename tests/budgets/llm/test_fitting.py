"""Requests that fit their service: what it refuses is left out, and its roles are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from budgets.llm.fitting import without_system
from budgets.llm.request import encode
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint, Message, ToolSpec
from evaluation.serving.gateway.request import request_of
from tests.support.llm_client import ask, client, endpoint
from tests.support.llm_server import ModelServer

TALK = (Message("system", "Be brief."), Message("user", "Hi"))


def sent(made: Endpoint, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode(made, TALK, max_tokens=9, stream=True, **options).body)
    return body


def passed(made: Endpoint, **body: Any) -> dict[str, Any]:
    request = request_of({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body})
    result: dict[str, Any] = json.loads(request.for_model(made, "Be brief.", 0).body)
    return result


@pytest.mark.parametrize(
    "name", ["seed", "temperature", "top_p", "stop", "stream_options", "parallel_tool_calls", "tool_choice"]
)
def test_what_is_left_out_is_never_sent(server: ModelServer, name: str) -> None:
    given = {"extra": {"top_p": 0.9}}
    options = {
        "seed": 1,
        "temperature": 0.5,
        "stop": ["x"],
        "tools": [ToolSpec("add")],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
    }
    assert name in sent(endpoint(server, **given), **options)
    assert name not in sent(endpoint(server, **given, leave_out=[name]), **options)
    body = {"seed": 1, "temperature": 0.5, "stop": "x", "top_p": 0.1, "stream": True, "parallel_tool_calls": False}
    assert name not in passed(endpoint(server, **given, leave_out=[name]), **body, tool_choice="auto")


@pytest.mark.parametrize("names", [["messages"], ["max_tokens"], ["tools"], "seed", [3], [""]])
def test_what_makes_a_call_or_bounds_it_is_not_left_out(server: ModelServer, names: Any) -> None:
    with pytest.raises(ValueError, match="leave_out"):
        endpoint(server, leave_out=names)


def test_the_systems_words_come_before_the_users(server: ModelServer) -> None:
    made = endpoint(server, system_as_user=True)
    folded = [{"role": "user", "content": "Be brief.\n\nHi"}]
    assert sent(made)["messages"] == folded == passed(made)["messages"]


@pytest.mark.parametrize(
    ("roles", "folded"),
    [
        ("s", "u:s0"),
        ("ssu", "u:s0+s1+u2"),
        ("usu", "u:u0 u:s1+u2"),
        ("uas", "u:u0 a:a1 u:s2"),
        ("sau", "u:s0 a:a1 u:u2"),
        ("ua", "u:u0 a:a1"),
    ],
)
def test_each_system_message_is_put_into_a_users(roles: str, folded: str) -> None:
    names = {"s": "system", "u": "user", "a": "assistant"}
    given = [{"role": names[role], "content": f"{role}{at}"} for at, role in enumerate(roles)]
    shown = [f"{one['role'][0]}:{one['content']}".replace("\n\n", "+") for one in without_system(given)]
    assert " ".join(shown) == folded


def test_parts_stay_parts_when_the_systems_words_are_put_before_them() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    system = without_system([{"role": "developer", "content": "Look."}, {"role": "user", "content": [image]}])
    assert system == [{"role": "user", "content": [{"type": "text", "text": "Look."}, image]}]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_callers_field_of_length_is_kept_unless_the_endpoint_names_one(server: ModelServer, field: str) -> None:
    assert passed(endpoint(server), **{field: 50})[field] == 50
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[field]
    body = passed(endpoint(server, max_tokens_field=other), **{field: 50})
    assert body[other] == 50 and field not in body
    assert sent(endpoint(server))["max_tokens"] == 9


@pytest.mark.parametrize("header", ["api-key", "x-api-key"])
async def test_the_key_goes_into_the_header_of_the_service(server: ModelServer, header: str) -> None:
    await ask(client(server, api_key=Secret("sk-azure-1"), key_header=header))
    headers = server.requests[-1].headers
    assert headers[header] == "sk-azure-1" and "authorization" not in headers
