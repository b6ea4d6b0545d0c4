"""Answers of any shape: each becomes an answer or a Malformed with a reason, and nothing else."""

from __future__ import annotations

import copy
import itertools
import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.llm import wire
from budgets.llm.errors import Malformed
from budgets.llm.events import EventReader
from budgets.llm.request import encode
from budgets.llm.stream import Assembly
from budgets.llm.types import Answer, AnswerTokens, Endpoint, Message, ReportedUsage, ToolCall
from budgets.llm.usage import read_usage
from tests.support.rounds import rounds

GOOD: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "small-2026",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Let me see.",
                "reasoning_content": "6 times 7",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "times", "arguments": '{"a": 6, "b": 7}'}}
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 4},
        "cost": 0.000123,
    },
}
# What a hostile or broken server may put anywhere.
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -7.25, 10**30, 1e308, "", "x", "\0", "\ud800", "{", "[1", "9" * 5000),
    *([], [None], [[]], {}, {"a": {}}, {"text": 1}, {"type": "text", "text": "part"}, ["a", {"text": "b"}, 3]),
    *([{"function": None}], [{"function": {"name": 4}}], {"name": "f", "arguments": "{"}, {"code": 429}),
)


def answer_or_reason(body: bytes) -> Answer | Malformed:
    """The answer that ``parse`` returns, or its failure; every other exception fails the test."""
    try:
        found = wire.parse(body)
    except Malformed as error:
        assert error.message.strip() and len(error.message) < 1_000
        return error
    check(found)
    return found


def check(found: Answer) -> None:
    """The properties of any answer: its texts can be stored, its counts are counts, an empty one says so."""
    texts = [found.text, found.reasoning, found.finish_reason, found.model, found.id]
    for call in found.tool_calls:
        assert call.name and call.id
        texts += [call.name, call.id]
        assert not (call.arguments_error and call.arguments)
    for text in texts:
        assert "\0" not in text
        text.encode()
    assert found.text or found.tool_calls or found.notes
    usage = found.usage
    for count in (usage.input_tokens, usage.output_tokens, usage.cost_micros):
        assert count is None or (isinstance(count, int) and count >= 0)
    assert 0 <= usage.cached_tokens <= (usage.input_tokens or 0)
    assert 0 <= usage.reasoning_tokens <= (usage.output_tokens or 0)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        found += paths(inner, (*at, name))
    return found


PATHS = paths(GOOD)


def broken(rng: random.Random) -> bytes:
    """A good answer after one to four accidents: a part replaced, removed or doubled, bytes cut, flipped or put in."""
    value = copy.deepcopy(GOOD)
    for _ in range(rng.randint(1, 3)):
        *way, last = rng.choice(PATHS[1:])
        holder: Any = value
        try:
            for name in way:
                holder = holder[name]
            if rng.random() < 0.25:
                del holder[last]
            else:
                holder[last] = copy.deepcopy(rng.choice(ODD))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier accident took the place away
    body = bytearray(json.dumps(value).encode())
    drawn = rng.random()
    if drawn < 0.15:
        del body[rng.randrange(len(body)) :]
    elif drawn < 0.3:
        for _ in range(rng.randint(1, 5)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    elif drawn < 0.35:
        at = rng.randrange(len(body))
        body[at:at] = rng.choice([b"NaN", b"\\ud83d", b"\xff\xfe", b"[" * 3000, b"\\u0000", b"1e999"])
    return bytes(body)


@pytest.mark.rounds
def test_malformed_answers_crash_nothing_and_each_has_a_reason() -> None:
    rng = random.Random(20260101)
    ended = {Answer: 0, Malformed: 0}
    answers = rounds(1_000, 10_000)
    for _ in range(answers):
        ended[type(answer_or_reason(broken(rng)))] += 1
    assert min(ended.values()) > answers / 5, ended  # the fuzz reaches both ends


def test_any_odd_value_in_any_single_place_is_survived() -> None:
    for way in PATHS[1:]:
        for odd in ODD:
            value: Any = copy.deepcopy(GOOD)
            holder = value
            for name in way[:-1]:
                holder = holder[name]
            holder[way[-1]] = odd
            answer_or_reason(json.dumps(value).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted(map(str, GOOD))) | st.text(), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_an_answer_or_malformed(value: Any) -> None:
    answer_or_reason(json.dumps(value).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_malformed(body: bytes) -> None:
    answer_or_reason(body)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_any_top_level_value_is_malformed(odd: Any) -> None:
    assert isinstance(answer_or_reason(json.dumps(odd).encode()), Malformed)


def test_reader_reads_everything_of_a_good_answer() -> None:
    found = wire.parse(json.dumps(GOOD).encode())
    assert found == Answer(
        text="Let me see.",
        tool_calls=(ToolCall("c1", "times", {"a": 6, "b": 7}, '{"a": 6, "b": 7}'),),
        finish_reason="tool_calls",
        reasoning="6 times 7",
        model="small-2026",
        id="chatcmpl-1",
        usage=ReportedUsage(20, 10, 5, 4, 123),
        opaque={"reasoning_content": "6 times 7"},
    )


def one(message: Any, **rest: Any) -> Answer:
    return wire.read({"choices": [{"message": message}], **rest})


def test_reader_joins_the_parts_of_content() -> None:
    found = one({"content": [{"type": "text", "text": "a"}, "b", {"type": "image"}, {"type": "text", "text": "c"}]})
    assert found.text == "abc" and found.notes == ("a part of content is no text",)


@pytest.mark.parametrize(
    ("arguments", "parsed", "error"),
    [
        ('{"a": 1}', {"a": 1}, ""),
        ({"a": 1}, {"a": 1}, ""),
        ("", {}, ""),
        (None, {}, ""),
        ("{a: 1}", {}, "the arguments are no JSON"),
        ("[1]", {}, "the arguments are a list, not an object"),
        (7, {}, "the arguments are a number, not an object"),
        ('{"a": NaN}', {}, "the arguments are no JSON"),
        ("[" * 100_000, {}, "the arguments are no JSON"),
    ],
)
def test_arguments_that_are_no_object_are_kept_with_a_reason(arguments: Any, parsed: dict, error: str) -> None:
    (call,) = one({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}).tool_calls
    assert (call.arguments, call.arguments_error) == (parsed, error)
    if error:
        assert call.raw == (arguments if isinstance(arguments, str) else json.dumps(arguments))


def test_arguments_hold_nothing_that_a_database_refuses() -> None:
    (call,) = one({"tool_calls": [{"function": {"name": "f", "arguments": '{"a": "x\\u0000y"}'}}]}).tool_calls
    assert call.arguments == {"a": "x\ufffdy"}


def test_reader_gives_an_id_to_a_call_without_one_and_skips_a_call_without_a_name() -> None:
    found = one({"tool_calls": [{"function": {"name": "f"}}, {"function": {}}, 3, {"function": {"name": "g"}}]})
    assert [(call.id, call.name) for call in found.tool_calls] == [("call_0", "f"), ("call_3", "g")]
    assert len(found.notes) == 2


def test_reader_reads_the_older_function_call() -> None:
    assert one({"function_call": {"name": "f", "arguments": "{}"}}).tool_calls[0].name == "f"


def test_a_refusal_of_the_model_is_its_text() -> None:
    found = one({"content": None, "refusal": "I will not."})
    assert (found.text, found.notes) == ("I will not.", ("the model refused",))


def test_an_emoji_that_was_cut_in_two_is_replaced() -> None:
    body = b'{"choices": [{"message": {"content": "cut \\ud83d off\\u0000"}}]}'
    assert wire.parse(body).text == "cut \ufffd off\ufffd"


def test_an_error_under_200_keeps_its_code_and_its_usage_is_read() -> None:
    with pytest.raises(Malformed, match="upstream is down") as caught:
        wire.read({"error": {"code": "502", "message": "upstream is down"}, "usage": {"prompt_tokens": 5}})
    assert caught.value.status == 502 and caught.value.usage == ReportedUsage(5)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, ReportedUsage()),
        ({}, ReportedUsage()),
        ({"prompt_tokens": 5}, ReportedUsage(5)),
        ({"prompt_tokens": "5", "completion_tokens": 2.0}, ReportedUsage(5, 2)),
        ({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}, ReportedUsage(3, 4)),
        ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 9}, ReportedUsage(5, None, 5)),
        ({"cost": 0}, ReportedUsage(cost_micros=0)),
        ({"cost": "0.5"}, ReportedUsage(cost_micros=500_000)),
        ({"cost": 0.0000001}, ReportedUsage(cost_micros=1)),
        (
            {"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}},
            ReportedUsage(cost_micros=210_000),
        ),
        (
            {"cost": 0.01, "is_byok": False, "cost_details": {"upstream_inference_cost": 9}},
            ReportedUsage(cost_micros=10_000),
        ),
    ],
    ids=repr,
)
def test_reader_reads_what_the_usage_says(given: Any, read: ReportedUsage) -> None:
    notes: list[str] = []
    assert (read_usage(given, notes), notes) == (read, [])


@pytest.mark.parametrize(
    ("given", "read", "note"),
    [
        ("many", ReportedUsage(), "usage is a text"),
        ({"prompt_tokens": -5, "completion_tokens": 2}, ReportedUsage(None, 2), "usage.prompt_tokens"),
        ({"prompt_tokens": 1.5, "completion_tokens": 2}, ReportedUsage(None, 2), "usage.prompt_tokens"),
        ({"prompt_tokens": 10**12}, ReportedUsage(), "usage.prompt_tokens"),
        ({"completion_tokens": True}, ReportedUsage(), "usage.completion_tokens"),
        ({"completion_tokens": "9" * 5000}, ReportedUsage(), "usage.completion_tokens"),
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 20}, ReportedUsage(5, 15), "counts as output"),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}}, ReportedUsage(5), "cached_tokens"),
        ({"cost": -1}, ReportedUsage(), "usage.cost"),
        ({"cost": 1e300}, ReportedUsage(), "usage.cost"),
        ({"cost": float("nan")}, ReportedUsage(), "usage.cost"),
        ({"cost": True}, ReportedUsage(), "usage.cost"),
    ],
    ids=repr,
)
def test_reader_drops_of_the_usage_what_can_not_be_believed_and_says_so(
    given: Any, read: ReportedUsage, note: str
) -> None:
    notes: list[str] = []
    assert read_usage(given, notes) == read
    assert len(notes) == 1 and note in notes[0]


# Streams: the same answer, in pieces.


def events(*values: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: " + orjson.dumps(value) + b"\n\n" for value in values) + end


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


STREAM = events(
    {"id": "s1", "model": "small", **delta(role="assistant", content="")},
    delta(content="Käse "),
    delta(content="🧀"),
    delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]),
    delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
)


def assemble(chunks: list[bytes], *, limit: int = 2**20) -> Assembly:
    reader, assembly = EventReader(limit), Assembly(limit)
    for chunk in chunks:
        for data in reader.feed(chunk):
            assembly.add(data)
    for data in reader.end():
        assembly.add(data)
    return assembly


@given(st.lists(st.integers(0, len(STREAM)), max_size=30), st.booleans())
def test_a_stream_reads_the_same_for_any_cut_into_packets(cuts: list[int], carriage: bool) -> None:
    at = sorted({0, *cuts, len(STREAM)})
    chunks = [STREAM[a:b] for a, b in itertools.pairwise(at)]
    if carriage:
        chunks = [chunk.replace(b"\n", b"\r\n") for chunk in chunks]
    assembly = assemble(chunks)
    found = wire.read(assembly.value())
    assert assembly.ended and found.text == "Käse 🧀" and found.finish_reason == "tool_calls"
    assert found.tool_calls == (ToolCall("a", "f", {"x": 1}, '{"x": 1}'), ToolCall("b", "g"))
    assert found.usage == ReportedUsage(3, 4) and found.id == "s1"


def test_a_stream_without_its_last_empty_line_and_with_heartbeats_is_read() -> None:
    body = b": PROCESSING\n\nevent: x\nid: 1\n\n" + events(
        delta(content="a"), end=b'data:{"choices":[{"finish_reason":"stop"}]}'
    )
    assembly = assemble([body])
    assert assembly.ended and wire.read(assembly.value()).text == "a"


def test_a_stream_that_only_stops_has_not_ended() -> None:
    assert not assemble([events(delta(content="a"), end=b"")]).ended


@pytest.mark.parametrize(
    "chunk",
    [[1], "x", {"choices": 3}, {"choices": [4]}, delta(content=4), {"choices": [{"delta": []}]}],
)
def test_a_chunk_of_the_wrong_shape_is_malformed(chunk: Any) -> None:
    with pytest.raises(Malformed):
        assemble([events(chunk)])


def test_a_second_choice_of_a_stream_is_left_out() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    assert wire.read(assemble([events(delta(content="first"), other)]).value()).text == "first"


@pytest.mark.parametrize(
    "piece",
    [
        delta(content="a" * 90),
        delta(reasoning_content="a" * 90),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "a" * 90}}]),
    ],
)
def test_a_stream_grows_no_larger_than_the_limit(piece: Any) -> None:
    with pytest.raises(Malformed, match="larger than"):
        assemble([events(piece)] * 20, limit=1_000)


def test_a_stream_of_tool_calls_without_a_letter_ends_at_the_limit_too() -> None:
    calls = [events(delta(tool_calls=[{"index": n}]), end=b"") for n in range(10_000)]
    with pytest.raises(Malformed, match="larger than"):
        assemble(calls, limit=100_000)


@pytest.mark.parametrize("endless", [b"data: " + b"a" * 5_000, b"data: aaaa\n" * 1_000, b": " + b"a" * 5_000])
def test_a_line_or_event_that_never_ends_is_malformed(endless: bytes) -> None:
    with pytest.raises(Malformed, match="larger than"):
        list(EventReader(2_000).feed(endless))


@pytest.mark.rounds
def test_broken_streams_crash_nothing() -> None:
    rng = random.Random(7)
    streams, answers = rounds(1_000, 10_000), 0
    for _ in range(streams):
        body = bytearray(STREAM)
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.choice(b'{}[]":,\n0a\\\xff')
        del body[rng.randrange(len(body) // 2, len(body)) :]
        try:
            check(wire.read(assemble([bytes(body)]).value()))
            answers += 1
        except Malformed as error:
            assert error.message
    assert 0.01 < answers / streams < 0.99


TOKENS: dict[str, Any] = {
    "prompt_token_ids": [1, 2, 3],
    "choices": [
        {
            "message": {"content": "hi"},
            "token_ids": [7, 8],
            "logprobs": {"content": [{"logprob": -1}, {"logprob": -0.5}]},
        }
    ],
}


def test_sampled_tokens_are_read_whole_or_not_at_all() -> None:
    found = wire.read(TOKENS)
    assert found.tokens == AnswerTokens((1, 2, 3), (7, 8), (-1.0, -0.5))
    within: Any = copy.deepcopy(TOKENS)  # as SGLang reports them
    within["choices"][0]["prompt_token_ids"] = within.pop("prompt_token_ids")
    assert wire.read(within).tokens == found.tokens
    for place, odd in itertools.product(
        (("prompt_token_ids",), ("choices", 0, "token_ids"), ("choices", 0, "logprobs", "content", 0, "logprob")),
        ([7, True], [7, "8"], [7, -1], [7, 2**31], None, {}, "text", [7]),
    ):
        broken = copy.deepcopy(TOKENS)
        at: Any = broken
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = odd
        answer = wire.read(broken)
        whole = place == ("prompt_token_ids",) and odd == [7]
        assert answer.text == "hi" and (answer.tokens is not None) == whole, (place, odd)


@pytest.mark.parametrize("capture", [False, True])
def test_tokens_are_asked_for_only_where_the_endpoint_says_so(capture: bool) -> None:
    endpoint = Endpoint("http://127.0.0.1:9/v1", "small", capture_tokens=capture)
    asked = {"tools": (), "response_format": None, "temperature": 1.0, "max_tokens": 5, "seed": 1, "stop": None}
    body = orjson.loads(encode(endpoint, [Message("user", "hi")], stream=False, **asked).body)  # type: ignore[arg-type]
    assert ("return_token_ids" in body, "logprobs" in body) == (capture, capture)


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"text": "a\nb"}', {"text": "a\nb"}),  # a line break as it is
        ('```json\n{"x": 1}\n```', {"x": 1}),
        ('{"x": 1}{"x": 1}', {"x": 1}),
        ('{"x": 1}\n{"x": 1}', {"x": 1}),
        ('{"x": 1}{"x": 2}', None),
        ("{'x': 1}", None),
        ('{"x": 1', None),
        ('{"x": NaN}', None),
    ],
)
def test_arguments_that_mean_one_object_are_read_and_go_back_as_json(written: str, arguments: Any) -> None:
    function = {"name": "w", "arguments": written}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    [call] = wire.read({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).tool_calls
    assert (dict(call.arguments) if not call.arguments_error else None) == arguments
    sent = encode(
        Endpoint("https://a/v1", "m"),
        [Message("user", "q"), Message("assistant", "", (call,))],
        max_tokens=9,
        stream=False,
    )
    back = json.loads(json.loads(sent.body)["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert back == ({"unreadable": written} if arguments is None else arguments)
