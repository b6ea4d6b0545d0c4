"""No secret is ever printed: not in a repr, a log line, an exception with its locals, a bill or a pickle."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import traceback

import pytest

from budgets.llm.errors import LLMError
from budgets.llm.portkey import config_text, hidden_in, portkey_headers, secrets_in
from budgets.llm.secret import Secret, masked
from budgets.llm.types import Endpoint
from budgets.meter_port import FreeMeter
from tests.support.llm_acts import act
from tests.support.llm_client import SAY, ask, client, endpoint, key
from tests.support.llm_server import ModelServer

KEY, PORTKEY, VIRTUAL = "sk-very-secret-key", "portkey-hush-hush", "virtual-not-for-you"
HEADERS = portkey_headers(api_key=Secret(PORTKEY), virtual_key=Secret(VIRTUAL), provider="openai")


def shown(error: BaseException) -> str:
    """Everything that a page of debugging would show: the whole chain, its frames and their local variables."""
    parts, seen = [], set()
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        parts += traceback.TracebackException.from_exception(one, capture_locals=True).format()
        parts += [repr(one), repr(vars(one)), repr(one.args)]
        queue += [one.__cause__, one.__context__]
    # The frames of the test itself hold the server, which has of course read the keys.
    return "".join(part for part in parts if "/tests/" not in part)


def hidden(text: str) -> bool:
    return not any(secret in text for secret in (KEY, PORTKEY, VIRTUAL))


@pytest.mark.parametrize(
    "does",
    [
        "echo_key",
        "html",
        "reset",
        "cut_stream",
        "error_500",
        "redirect",
        act("status", code=500, body=f"<p>{KEY} {PORTKEY}</p>".encode(), kind="text/html"),
        act("status", code=400, error={"message": "Bearer sk-very-secr*****key is wrong"}),
        act("json_body", value={"error": {"message": f"key {KEY}, {VIRTUAL}", "code": 500}}),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
@pytest.mark.parametrize("stream", [False, True])
async def test_no_failure_shows_a_secret(
    server: ModelServer, meter: FreeMeter, caplog: pytest.LogCaptureFixture, does, stream: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    server.will(does)
    with pytest.raises(LLMError) as caught:
        await ask(client(server, meter, headers=HEADERS, kind="portkey"), stream=stream)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].headers["x-portkey-virtual-key"] == VIRTUAL
    assert hidden(shown(caught.value)) and "sk-very-secr" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert hidden(caplog.text) and hidden(repr(meter.bills))


async def test_a_refused_connection_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ModelServer() as server:
        pass
    with pytest.raises(LLMError) as caught:
        await ask(client(server, headers=HEADERS))
    assert hidden(shown(caught.value)) and hidden(caplog.text)


async def test_a_good_call_logs_no_secret(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    done = await ask(client(server, headers=HEADERS))
    assert hidden(caplog.text) and hidden(repr(done))


def test_an_endpoint_and_a_client_show_no_secret(server: ModelServer) -> None:
    given = endpoint(server, headers=HEADERS, extra={"token": KEY})
    one = client(server, headers=HEADERS)
    for value in (
        given,
        dataclasses.asdict(given),
        dataclasses.replace(given),
        one,
        vars(one),
        one._line,
        given.secrets,
    ):
        assert hidden(repr(value)) or (isinstance(value, dict) and value.get("extra") == {"token": KEY})
    assert hidden(repr(given)) and hidden(str(given))
    assert hidden(repr(endpoint(server, headers={"x-key": PORTKEY})))  # not even one without a secret's name


def test_a_key_with_a_newline_is_refused_without_showing_the_key() -> None:
    with pytest.raises(ValueError, match="api_key holds") as caught:
        Endpoint("https://somewhere/v1", "m", api_key=Secret(KEY + "\n"))
    assert hidden(str(caught.value))
    with pytest.raises(ValueError, match="x-portkey-api-key") as caught:
        Endpoint("https://somewhere/v1", "m", headers={"x-portkey-api-key": Secret(PORTKEY + "\r\nx: y")})
    assert hidden(str(caught.value))


def test_an_address_with_a_password_is_refused_without_showing_the_password() -> None:
    with pytest.raises(ValueError, match="no user or password") as caught:
        Endpoint(f"https://me:{PORTKEY}@somewhere/v1", "m")
    assert hidden(str(caught.value))


def test_a_secret_is_masked_in_each_place_of_output() -> None:
    secret = Secret(KEY)
    for written in (repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", "%s" % secret, repr([secret])):  # noqa: UP031
        assert KEY not in written and "***" in written
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)
    assert not hasattr(secret, "__dict__")


def test_a_secret_is_equal_to_itself_only_and_survives_a_copy() -> None:
    secret = Secret(KEY)
    assert secret == Secret(KEY) != Secret("other") and secret != KEY
    assert len({secret, Secret(KEY)}) == 1 and not Secret("") and secret
    assert copy.deepcopy({"a": secret})["a"].reveal() == copy.copy(secret).reveal() == KEY


@pytest.mark.parametrize(
    "text", ["key sk-proj-abc123DEF456 wrong", "Bearer abcdef.ghi", "pk-live-0123456789", "sk-ab****************yz"]
)
def test_a_text_that_resembles_a_key_of_another_service_is_masked(text: str) -> None:
    assert "***" in masked(text, ()) and not any(part in masked(text, ()) for part in ("abc", "0123", "yz"))


def test_masking_leaves_other_words_alone() -> None:
    text = "The key-value store is full; risk-taking tasks wait."
    assert masked(text, (Secret(""), Secret("elsewhere"))) == text


async def test_a_header_of_the_endpoint_may_replace_the_authorization(server: ModelServer) -> None:
    await ask(client(server, headers={"Authorization": Secret("Basic abc")}))
    assert server.requests[0].headers["authorization"] == "Basic abc"


async def test_portkey_gets_its_headers_and_a_trace_per_attempt(server: ModelServer) -> None:
    headers = portkey_headers(
        api_key=Secret(PORTKEY),
        inline_config=Secret(config_text({"provider": "openai", "api_key": KEY})),
        custom_host="http://local",
        metadata={"team": "Käse\r\nx-evil: 1", "long": "a" * 500},
    )
    assert hidden(repr(headers))
    async with client(server, headers=headers, kind="portkey") as one:
        await one.complete(SAY, max_tokens=5, key=key(name="job/1"))
    sent = server.requests[0].headers
    assert json.loads(sent["x-portkey-config"]) == {"provider": "openai", "api_key": KEY}
    assert sent["x-portkey-custom-host"] == "http://local" and sent["x-portkey-trace-id"] == "job/1/1"
    assert json.loads(sent["x-portkey-metadata"]) == {"team": "Käse\r\nx-evil: 1", "long": "a" * 128}
    assert "x-evil" not in sent and "x-portkey-provider" not in sent


def test_portkey_leaves_out_what_is_not_given() -> None:
    assert portkey_headers() == {}
    assert portkey_headers(config="pc-slug", trace_id="t") == {"x-portkey-config": "pc-slug", "x-portkey-trace-id": "t"}


CONFIG = {
    "strategy": {"mode": "fallback"},
    "targets": [
        {
            "provider": "openai",
            "api_key": "plainprovidersecret",
            "override": {"model": "gpt-4o-mini-2024-07-18"},
        },
        {"provider": "azure-openai", "virtual_key": "azure-prod-9", "forward_headers": ["x-a"], "cache": 12},
        {"provider": "vertex-ai", "custom": "a1b2c3d4e5f6a7b8c9"},
    ],
}


def test_the_keys_within_a_config_are_hidden_one_by_one_and_its_words_are_not() -> None:
    values = {one.reveal() for one in hidden_in(config_text(CONFIG))}
    assert values == {"plainprovidersecret", "azure-prod-9", "a1b2c3d4e5f6a7b8c9"}
    assert hidden_in("") == ()


@pytest.mark.parametrize("wrong", ["", "pc-slug", "{", "[1]", "{}", {}, [], {"a": float("nan")}, {"a": {1, 2}}, 7])
def test_an_invalid_config_is_refused_without_showing_its_values(wrong: object) -> None:
    with pytest.raises(ValueError, match="The config is no JSON") as caught:
        config_text(wrong)  # type: ignore[arg-type]
    assert caught.value.__cause__ is None and "slug" not in str(caught.value)


def test_a_setting_is_no_key_by_its_form_alone() -> None:
    plain = {"top_p": 0.9, "stop_token_ids": [1], "prompt_cache_key": "router-2026-11-21-a", "model": "a" * 40}
    assert list(secrets_in(plain)) == []
    for secret in ({"api_key": "abcdef"}, {"x": [{"Authorization": "abcdef"}]}, {"user": KEY}, {"token": "abcdef"}):
        assert list(secrets_in(secret))


async def test_no_error_shows_a_key_of_a_config(server: ModelServer, meter: FreeMeter) -> None:
    written = config_text(CONFIG)
    headers = portkey_headers(inline_config=Secret(written))
    server.will(act("status", code=401, error={"message": f"bad key plainprovidersecret, azure-prod-9 in {written}"}))
    with pytest.raises(LLMError) as caught:
        await ask(client(server, meter, headers=headers, hidden=hidden_in(written), kind="portkey"))
    for text in (shown(caught.value), repr(meter.bills)):
        assert "plainprovider" not in text and "azure-prod" not in text and "a1b2c3d4" not in text
