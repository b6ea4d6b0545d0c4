"""Requests in the forms in which client libraries write them, and what of them reaches the model's service."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from budgets.llm.types import Completion, Endpoint, ToolCall
from budgets.meter_port import Bill
from budgets.pricing import Usage
from evaluation.serving.gateway.passed_fields import fields_check
from evaluation.serving.gateway.request import request_of
from evaluation.serving.gateway.responses import ResponsesInterface
from experiences.rollouts.runtimes import responses_answer
from experiences.rollouts.runtimes.chat_body import BadCall, body_in
from experiences.rollouts.runtimes.responses_answer import ResponseStream, response_begun, response_json
from experiences.rollouts.runtimes.responses_body import ResponsesBody
from experiences.rollouts.runtimes.responses_tools import input_until

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
        ({"store": True, "client_metadata": {"x-codex-installation-id": "1"}, "include": []}, {}),
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


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: BEGIN LINE+ END"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}
SHELL = {"type": "function", "name": "exec", "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "mcp__desk", "description": "A desk.", "tools": [SHELL, PATCH]}
TEXT = '*** Begin Patch\n*** Update File: a.py\n-x = "é\\\\n"\n+x = "😀"\n*** End Patch\n'


def called(name: str, arguments: str, *, number: int = 0) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    body = {"tools": [PATCH, SHELL], "tool_choice": {"type": "custom", "name": "apply_patch"}}
    sent_body = responded(body)
    custom, shell = sent_body["tools"]
    assert (custom["type"], custom["function"]["name"]) == ("function", "apply_patch")
    assert custom["function"]["parameters"]["required"] == ["input"]
    assert custom["function"]["parameters"]["properties"]["input"]["type"] == "string"
    words = custom["function"]["description"]
    assert words.startswith("Edits files.") and "lark" in words and GRAMMAR["definition"] in words
    assert shell == {"type": "function", "function": {"name": "exec", "parameters": {"type": "object"}}}
    assert sent_body["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    plain = responded({"tools": [{"type": "custom", "name": "note", "format": {"type": "text"}}]})
    assert plain["tools"][0]["function"]["name"] == "note" and "grammar" not in str(plain["tools"])
    some = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "apply_patch"}]}
    named = responded({"tools": [PATCH], "tool_choice": some})["tool_choice"]["allowed_tools"]["tools"]
    assert named == [{"type": "function", "function": {"name": "apply_patch"}}]


def test_calls_of_custom_tools_go_back_as_calls_of_their_functions() -> None:
    call = {"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "c1", "name": "apply_patch",
            "input": TEXT, "extra_content": {"google": {"thought_signature": "c2ln"}}}  # fmt: skip
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."}
    within = {"type": "function_call", "call_id": "c2", "name": "exec", "namespace": "mcp__desk", "arguments": "{}"}
    parts = [{"type": "input_text", "text": "1"}]
    result = {"type": "function_call_output", "call_id": "c2", "output": parts}
    found = responded({"input": [ASKED, call, output, within, result], "tools": [PATCH, SPACE]})["messages"]
    assert [one["role"] for one in found] == ["user", "assistant", "tool", "assistant", "tool"]
    (sent_call,) = found[1]["tool_calls"]
    assert orjson.loads(sent_call["function"]["arguments"]) == {"input": TEXT}
    assert sent_call["function"]["name"] == "apply_patch" and sent_call["extra_content"] == call["extra_content"]
    assert set(sent_call) == {"id", "type", "function", "extra_content"}
    assert found[2] == {"role": "tool", "tool_call_id": "c1", "content": "Done."}
    assert found[3]["tool_calls"][0]["function"] == {"name": "mcp__desk__exec", "arguments": "{}"}
    assert found[4]["content"] == "1"


def whole_response(body: dict[str, Any], *calls: ToolCall) -> dict[str, Any]:
    """The response that answers with ``calls``."""
    asked = body_in(orjson.dumps({"input": "?"} | body), ResponsesBody)
    bill = Bill(0, None, "none")
    found = Completion("", calls, "tool_calls", Usage(1, 1), 0, "m", 0, "i", bill)
    return response_json(response_begun(asked, "small"), found)


def test_calls_come_back_in_the_words_of_their_tools() -> None:
    given = {"input": TEXT}
    calls = (
        ToolCall("c0", "apply_patch", given),
        ToolCall("c1", "exec", {"cmd": "ls"}, '{"cmd":"ls"}'),
        ToolCall("c2", "mcp__desk__apply_patch", given),
        ToolCall("c3", "mcp__desk__exec", {}, "{}"),
        ToolCall("c4", "unheard_of", {}, "{}"),
    )
    whole = whole_response({"tools": [PATCH, SHELL, SPACE]}, *calls)
    found = [{name: one[name] for name in one if name not in ("id", "status")} for one in whole["output"]]
    assert found == [
        {"type": "custom_tool_call", "call_id": "c0", "name": "apply_patch", "input": TEXT},
        {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": '{"cmd":"ls"}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "namespace": "mcp__desk", "input": TEXT},
        {"type": "function_call", "call_id": "c3", "name": "exec", "namespace": "mcp__desk", "arguments": "{}"},
        {"type": "function_call", "call_id": "c4", "name": "unheard_of", "arguments": "{}"},
    ]
    assert len({one["id"] for one in whole["output"]}) == 5
    assert [one["name"] for one in whole["tools"]] == ["apply_patch", "exec", "mcp__desk"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ToolCall("c", "apply_patch", {"input": "a", "note": "b"}), "a"),
        (ToolCall("c", "apply_patch", {"patch": "a"}), "a"),  # the model's own name for it
        (ToolCall("c", "apply_patch", {}, "*** Begin Patch", "no JSON"), "*** Begin Patch"),
        (ToolCall("c", "apply_patch", {}), ""),
        (ToolCall("c", "apply_patch", {"input": ["a"]}), '{"input": ["a"]}'),
    ],
)
def test_the_text_of_a_custom_call_is_found_where_models_put_it(call: ToolCall, text: str) -> None:
    (item,) = whole_response({"tools": [PATCH]}, call)["output"]
    assert item["input"] == text


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_streamed_custom_call_grows_by_its_text(size: int, ascii_only: bool) -> None:
    body = {"tools": [PATCH, SHELL], "stream": True}
    arguments = json.dumps({"input": TEXT}, ensure_ascii=ascii_only)
    whole = whole_response(body, ToolCall("c0", "apply_patch", {"input": TEXT}), ToolCall("c1", "exec", {}, "{}"))
    stream = ResponseStream(whole | {"output": []})
    events = list(stream.called(0, "", call_id="c0", name="apply"))
    events += stream.called(0, "", name="_patch")  # a name in two pieces
    for at in range(0, len(arguments), size):
        events += stream.called(0, arguments[at : at + size])
    events += stream.called(1, "{}", call_id="c1", name="exec")
    events += stream.end(whole)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    custom = [one for one in events if "custom_tool_call_input" in one["type"]]
    *deltas, done = custom
    assert {one["type"] for one in deltas} == {"response.custom_tool_call_input.delta"}
    assert "".join(one["delta"] for one in deltas) == done["input"] == TEXT and all(one["delta"] for one in deltas)
    assert done["type"] == "response.custom_tool_call_input.done" and (len(deltas) > 5) is (size < 10)
    added, *_ = [one for one in events if one["type"] == "response.output_item.added"]
    assert (added["item"]["type"], added["item"]["input"], added["item"]["name"]) == (
        "custom_tool_call", "", "apply_patch",
    )  # fmt: skip
    assert {(one["item_id"], one["output_index"]) for one in custom} == {(added["item"]["id"], 0)}
    ended = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert ended == events[-1]["response"]["output"]
    assert [one["status"] for one in ended] == ["completed"] * 2 and ended[0]["input"] == TEXT


def test_a_long_streamed_text_is_not_read_from_its_beginning_at_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(arguments: str) -> str:
        reads.append(len(arguments))
        return input_until(arguments)

    monkeypatch.setattr(responses_answer, "input_until", read)
    stream = ResponseStream(whole_response({"tools": [PATCH]}))
    for piece in ('{"input": "', *["x"] * 20_000):
        list(stream.called(0, piece, call_id="c", name="" if piece == "x" else "apply_patch"))
    assert sum(reads) < 20 * 20_011 and reads[-1] > 18_000


@pytest.mark.parametrize(
    ("body", "field", "word"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0", "send the item itself"),
        ({"tools": [SHELL, {"type": "web_search"}]}, "tools.1.type", 'web_search = "disabled"'),
        ({"tools": [{"type": "local_shell"}]}, "tools.0.type", "function, custom, namespace"),
        ({"tools": [SPACE, SHELL | {"name": "mcp__desk__exec"}]}, "tools", "mcp__desk__exec"),
        ({"tools": [PATCH, SHELL | {"name": "apply_patch"}]}, "tools", "apply_patch"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [SPACE]}]}, "tools.0", "holds functions"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools.0", "holds functions"),
        ({"tools": [PATCH | {"format": {"type": "grammar"}}]}, "tools.0.format", "definition"),
        ({"store": "yes"}, "store", ""),
    ],
)
def test_what_a_response_can_t_carry_is_refused_with_what_to_do(body: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(BadCall) as refused:
        responded(body)
    assert (refused.value.status, refused.value.param) == (400, field) and word in str(refused.value)


def test_a_request_as_codex_writes_it_is_taken_whole() -> None:
    def said(role: str, text: str, kind: str = "input_text", **more: Any) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}

    shell = {"type": "function", "name": "exec_command", "description": "Runs.", "strict": False,
             "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}}  # fmt: skip
    given = [
        said("developer", "<permissions>…</permissions>"),
        said("user", "<environment_context>…</environment_context>"),
        said("user", "Fix the test."),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
        said("assistant", "I look.", "output_text", phase="commentary"),
        {"type": "function_call", "id": "fc_1", "name": "exec_command", "arguments": '{"cmd":"ls"}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        {"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "c2", "name": "apply_patch",
         "input": TEXT},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Success."},
    ]  # fmt: skip
    body = {
        "model": "small", "instructions": "You are a coding agent.", "input": given,
        "tools": [shell, PATCH, SPACE], "tool_choice": "auto", "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread-1", "text": {"verbosity": "medium"},
        "client_metadata": {"x-codex-installation-id": "1"},
    }  # fmt: skip
    found = responded(body)
    roles = ["system", "system", "user", "user", "assistant", "tool", "assistant", "tool"]
    assert [one["role"] for one in found["messages"]] == roles
    assert found["messages"][4]["content"] == "I look." and len(found["messages"][4]["tool_calls"]) == 1
    names = [one["function"]["name"] for one in found["tools"]]
    assert names == ["exec_command", "apply_patch", "mcp__desk__exec", "mcp__desk__apply_patch"]
    assert found["stream"] is True and found["parallel_tool_calls"] is False and found["tool_choice"] == "auto"
    assert not {"store", "include", "client_metadata", "instructions"} & found.keys()
