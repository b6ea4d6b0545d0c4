"""Streams and bodies as servers write them against the letter, from public reports: each is read as what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from budgets.llm import errors, wire
from budgets.llm.events import EventReader
from budgets.llm.standard import standard_body
from budgets.llm.stream import Assembly, StreamDelta
from budgets.llm.types import Answer, ReportedUsage
from budgets.meter_port import FreeMeter
from tests.support.llm_client import ask, client
from tests.support.llm_server import ModelServer
from tests.support.raw_server import RawServer, response

STOP: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def sse(*chunks: Any, done: bool = True) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n" * done


def deltas(body: bytes) -> tuple[list[StreamDelta], Assembly]:
    reader, assembly = EventReader(2**20), Assembly(2**20)
    found = [one for event in (*reader.feed(body), *reader.end()) for one in assembly.add(event)]
    return found, assembly


def read(body: bytes) -> Answer:
    assembly = deltas(body)[1]
    assert assembly.ended
    return wire.read(assembly.value())


def called(found: Answer) -> list[tuple[str, dict[str, Any]]]:
    assert all(call.id and not call.arguments_error for call in found.tool_calls)
    assert len({call.id for call in found.tool_calls}) == len(found.tool_calls)
    return [(call.name, dict(call.arguments)) for call in found.tool_calls]


def call(arguments: Any = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**more, "function": {key: value for key, value in function.items() if value is not None}}


PARIS, ROME = '{"city":"Paris"}', '{"city":"Rome"}'
TWO = [("weather", {"city": "Paris"}), ("time", {"city": "Rome"})]
CALLS: dict[str, tuple[list[list[Any]], list[tuple[str, dict[str, Any]]]]] = {
    "one index": ([[call(PARIS, "weather", index=0, id="a")], [call(ROME, "time", index=0, id="b")]], TWO),
    "one index, no ids": ([[call(PARIS, "weather", index=0)], [call(ROME, "time", index=0)]], TWO),
    "one index, no ids, arguments in pieces": (
        [
            [call("", "weather", index=0)],
            [call(PARIS[:5], index=0)],
            [call(PARIS[5:], index=0)],
            [call("", "time", index=0)],
            [call(ROME[:5], index=0)],
            [call(ROME[5:], index=0)],
        ],
        TWO,
    ),
    "one index, no ids, the name in each piece": (
        [
            [call(PARIS[:5], "weather", index=0)],
            [call(PARIS[5:], "weather", index=0)],
            [call("", "weather", index=0)],
            [call(ROME, "time", index=0)],
        ],
        TWO,
    ),
    "one index, one tool": (
        [[call(PARIS, "weather", index=0, id="a")], [call(ROME, "weather", index=0, id="b")]],
        [TWO[0], ("weather", {"city": "Rome"})],
    ),
    "no index": ([[call(PARIS, "weather", id="a")], [call(ROME, "time", id="b")]], TWO),
    "no index, no ids": ([[call(PARIS, "weather")], [call(ROME, "time")]], TWO),
    "no index, in pieces": (
        [[call('{"city"', "weather", id="a")], [call(':"Paris"}')], [call("", "time", id="b")], [call(ROME)]],
        TWO,
    ),
    "no index, both in each chunk": (
        [[call('{"city":', "weather", id="a"), call('{"city":', "time", id="b")], [call('"Paris"}'), call('"Rome"}')]],
        TWO,
    ),
    "null indices": ([[call(PARIS, "weather", id="a", index=None)], [call(ROME, "time", id="b", index=None)]], TWO),
    "one id in all chunks": (
        [[call('{"city"', "weather", index=0, id="a")], [call(':"Paris"}', "weather", index=0, id="a")]],
        TWO[:1],
    ),
    "an id of its own in each chunk": (
        [[call('{"city"', "weather", index=0, id="a")], [call(':"Paris"}', index=0, id="b")]],
        TWO[:1],
    ),
    "an index of its own in each chunk": (
        [[call('{"city"', "weather", index=0, id="a")], [call(':"Paris"}', index=1, id="a")]],
        TWO[:1],
    ),
    "the name in pieces": ([[call("", "wea", index=0, id="a")], [call(PARIS, "ther", index=0)]], TWO[:1]),
    "the name grows": ([[call("", "wea", index=0, id="a")], [call(PARIS, "weather", index=0)]], TWO[:1]),
    "the name in each chunk": (
        [[call('{"city"', "weather", index=0, id="a")], [call(':"Paris"}', "weather", index=0)]],
        TWO[:1],
    ),
    "the whole call once more": (
        [
            [call('{"city":', "weather", index=0, id="a")],
            [call('"Paris"}', index=0)],
            [call(PARIS, "weather", index=0)],
        ],
        TWO[:1],
    ),
    "objects": ([[call({"city": "Paris"}, "weather", index=0, id="a")]], TWO[:1]),
    "two objects, one index": (
        [[call(json.loads(PARIS), "weather", index=0)], [call(json.loads(ROME), "time", index=0)]],
        TWO,
    ),
    "an empty object first": ([[call({}, "weather", index=0, id="a")], [call({"city": "Paris"}, index=0)]], TWO[:1]),
    "null as a text": ([[call("null", "time", index=0, id="a")]], [("time", {})]),
    "twice": ([[call(json.dumps(PARIS), "weather", index=0, id="a")]], TWO[:1]),
    "three times": ([[call(json.dumps(json.dumps(PARIS)), "weather", index=0, id="a")]], TWO[:1]),
    "nothing": ([[call("", "time", index=0, id="a")]], [("time", {})]),
    "numbers as ids": ([[call(PARIS, "weather", id=1)], [call(ROME, "time", id=2)]], TWO),
    "beside the id": ([[{"id": "a", "name": "weather", "arguments": PARIS}]], TWO[:1]),
    "what is no call": ([[7, call(PARIS, "weather", index=1, id="a")]], TWO[:1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_put_together_by_id_and_completeness(name: str) -> None:
    chunks, wanted = CALLS[name]
    body = sse(*(delta(tool_calls=parts) for parts in chunks), STOP)
    found, assembly = deltas(body)
    assert called(wire.read(assembly.value())) == wanted
    # A client of OpenAI's API joins the pieces by index, and gets the same.
    joined: dict[int, list[str]] = {}
    for one in found[:-1]:
        for part in json.loads(one.data)["choices"][0]["delta"].get("tool_calls", ()):
            call_ = joined.setdefault(part["index"], ["", "", ""])
            for at, text in enumerate(
                (part.get("id"), part["function"].get("name"), part["function"].get("arguments"))
            ):
                call_[at] += text or ""
    assert [(name, json.loads(text or "{}")) for _, name, text in joined.values()] == wanted
    assert [one[0] for one in joined.values()] == [one.id for one in wire.read(assembly.value()).tool_calls]


@pytest.mark.parametrize("value", [PARIS, json.loads(PARIS), json.dumps(PARIS), "null", None, ""])
def test_a_whole_answer_reads_arguments_as_a_stream_does_and_passes_texts_on(value: Any) -> None:
    answer = {"choices": [{"message": {"content": None, "tool_calls": [{**call(None, "f", id="a")}]}}]}
    answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = value  # type: ignore[index]
    wanted = {"city": "Paris"} if value and value != "null" else {}
    assert called(wire.read(answer)) == [("f", wanted)]
    body = json.dumps(answer).encode()
    passed = standard_body(body, answer, strict=True)
    [sent] = json.loads(passed)["choices"][0]["message"]["tool_calls"]
    assert json.loads(sent["function"]["arguments"] or "{}") == wanted
    assert (passed is body) == (value in (PARIS, ""))


@pytest.mark.parametrize("reason", ["", "null", "None", "unknown", "x", None])
def test_a_stream_that_is_cut_after_a_reason_that_is_none_is_cut(reason: Any) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": reason}]}
    found, assembly = deltas(sse(chunk, done=False))
    assert not assembly.ended
    assert json.loads(found[0].data)["choices"][0]["finish_reason"] is None
    assert deltas(sse(chunk, STOP, chunk, done=False))[1].ended


REASONS: dict[str, tuple[str, ...]] = {
    "stop": ("eos", "end_turn", "EOS_TOKEN", "StopSequence", "normal", "end turn", "COMPLETE"),
    "length": ("MAX_TOKENS", "MaxTokens", "limit", "ERROR_LIMIT", "max-tokens", "TOKEN_LIMIT", "model_length"),
    "tool_calls": ("tool_use", "TOOL_CALL", "tool-calls"),
    "content_filter": (
        "ERROR_TOXIC", "safety", "SAFETY", "IMAGE_SAFETY", "content-filter", "contentFilter", "content_filtered",
        "sensitive", "PROHIBITED_CONTENT", "RECITATION", "blocked_by_policy", "moderation", "guardrail_intervened",
        "refusal", "SPII",
    ),
}  # fmt: skip
FAILURES = (
    "error", "ERROR", "network_error", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL", "USER_CANCEL",
    "TIME_LIMIT", "timeout", "server_overloaded", "UNEXPECTED_TOOL_CALL", "engine_failed", "internal-error", "aborted",
)  # fmt: skip


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(("read_as", "reason"), [(name, one) for name, all_ in REASONS.items() for one in all_])
def test_other_words_for_a_known_reason_end_a_stream(reason: str, read_as: str, done: bool) -> None:
    body = sse(delta(content="a"), {"choices": [{"delta": {}, "finish_reason": reason}]}, done=done)
    assert read(body).finish_reason == read_as
    shown = [json.loads(one.data) for one in deltas(body)[0] if one.data != "[DONE]"]
    assert shown[-1]["choices"][0]["finish_reason"] == read_as
    answer = {"choices": [{"message": {"content": "a"}, "finish_reason": reason}]}
    assert wire.read(answer).finish_reason == read_as
    passed = json.loads(standard_body(json.dumps(answer).encode(), answer, strict=True))
    assert passed["choices"][0]["finish_reason"] == read_as


def test_reasons_as_objects_are_read_by_their_type() -> None:
    last = {"choices": [{"delta": {}, "finish_reason": {"type": "length", "length": 10}}]}
    assert read(sse(delta(content="a"), last, done=False)).finish_reason == "length"
    assert (
        wire.read({"choices": [{"message": {"content": "a"}, "finish_reason": {"type": "stop"}}]}).finish_reason
        == "stop"
    )


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("reason", FAILURES)
def test_a_reason_that_is_a_failure_breaks_an_answer_off(reason: str, done: bool) -> None:
    body = sse(delta(content="a"), {"choices": [{"delta": {}, "finish_reason": reason}]}, done=done)
    with pytest.raises(errors.Malformed, match=f"broke its answer off.*{reason}"):
        deltas(body)
    with pytest.raises(errors.Malformed, match=f"broke its answer off.*{reason}"):
        wire.read({"choices": [{"message": {"content": "a"}, "finish_reason": reason}]})


@pytest.mark.parametrize("reason", ["other", "LANGUAGE", "pause_turn", "x"])
def test_a_reason_that_is_not_known_ends_a_stream_only_with_its_closing_line(reason: str) -> None:
    last = {"choices": [{"delta": {}, "finish_reason": reason}]}
    assert not deltas(sse(delta(content="a"), last, done=False))[1].ended
    assert read(sse(delta(content="a"), last)).finish_reason == reason


def test_parts_of_content_are_joined_and_thoughts_lie_apart() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}
    body = sse(delta(content=[thinking]), delta(content=[thinking]), delta(content=[{"type": "text", "text": "Hel"}]))
    found, assembly = deltas(body + sse(delta(content="lo"), STOP))
    answer = wire.read(assembly.value())
    assert (answer.text, answer.reasoning) == ("Hello", "hh")
    # It goes back as it came: the service wants its thoughts.
    assert [part["type"] for part in answer.opaque["content"]] == ["thinking", "text"]
    shown = [json.loads(one.data)["choices"][0]["delta"] for one in found if one.data != "[DONE]"]
    assert [one.get("reasoning_content") for one in shown[:2]] == ["h", "h"] and shown[2]["content"] == "Hel"


ERRORS: dict[str, bytes] = {
    "an object": sse({"error": {"message": "no room", "code": 429}}),
    "a text": sse({"error": "no room"}),
    "true beside words": sse({"error": True, "message": "no room"}),
    "older vLLM": sse({"object": "error", "message": "no room", "code": 400}),
    "Anthropic": sse({"type": "error", "error": {"type": "overloaded_error", "message": "no room"}}),
    "an event of that name": b'event: error\ndata: {"message": "no room"}\n\n',
    "an event of that name with a text": b"event: error\ndata: no room\n\n",
    "Google": sse([{"error": {"code": 503, "message": "no room", "status": "UNAVAILABLE"}}]),
    "FastAPI": sse({"detail": [{"msg": "no room"}], "code": 422}),
    "in a choice": sse({"choices": [{"index": 0, "delta": {}, "error": {"message": "no room"}}]}),
    "without data:": b'data: {"choices": []}\n\n{"error": {"message": "no room"}}\n\n',
    "several lines without data:": b'{\n "error": {\n  "message": "no room"\n }\n}\n',
    "OpenRouter": sse({"error": {"message": "Provider returned error", "metadata": {"raw": "no room"}}, "choices": []}),
    "a reason": sse(delta(content="a"), {"choices": [{"delta": {}, "finish_reason": "error"}]}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_within_a_stream_keeps_its_words(name: str) -> None:
    with pytest.raises(errors.Malformed, match="finish_reason is error" if name == "a reason" else "no room"):
        deltas(ERRORS[name])


STREAM = sse(delta(content="Hel"), delta(content="lo"), STOP)
FORMS: dict[str, bytes] = {
    "CR": STREAM.replace(b"\n", b"\r"),
    "CRLF": STREAM.replace(b"\n", b"\r\n"),
    "BOM": b"\xef\xbb\xbf" + STREAM,
    "comments": b": hi\n\n" + STREAM.replace(b"data", b": x\nid: 1\nretry: 5\nevent: message\ndata"),
    "no space": STREAM.replace(b"data: ", b"data:"),
    "several lines": STREAM.replace(b'"choices": ', b'\ndata: "choices":\ndata: '),
    "[DONE] behind JSON": STREAM.replace(b"\n\ndata: [DONE]", b"[DONE]"),
    "[DONE] in the same event": STREAM.replace(b"\n\ndata: [DONE]", b"\ndata: [DONE]"),
    "two chunks in an event": STREAM.replace(b"\n\n", b"\n", 1),
    "no last line": STREAM[:-2],
    "NaN": STREAM.replace(b'"finish_reason": null', b'"finish_reason": null, "logprobs": NaN', 1),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 3, 4096])
def test_events_are_read_by_the_standard_and_somewhat_beyond(form: str, size: int) -> None:
    reader, assembly = EventReader(2**20), Assembly(2**20)
    found: list[StreamDelta] = []
    for at in range(0, len(FORMS[form]), size):
        for event in reader.feed(FORMS[form][at : at + size]):
            found += assembly.add(event)
    for event in reader.end():
        found += assembly.add(event)
    assert assembly.ended and wire.read(assembly.value()).text == "Hello"
    for one in found:
        assert one.data.strip() == "[DONE]" or ("NaN" not in one.data and json.loads(one.data))


USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [], "usage": USAGE},
        {**STOP, "x_groq": {"usage": USAGE}},
        {"choices": [{"index": 0, "delta": {}, "usage": USAGE}]},
        {"choices": [{"index": 0, "delta": {"usage": USAGE}}]},
    ],
)
def test_usage_is_read_wherever_a_provider_puts_it(chunk: dict[str, Any]) -> None:
    zero = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    assert read(sse(delta(content="a"), chunk, STOP, zero)).usage == ReportedUsage(3, 4)
    whole = {**chunk, "choices": [{**(chunk["choices"] or [{}])[0], "message": {"content": "a"}}]}
    assert wire.read(whole).usage == ReportedUsage(3, 4)


def test_halves_of_an_emoji_become_one_and_a_lone_half_is_replaced() -> None:
    halves = sse(
        delta(content="a\ud83d"), delta(content="\ude00b\ud83d"), delta(content="c"), delta(content="\ud83d"), STOP
    )
    found, assembly = deltas(halves)
    assert wire.read(assembly.value()).text == "a😀b\ufffdc\ufffd" == "".join(one.text for one in found)
    for one in found:
        one.data.encode()
        assert one.data == "[DONE]" or b"\\ud8" not in one.data.encode()
    answer = wire.parse(b'{"choices": [{"message": {"content": "\\ud83d\\ude00 \\ud83d", "reasoning": "\\ud83d"}}]}')
    assert (answer.text, answer.reasoning, answer.opaque) == ("😀 \ufffd", "\ufffd", {"reasoning": "\ufffd"})
    arguments = '{"a": "\\ud83d"}'
    assert called(read(sse(delta(tool_calls=[call(arguments, "f", index=0, id="a")]), STOP))) == [
        ("f", {"a": "\ufffd"})
    ]


def test_thoughts_whose_beginning_the_template_ate_come_off() -> None:
    for text in ("Maybe\nAnswer: 5\n</think>\n\nAnswer: 4", "<think>Maybe\nAnswer: 5\n</think>Answer: 4"):
        found = wire.read({"choices": [{"message": {"content": text}}]})
        assert found.text == "Answer: 4" and found.reasoning.strip() == "Maybe\nAnswer: 5"
        assert found.opaque == {"content": text}  # goes back as it came


WHOLE = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": USAGE}).encode()
BODIES: dict[str, bytes] = {
    "a stream as JSON": response(STREAM, kind="application/json"),
    "a stream as text": response(STREAM, kind="text/plain"),
    "a stream without a label": response(STREAM, kind=""),
    "JSON as a stream": response(WHOLE, kind="text/event-stream"),
    "JSON and [DONE]": response(WHOLE + b"\n\ndata: [DONE]\n\n", kind="application/json"),
    "a byte announced too many": response(WHOLE, kind="application/json", length=len(WHOLE) + 1),
    "lines of JSON": response(
        b"\n".join(json.dumps(one).encode() for one in (delta(content="Hel"), delta(content="lo"), STOP)),
        kind="application/x-ndjson",
    ),
    "BOM": response(b"\xef\xbb\xbf" + WHOLE, kind="application/json"),
    "NaN": response(WHOLE.replace(b'"stop"', b'"stop", "logprobs": NaN'), kind="application/json"),
    "bytes that are no UTF-8": response(WHOLE.replace(b'"stop"', b'"stop", "x": "\xff"'), kind="application/json"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BODIES)
async def test_a_body_under_a_wrong_label_is_the_answer_that_it_holds(name: str, stream: bool) -> None:
    async with RawServer(lambda _: BODIES[name]) as server:
        meter, pieces = FreeMeter(), list[str]()
        one = client(server, meter)  # type: ignore[arg-type]
        found = await ask(one, **({"on_delta": pieces.append} if stream else {}))
    assert found.text == "Hello" and (not stream or "".join(pieces) == "Hello")
    [bill] = meter.bills.values()
    assert bill.source in ("table", "estimate") and bill.amount_micros < meter.holds_micros.popitem()[1] / 2


async def test_a_cut_stream_costs_what_came_of_it_and_no_early_count_of_it(
    server: ModelServer, meter: FreeMeter
) -> None:
    early = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    body = sse(early, delta(content="word " * 200), done=False)
    server.will(_status(body))
    with pytest.raises(errors.BrokenAnswer):
        await ask(client(server, meter), stream=True, max_tokens=4_000)
    [bill] = meter.bills.values()
    assert bill.usage is not None and bill.usage.input_tokens == 9 and 200 < bill.usage.output_tokens < 1_000


def _status(body: bytes) -> Any:
    from tests.support.llm_acts import act

    return act("status", code=200, body=body, kind="text/event-stream")


def test_messages_in_place_of_deltas_are_added_up_and_a_last_whole_one_is_not() -> None:
    def said(text: str, reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": reason}]}

    found, assembly = deltas(sse(said("Hel"), said("lo"), said("", "stop")))
    assert wire.read(assembly.value()).text == "Hello" == "".join(one.text for one in found)
    assert read(sse(said("Hel"), said("lo"), said("Hello", "stop"))).text == "Hello"
    assert read(sse(delta(content="Hello"), said("Hello", "stop"))).text == "Hello"
    assert read(sse(said("Hello", "stop"))).text == "Hello"


@pytest.mark.parametrize(
    "event",
    [b'{"detail": "overloaded"}', b'{"detail": [{"loc": ["body"], "msg": "overloaded"}]}', b"overloaded, try again"],
    ids=["FastAPI's", "FastAPI's list", "a proxy's words"],
)
def test_an_error_within_a_stream_has_its_words(event: bytes) -> None:
    with pytest.raises(errors.Malformed, match="overloaded") as refused:
        deltas(sse(delta(content="Hel"), done=False) + b"data: %b\n\n" % event)
    assert refused.value.broken
    with pytest.raises(errors.Malformed) as unknown:  # no model spoke yet: this may be any service
        wire.read(deltas(b"data: %b\n\n" % event)[1].value())
    assert "overloaded" not in str(unknown.value)


@pytest.mark.parametrize(
    "pieces", [["{}", PARIS], ["{}", " ", '{"city":', '"Paris"}'], ["{", '"city":"Paris"}'], [PARIS]]
)
def test_an_empty_object_before_the_arguments_is_no_part_of_them(pieces: list[str]) -> None:
    first, *rest = pieces
    chunks = [call(first, "weather", index=0, id="a"), *(call(one, index=0) for one in rest)]
    found, assembly = deltas(sse(*(delta(tool_calls=[one]) for one in chunks), STOP))
    assert called(wire.read(assembly.value())) == [("weather", {"city": "Paris"})]
    assert called(read(b"".join(b"data: %b\n\n" % one.data.encode() for one in found))) == [
        ("weather", {"city": "Paris"})
    ]


@pytest.mark.parametrize("pieces", [["{}"], ["{", "}"], ["{}", " "], ["", "{}"], [""]])
def test_a_call_without_arguments_stays_one(pieces: list[str]) -> None:
    chunks = [call("", "now", index=0, id="a"), *(call(one, index=0) for one in pieces)]
    found, assembly = deltas(sse(*(delta(tool_calls=[one]) for one in chunks), STOP))
    assert called(wire.read(assembly.value())) == [("now", {})]
    assert called(read(b"".join(b"data: %b\n\n" % one.data.encode() for one in found))) == [("now", {})]


def test_an_id_of_its_own_for_each_piece_makes_one_call() -> None:
    pieces = [call('{"city":', "weather", index=0, id="a"), call('"Paris"}', "weather", index=0, id="b")]
    later = call(ROME, "weather", index=0, id="c")
    found = read(sse(*(delta(tool_calls=[one]) for one in (*pieces, later)), STOP))
    assert called(found) == [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]


@pytest.mark.parametrize("noise", [": OPENROUTER PROCESSING", "null", ":", ""])
def test_a_heartbeat_written_as_an_event_is_none(noise: str) -> None:
    beat = b"data: %b\n\n" % noise.encode()
    found = read(beat + sse(delta(content="Hel"), done=False) + beat + sse(delta(content="lo"), STOP))
    assert (found.text, found.finish_reason) == ("Hello", "stop")


def test_a_field_name_written_twice_and_a_quoted_end_are_read() -> None:
    assert read(sse(delta(content="Hello"), STOP).replace(b"data:", b"data: data:")).text == "Hello"
    assert read(sse(delta(content="Hello"), done=False) + b'data: "[DONE]"\n\n').text == "Hello"


@pytest.mark.parametrize("index", [1, "0", 7, None])
def test_the_only_choice_is_read_by_any_number(index: Any) -> None:
    chunks = [{"choices": [{"index": index, "delta": one, "finish_reason": end}]}
              for one, end in (({"content": "Hel"}, None), ({"content": "lo"}, None), ({}, "stop"))]  # fmt: skip
    found, assembly = deltas(sse(*chunks))
    assert assembly.ended and wire.read(assembly.value()).text == "Hello"
    for one in found[:-1]:
        assert json.loads(one.data)["choices"][0]["index"] in (0, None)
    second = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": None}]}
    assert read(sse(delta(content="Hello"), second, STOP)).text == "Hello"
