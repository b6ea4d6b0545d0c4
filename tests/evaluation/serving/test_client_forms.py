"""Requests in the forms in which client libraries write them, and what of them reaches the model's service."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from budgets.llm.types import Endpoint
from evaluation.serving.gateway.passed_fields import fields_check
from evaluation.serving.gateway.request import request_of
from evaluation.serving.gateway.responses import ResponsesInterface
from experiences.rollouts.runtimes.chat_body import BadCall

ASKED = {"role": "user", "content": "Where is order 7?"}
FUNCTION = {"name": "late", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "c1", "type": "function", "function": {"name": "late", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}


def endpoint(address: str = "https://models.example.org/v1", **more: Any) -> Endpoint:
    return Endpoint(address, "small", **more)


def sent(body: dict[str, Any], to: Endpoint | None = None) -> dict[str, Any]:
    to = to or endpoint()
    request = request_of({"model": "small", "messages": [ASKED]} | body)
    fields_check(request.body, {"one": to})
    found: dict[str, Any] = orjson.loads(request.for_model(to, "", 40).body)
    return found


def responded(body: dict[str, Any]) -> dict[str, Any]:
    read = orjson.dumps({"model": "small", "input": "Where is order 7?"} | body)
    request = ResponsesInterface(read).request
    fields_check(request.body, {"one": endpoint()})
    found: dict[str, Any] = orjson.loads(request.for_model(endpoint(), "", 40).body)
    return found


@pytest.mark.parametrize(
    "nothing",
    [
        {"tools": []},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": [], "tool_choice": "none"},
        {"functions": [], "function_call": "auto"},
        {"tools": None, "tool_choice": None, "parallel_tool_calls": None},
        dict.fromkeys(("stop", "seed", "logprobs", "logit_bias", "response_format", "reasoning_effort", "verbosity")),
        dict.fromkeys(("user", "metadata", "store", "n", "prediction", "audio", "modalities", "service_tier")),
        {"n": 1, "store": False, "modalities": ["text"], "service_tier": "auto", "metadata": {"shop": "1"}},
        {"stream": False, "stream_options": {"include_usage": True}},
        {"stream": None, "stream_options": None, "max_completion_tokens": None},
    ],
)
def test_what_says_nothing_is_not_sent(nothing: dict[str, Any]) -> None:
    assert sent(nothing) == sent({})


def test_a_choice_among_tools_is_sent_with_them_alone() -> None:
    given = {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}
    assert {name: sent(given)[name] for name in given} == given
    with_functions = {"tools": [], "functions": [FUNCTION], "function_call": "auto"}
    assert sent(with_functions) | {"functions": [FUNCTION], "function_call": "auto"} == sent(with_functions)
    assert "tool_choice" in sent({"tools": [], "tool_choice": "required"})  # the service says what is wrong with it


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ASKED | {"name": None}, ASKED),
        (RESULT | {"name": None}, RESULT),
        (
            {"role": "assistant", "content": "Hi", "refusal": None, "audio": None, "function_call": None,
             "tool_calls": None, "annotations": []},
            {"role": "assistant", "content": "Hi", "annotations": []},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL], "function_call": None, "name": None},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
        ),
        ({"role": "assistant", "content": "Hi", "tool_calls": []}, {"role": "assistant", "content": "Hi"}),
        # what the service wants back is not ours to judge
        (
            {"role": "assistant", "content": "Hi", "reasoning_content": None},
            {"role": "assistant", "content": "Hi", "reasoning_content": None},
        ),
    ],
)  # fmt: skip
def test_empty_fields_of_a_clients_message_are_not_sent(message: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent({"messages": [ASKED, message, ASKED]})["messages"] == [ASKED, expected, ASKED]


def test_a_tool_is_sent_without_its_nulls() -> None:
    given = {"type": "function", "function": FUNCTION | {"description": None, "strict": None}}
    assert sent({"tools": [given]})["tools"] == [TOOL]
    strict = {"type": "function", "function": FUNCTION | {"strict": False}}
    assert sent({"tools": [strict]})["tools"] == [strict]


@pytest.mark.parametrize(
    ("address", "role"),
    [
        ("https://api.openai.com/v1", "developer"),
        ("https://shop.openai.azure.com/openai/deployments/gpt-5?api-version=1", "developer"),
        ("https://openrouter.ai/api/v1", "developer"),
        ("https://api.deepseek.com", "system"),
        ("https://api.mistral.ai/v1", "system"),
        ("http://127.0.0.1:11434/v1", "system"),
    ],
)
def test_a_developers_words_are_those_of_the_system_where_no_other_name_is_known(address: str, role: str) -> None:
    said = {"role": "developer", "content": "Be short."}
    assert sent({"messages": [said, ASKED]}, endpoint(address))["messages"] == [said | {"role": role}, ASKED]
    folded = sent({"messages": [said, ASKED]}, endpoint(address, system_as_user=True))["messages"]
    assert [one["role"] for one in folded] == ["user"]


@pytest.mark.parametrize(
    "field",
    [
        {"prompt_cache_key": "k"},
        {"prompt_cache_retention": "24h"},
        {"safety_identifier": "u"},
        {"reasoning_effort": "minimal"},
        {"verbosity": "low"},
        {"logprobs": True, "top_logprobs": 2},
        {"logit_bias": {"7": -100}},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "late"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "v", "strict": True, "schema": {}}}},
    ],
)
def test_a_field_of_the_api_reaches_the_service(field: dict[str, Any]) -> None:
    assert sent(field) | field == sent(field)


ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "late"}]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"prompt_cache_retention": "24h"}, {"prompt_cache_retention": "24h"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        (
            {"tools": [{"type": "function", **FUNCTION}], "tool_choice": ALLOWED},
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [{"type": "function", "function": {"name": "late"}}]}}},
        ),
        (
            {"input": [ASKED, {"type": "message", "role": "assistant", "id": "msg_1", "content": [
                {"type": "refusal", "refusal": "I can't."}]}, ASKED]},
            {"messages": [ASKED, {"role": "assistant", "content": "I can't."}, ASKED]},
        ),
        (
            {"input": [ASKED, {"role": "assistant", "content": [
                {"type": "output_text", "text": "Hm.", "annotations": [], "logprobs": []}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}, ASKED]},
            {"messages": [ASKED, {"role": "assistant", "content": "Hm."}, ASKED]},
        ),
        (dict.fromkeys(("store", "previous_response_id", "conversation", "prompt", "truncation", "include"))
         | {"tools": [], "text": {"format": {"type": "text"}, "verbosity": None}, "top_logprobs": None}, {}),
    ],
)  # fmt: skip
def test_a_response_is_asked_for_in_the_words_of_a_chat_completion(
    body: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = responded(body)
    assert found | expected == found


def test_a_summary_that_is_asked_for_for_certain_is_refused() -> None:
    for summary in ("detailed", "concise"):
        with pytest.raises(BadCall) as refused:
            responded({"reasoning": {"summary": summary}})
        assert refused.value.param == "reasoning.summary"
