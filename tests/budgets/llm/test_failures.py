"""Every way in which a provider fails, on a real socket: what the caller gets and what the attempt cost."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest

from agentcore_site.outbound import OutboundClient
from budgets.llm import errors
from budgets.llm.transport import _AnswerBody
from budgets.llm.types import Completion
from budgets.meter_port import Bill, FreeMeter
from tests.support.llm_acts import MEGABYTE, Act, act
from tests.support.llm_client import SAY, SMALL, ask, client, key
from tests.support.llm_server import ModelServer

BODY = json.dumps({"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}).encode()
HOLD, NOTHING, USAGE = "hold", "nothing", "usage"
MEASURED = "measured"  # the prompt, and what came of the answer
LONG = {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}


def refused(status: int, **error: Any) -> Act:
    return act("status", code=status, error={"message": "scripted", **error})  # an API's own error object


FAILURES: list[tuple[Act | str, type[errors.LLMError], str, str]] = [
    # what the server does, what is raised, a part of its message, what it costs
    ("rate_limited", errors.RateLimited, "429", NOTHING),
    ("error_500", errors.Overloaded, "500: scripted 500", HOLD),
    ("error_503", errors.Overloaded, "503: The server is overloaded", NOTHING),
    ("upstream_503", errors.Overloaded, "503: the answer holds no error message", HOLD),
    ("bad_gateway_page", errors.Overloaded, "502", HOLD),
    (refused(504), errors.Timeout, "504", HOLD),
    (refused(408), errors.Timeout, "408", HOLD),
    (refused(400), errors.BadRequest, "400: scripted", NOTHING),
    (refused(422), errors.BadRequest, "422", NOTHING),
    (refused(401), errors.AuthFailed, "401", NOTHING),
    (refused(403), errors.AuthFailed, "403", NOTHING),
    (refused(402), errors.NoCredit, "402", NOTHING),
    (refused(429, code="insufficient_quota"), errors.NoCredit, "429", NOTHING),
    (refused(404), errors.ModelNotFound, "404", NOTHING),
    (refused(400, code="model_not_found"), errors.ModelNotFound, "400", NOTHING),
    (act("status", code=400, error=LONG), errors.ContextTooLong, "maximum context", NOTHING),
    (act("status", code=400, error="prompt is too long"), errors.ContextTooLong, "too long", NOTHING),
    ("redirect", errors.BadRequest, "redirects", NOTHING),
    ("bad_json", errors.BrokenAnswer, "no JSON", MEASURED),
    ("truncated_json", errors.BrokenAnswer, "no JSON", MEASURED),
    ("html", errors.BrokenAnswer, "no JSON but a web page", MEASURED),
    (act("status", code=200, body=b""), errors.BrokenAnswer, "empty", MEASURED),
    ("empty_choices", errors.Malformed, "choices is empty", USAGE),
    ("wrong_types", errors.Malformed, "content is a number", USAGE),
    ("error_in_200", errors.Overloaded, "upstream failed", HOLD),
    ("cut_stream", errors.BrokenAnswer, "cut", MEASURED),
    ("cut_body", errors.BrokenAnswer, "cut", MEASURED),
    ("reset", errors.ConnectionLost, "connection failed", HOLD),
    (act("json_body", value=[1, 2]), errors.BrokenAnswer, "a list, not an object", MEASURED),
    (act("json_body", value={"choices": None}), errors.Malformed, "no choices", USAGE),
    (act("json_body", value={"choices": [None]}), errors.Malformed, "choices[0] is null", USAGE),
    (act("json_body", value={"choices": [{"message": "hi"}]}), errors.Malformed, "message is a text", USAGE),
    (act("big", size=2 * MEGABYTE), errors.Malformed, "larger than 1,048,576 bytes", HOLD),
    (act("big", size=2 * MEGABYTE, announced=True), errors.Malformed, "larger than", HOLD),
    (act("big", size=2 * MEGABYTE, compressed=True), errors.Malformed, "larger than", HOLD),
]
STREAM_FAILURES: list[tuple[Act | str, type[errors.LLMError], str, str]] = [
    ("rate_limited", errors.RateLimited, "429", NOTHING),
    ("bad_json", errors.BrokenAnswer, "no JSON", MEASURED),
    ("truncated_json", errors.BrokenAnswer, "no JSON", MEASURED),
    ("html", errors.BrokenAnswer, "no JSON", MEASURED),
    ("cut_stream", errors.BrokenAnswer, "The stream was cut. The connection ended", MEASURED),
    ("polite_cut", errors.BrokenAnswer, "The stream was cut.", MEASURED),
    ("usage_then_cut", errors.BrokenAnswer, "The stream was cut", USAGE),
    ("empty_choices", errors.Malformed, "choices is empty", USAGE),
    ("error_in_200", errors.Overloaded, "upstream failed", MEASURED),
    ("endless_stream", errors.Malformed, "larger than 1,048,576 characters", HOLD),
    ("reset", errors.ConnectionLost, "connection failed", HOLD),
]


ENVOY = b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"
UNBILLED: list[tuple[int, Any]] = [
    (503, {"error": {"message": "The server is overloaded or not ready yet.", "type": "server_error"}}),  # OpenAI
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),  # Anthropic
    (529, {"error": {"message": "scripted"}}),
    (500, {"type": "error", "error": {"type": "overloaded_error", "message": "Try later"}}),
    (503, [{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}]),  # Google
    (503, {"error": {"message": "There is no available model provider", "code": 503}}),  # OpenRouter
    (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),  # llama.cpp
    (503, {"error": {"message": "server busy, please try again.  maximum pending requests exceeded",
                     "type": "api_error"}}),  # Ollama's /v1
    (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}),  # Ollama's own
    (500, {"error": "Model is overloaded", "error_type": "overloaded"}),  # text-generation-inference
    (503, {"object": "error", "message": "The request queue is full.", "type": "ServiceUnavailableError"}),  # SGLang
    (503, {"error": {"message": "Service is too busy.", "type": "service_unavailable_error"}}),  # DeepSeek
    (500, {"error": {"message": "Key ok", "type": "rate_limit_error"}}),
]  # fmt: skip
BILLED: list[tuple[int, Any]] = [
    (503, ENVOY),
    (503, b"<html><h1>503 Service Temporarily Unavailable</h1></html>"),
    (503, b""),
    (529, b"?"),
    (502, {"message": "Internal server error"}),  # AWS's API gateway
    (503, {"message": "Service Unavailable"}),
    (503, {"detail": "Service Unavailable"}),
    (500, {"error": {"message": "The server had an error while processing your request.", "type": "server_error"}}),
    (500, {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}),
    (502, {"error": {"message": "Your chosen model is down or we received an invalid response", "code": 502}}),
    (503, {"error": {"message": f"openai error: {ENVOY.decode()}", "type": "service_unavailable"}}),  # passed on
    (503, {"error": {"message": "The service is unavailable: upstream timed out"}}),
    (503, {"error": {}}),
    (503, {"error": None}),
    (504, {"error": {"message": "overloaded", "type": "overloaded_error"}}),
]  # fmt: skip


@pytest.mark.parametrize(("costs", "status", "body"), [(cost, *one) for cost, many in (
    (NOTHING, UNBILLED), (HOLD, BILLED)) for one in many])  # fmt: skip
async def test_a_server_error_costs_nothing_only_where_a_model_api_says_that_the_request_was_rejected(
    server: ModelServer, meter: FreeMeter, costs: str, status: int, body: Any
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    server.will(act("status", code=status, body=raw))
    with pytest.raises(errors.Transient):
        await ask(client(server, meter))
    check_bill(meter, server, costs)


QUOTING = "Invalid prompt: 'Mail jane.doe@example.org or call +49 170 1234567 about it'"


@pytest.mark.parametrize(
    "does",
    [
        refused(400, type="invalid_request_error", message=QUOTING),
        refused(401, message=QUOTING),
        act("status", code=500, body=QUOTING.encode(), kind="text/plain"),
        act("json_body", value={"error": {"message": QUOTING, "code": 502}}),
        act("json_body", value={"error": {"message": QUOTING}}),
        act("status", code=200, body=QUOTING.encode()),
        # what is cut off there would leave half an address
        refused(400, message="x " * 145 + "jane.doe@example.org"),
        act("status", code=200, body=b"x " * 36 + b"jane.doe@example.org"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_personal_data_that_a_provider_quotes_is_in_no_error_and_no_bill(
    server: ModelServer, meter: FreeMeter, does: Any, stream: bool
) -> None:
    from experiences.privacy import redact

    server.will(does)
    with pytest.raises(errors.LLMError) as caught:
        await ask(client(server, meter, redact=redact), stream=stream)
    for text in (caught.value.message, str(caught.value), the_bill(meter)[0].error):
        assert text and "jane" not in text and "1234567" not in text, text


def names(failures: list[tuple[Act | str, Any, str, str]]) -> list[str]:
    return [f"{n}-{one[0] if isinstance(one[0], str) else one[0].name}" for n, one in enumerate(failures)]


def the_bill(meter: FreeMeter) -> tuple[Bill, int]:
    """The one bill and its hold."""
    assert list(meter.bills) == list(meter.holds_micros) and len(meter.bills) == 1
    assert meter.reserved_micros == 0
    return next(iter(meter.bills.values())), next(iter(meter.holds_micros.values()))


def check_bill(meter: FreeMeter, server: ModelServer, costs: str) -> None:
    bill, hold = the_bill(meter)
    if costs == MEASURED:
        prompt = len(json.dumps(server.requests[0].body["messages"])) // 4 * SMALL.input_micros // 10**6
        assert bill.error and bill.source == "estimate" and prompt < bill.amount_micros < hold / 3
        return
    assert (bill.amount_micros, bill.source) == {
        HOLD: (hold, "estimate"),
        NOTHING: (0, "none"),
        USAGE: (server.owed.micros, "table"),
    }[costs]
    assert bill.error and bill.amount_micros >= server.owed.micros


@pytest.mark.parametrize(("does", "error", "says", "costs"), FAILURES, ids=names(FAILURES))
async def test_client_fails_with_a_reason_and_pays_the_possible_cost(
    server: ModelServer, meter: FreeMeter, does, error, says, costs
) -> None:
    server.will(does)
    with pytest.raises(error) as caught:
        await ask(client(server, meter))
    assert type(caught.value) is error and says in caught.value.message
    assert caught.value.attempts == 1
    check_bill(meter, server, costs)


@pytest.mark.parametrize(("does", "error", "says", "costs"), STREAM_FAILURES, ids=names(STREAM_FAILURES))
async def test_a_stream_fails_with_a_reason_and_pays_the_possible_cost(
    server: ModelServer, meter: FreeMeter, does, error, says, costs
) -> None:
    server.will(does)
    with pytest.raises(error) as caught:
        await ask(client(server, meter), stream=True)
    assert type(caught.value) is error and says in caught.value.message
    check_bill(meter, server, costs)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("does", ["null_content", "wrong_tool_name", "arguments_not_json", "wrong_content_type"])
async def test_client_makes_a_completion_of_what_can_be_used(
    server: ModelServer, meter: FreeMeter, does: str, stream: bool
) -> None:
    server.will(does)
    done = await ask(client(server, meter), stream=stream)
    check = {
        "null_content": lambda one: one.text == "" and one.notes == ("the answer is empty",),
        "wrong_tool_name": lambda one: one.tool_calls[0].name == "delete_everything",
        "arguments_not_json": lambda one: (
            one.tool_calls[0].arguments_error == "the arguments are no JSON"
            and one.tool_calls[0].raw == '{"a": 1,,}'
            and one.tool_calls[0].arguments == {}
        ),
        "wrong_content_type": lambda one: one.text.startswith("You said"),
    }[does]
    assert isinstance(done, Completion) and check(done), done
    assert meter.spent_micros == server.owed.micros == done.cost_micros


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, {"completion_tokens": 0}]
)
async def test_a_usage_of_nothing_for_an_answer_is_not_believed(
    server: ModelServer, meter: FreeMeter, usage: dict[str, int]
) -> None:
    server.will(act("json_body", value={"choices": [{"message": {"content": "forty-two " * 20}}], "usage": usage}))
    done = await ask(client(server, meter))
    assert done.usage.estimated and done.usage.output_tokens >= 40 and done.usage.input_tokens > 0
    assert (done.bill.source, done.cost_micros > 0) == ("estimate", True)
    assert any("usage counts no tokens" in note for note in done.notes)


async def test_a_lost_answer_whose_usage_counts_nothing_costs_its_hold(server: ModelServer, meter: FreeMeter) -> None:
    nothing = {"prompt_tokens": 0, "completion_tokens": 0}
    server.will(act("json_body", value={"choices": [], "usage": nothing}))
    with pytest.raises(errors.Malformed):
        await ask(client(server, meter))
    check_bill(meter, server, HOLD)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_just_within_the_limit_is_taken(server: ModelServer, stream: bool) -> None:
    content = "b" * (40_000 if stream else 39_600)  # a whole answer is counted with its envelope
    server.will(*[act("answer", message={"role": "assistant", "content": content})] * 2)
    async with client(server, max_answer_bytes=40_000) as one:
        assert (await one.complete(SAY, max_tokens=10**6, key=key(), stream=stream)).text == content
    with pytest.raises(errors.Malformed, match="larger than 39,000"):
        await ask(client(server, max_answer_bytes=39_000), max_tokens=10**6, stream=stream)


async def test_fifty_megabytes_are_not_read_to_their_end(server: ModelServer) -> None:
    server.will(act("big", size=50 * MEGABYTE))
    async with client(server) as one:
        with pytest.raises(errors.Malformed, match="larger than"):
            await one.complete(SAY, max_tokens=5, key=key())
        async with asyncio.timeout(5):
            while not server.requests[0].gone:
                await asyncio.sleep(0.01)
    # Both ends' sockets hold a few megabytes that no process has read.
    assert server.requests[0].written < 12 * MEGABYTE


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_bomb_is_unpacked_no_further_than_the_limit(server: ModelServer, encoding: str) -> None:
    packed = (gzip.compress if encoding == "gzip" else zlib.compress)(b"a" * 20 * MEGABYTE)
    server.will(act("status", code=200, body=packed, headers={"content-encoding": encoding}))
    pieces = []
    async with OutboundClient() as one:
        response = await one.send("POST", one.target(f"{server.base_url}/chat/completions"), headers={}, body=BODY)
        with pytest.raises(errors.Malformed, match="larger than"):
            body = _AnswerBody(response, MEGABYTE)
            while (piece := await body.piece()) is not None:
                pieces.append(len(piece))
        response.close()
    assert max(pieces) <= MEGABYTE + 1


async def test_an_answer_that_never_comes_is_a_timeout_and_costs_the_hold(
    server: ModelServer, meter: FreeMeter
) -> None:
    server.will("hang")
    with pytest.raises(errors.Timeout, match=r"No answer within 2 s"):
        await ask(client(server, meter, timeout_s=2))  # what is not sent by then is not paid for
    check_bill(meter, server, HOLD)


async def test_a_slow_drip_is_cut_at_the_limit_of_the_whole_attempt(server: ModelServer, meter: FreeMeter) -> None:
    server.will(act("slow_drip", pause=0.02))
    with pytest.raises(errors.BrokenAnswer, match="cut"):
        await ask(client(server, meter, timeout_s=2))
    check_bill(meter, server, MEASURED)


async def test_a_refused_connection_costs_nothing(meter: FreeMeter) -> None:
    with ModelServer() as server:
        pass  # its port is free again
    with pytest.raises(errors.ConnectionLost, match="connection was refused"):
        await ask(client(server, meter))
    bill, _ = the_bill(meter)
    assert (bill.amount_micros, bill.source) == (0, "none")


async def test_a_redirect_takes_no_key_elsewhere(server: ModelServer) -> None:
    with ModelServer() as elsewhere:
        server.will(act("redirect", to=elsewhere.base_url + "/chat/completions"))
        with pytest.raises(errors.BadRequest, match="redirects"):
            await ask(client(server))
    assert not elsewhere.requests


async def test_a_rate_limit_says_how_long_to_stay_away(server: ModelServer) -> None:
    server.will(act("rate_limited", retry_after=17))
    with pytest.raises(errors.RateLimited) as caught:
        await ask(client(server))
    assert (caught.value.retry_after, caught.value.status) == (17.0, 429)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_call_pays_its_hold_before_the_task_ends(
    server: ModelServer, meter: FreeMeter, stream: bool
) -> None:
    server.will("hang")
    async with client(server, meter) as one:
        task = asyncio.create_task(one.complete(SAY, max_tokens=64, key=key(), stream=stream))
        while not server.owed.answered:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        check_bill(meter, server, HOLD)
        assert next(iter(meter.bills.values())).error == "cancelled"
        assert (await one.complete(SAY, max_tokens=64, key=key())).text  # and its place is free again


async def test_an_error_of_the_callers_own_passes_and_what_came_is_paid(server: ModelServer, meter: FreeMeter) -> None:
    def broken(text: str) -> None:
        raise RuntimeError("the page is gone")

    with pytest.raises(RuntimeError, match="the page is gone"):
        await ask(client(server, meter), on_delta=broken)
    check_bill(meter, server, MEASURED)
