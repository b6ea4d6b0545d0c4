"""Answers in the form of another API, and chat completions within the object of a proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from budgets.llm import errors, wire
from budgets.llm.stream import Assembly, StreamDelta
from budgets.llm.types import Answer, Completion
from tests.support.llm_acts import act
from tests.support.llm_client import ask, client, key
from tests.support.llm_server import ModelServer

HI = {"role": "assistant", "content": "Hi"}
WHOLE = {"id": "c1", "model": "small", "choices": [{"message": HI, "finish_reason": "stop"}]}
COUNTED = {"prompt_tokens": 4, "completion_tokens": 1}
ANTHROPIC, GEMINI, OLLAMA = "api.anthropic.com/v1", "v1beta/openai", "11434/v1"
OTHERS: list[tuple[Any, str]] = [
    # an answer, and a part of the base URL that is named
    ({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}],
      "usage": {"input_tokens": 4, "output_tokens": 1}}, ANTHROPIC),
    ({"type": "message", "content": [], "stop_reason": "end_turn"}, ANTHROPIC),
    ({"candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}}], "usageMetadata": {}}, GEMINI),
    ([{"candidates": [{"content": {"parts": [{"text": "H"}]}}]}, {"candidates": [{"finishReason": "STOP"}]}], GEMINI),
    ({"promptFeedback": {"blockReason": "SAFETY"}}, GEMINI),
    ({"model": "llama3.2", "created_at": "2026-11-28T00:00:00Z", "message": HI, "done": True, "eval_count": 1}, OLLAMA),
    ({"model": "llama3.2", "response": "Hi", "done": True}, OLLAMA),
    ({"object": "response", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}]},
     "before /responses"),
    ({"id": "1", "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
      "finish_reason": "COMPLETE"}, "compatibility/v1"),
    ({"text": "Hi", "generation_id": "1", "finish_reason": "COMPLETE"}, "compatibility/v1"),
    ({"output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}}, "stopReason": "end_turn"},
     "bedrock-runtime"),
    ({"output": {"text": "Hi", "finish_reason": "stop"}, "usage": {}, "request_id": "1"}, "compatible-mode/v1"),
    ([{"generated_text": "Hi"}], "with /v1"),
    ({"generated_text": "Hi"}, "with /v1"),
    ({"content": "Hi", "stop": True, "tokens_predicted": 1, "id_slot": 0}, "8080/v1"),
    ({"result": {"response": "Hi"}, "success": True, "errors": [], "messages": []}, "/ai/v1"),
    ({"object": "list", "data": [{"id": "small", "object": "model"}]}, "before /models"),
]  # fmt: skip
STREAMS: list[tuple[list[Any], str]] = [
    ([{"type": "message_start", "message": {"content": []}}, {"type": "content_block_delta", "delta": {}}], ANTHROPIC),
    ([{"type": "content_block_delta", "index": 0, "delta": {"text": "H"}}], ANTHROPIC),
    ([{"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}], GEMINI),
    ([{"message": HI, "done": False}, {"message": {"content": ""}, "done": True}], OLLAMA),
    ([{"type": "response.created", "response": {}}, {"type": "response.output_text.delta", "delta": "Hi"}],
     "before /responses"),
    ([{"type": "message-start", "id": "1"}, {"type": "content-delta", "delta": {}}], "compatibility/v1"),
    ([{"token": {"id": 1, "text": "Hi"}, "generated_text": None}], "with /v1"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "base"), OTHERS)
def test_an_answer_of_another_api_names_the_base_url_of_chat_completions(body: Any, base: str) -> None:
    with pytest.raises(errors.Malformed) as found:
        wire.parse(json.dumps(body).encode())
    assert found.value.other and base in found.value.message and "not of chat completions" in found.value.message
    assert "Hi" not in found.value.message  # words of an internal service are not read back


@pytest.mark.parametrize(("events", "base"), STREAMS)
def test_so_does_a_stream_of_another_api(events: list[Any], base: str) -> None:
    with pytest.raises(errors.Malformed) as found:
        added(*events)
    assert found.value.other and base in found.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_it_is_not_asked_again_and_costs_what_came(server: ModelServer, stream: bool) -> None:
    server.will(*[act("json_body", value=OTHERS[0][0])] * 3)
    with pytest.raises(errors.OtherApi) as found:
        await ask(client(server, max_retries=2), stream=stream)
    assert found.value.attempts == 1 and found.value.spent_micros == 4 * 3 + 15
    server.requests.clear()
    server.script.clear()
    server.will(act("json_body", value=OTHERS[5][0]))
    with pytest.raises(errors.OtherApi) as found:  # no count of the prompt: measured
        await ask(client(server))
    assert 0 < found.value.spent_micros < 64 * 15 + 1_000


def added(*events: Any) -> tuple[Answer, list[StreamDelta]]:
    assembly, found = Assembly(10**6), list[StreamDelta]()
    for event in events:
        found += assembly.add(event if isinstance(event, str) else json.dumps(event))
    return wire.read(assembly.value()), found


@pytest.mark.parametrize("form", [
    lambda inner: {"data": inner},
    lambda inner: {"code": 0, "message": "success", "data": inner},
    lambda inner: {"result": inner, "success": True, "errors": [], "messages": []},
    lambda inner: {"response": inner, "status": "ok"},
    lambda inner: {"output": inner, "request_id": "1"},
    lambda inner: {"statusCode": 200, "body": json.dumps(inner)},
    lambda inner: {"data": {"result": [inner]}},
    lambda inner: [inner],
])  # fmt: skip
async def test_a_chat_completion_within_an_object_is_read(server: ModelServer, form: Any) -> None:
    server.will(act("json_body", value=form(WHOLE | {"usage": COUNTED})))
    texts: list[str] = []
    found: Completion = await ask(client(server), on_delta=texts.append)
    assert (found.text, found.finish_reason, found.usage.input_tokens, "".join(texts)) == ("Hi", "stop", 4, "Hi")

    chunks = ({"choices": [{"index": 0, "delta": {"content": "Hi"}}]}, {"choices": [], "usage": COUNTED})
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    answer, passed = added(*map(form, chunks), form(end), "[DONE]")
    assert (answer.text, answer.finish_reason, answer.usage.output_tokens) == ("Hi", "stop", 1)
    assert all("choices" in json.loads(one.data) for one in passed[:-1])  # as clients of chat completions read them


def test_a_usage_beside_the_object_counts() -> None:
    found = wire.parse(json.dumps({"output": WHOLE, "usage": {"input_tokens": 4, "output_tokens": 1}}).encode())
    assert (found.text, found.usage.input_tokens, found.usage.output_tokens) == ("Hi", 4, 1)


@pytest.mark.parametrize("body", [
    {"data": WHOLE, "result": WHOLE},  # two answers
    {"data": [WHOLE, WHOLE]},
    {"data": {"text": "Hi"}},
    {"data": WHOLE, "error": {"message": "no"}},
    {"data": {"data": {"data": {"data": {"data": {"data": WHOLE}}}}}},
])  # fmt: skip
def test_what_may_mean_something_else_is_not_read(body: Any) -> None:
    with pytest.raises(errors.Malformed):
        wire.parse(json.dumps(body).encode())


@pytest.mark.parametrize("status", [404, 405])
async def test_an_address_that_takes_no_calls_is_no_word_about_the_request(server: ModelServer, status: int) -> None:
    server.will(act("status", code=status, body=b"<html>Method Not Allowed</html>", kind="text/html"))
    with pytest.raises(errors.ModelNotFound):
        await ask(client(server), key=key())
