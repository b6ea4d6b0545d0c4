"""Words, code and parameter of a refusal in every dialect, and no parameter masked as a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from budgets.llm import errors
from budgets.llm.secret import Secret, masked
from tests.support.llm_acts import act
from tests.support.llm_client import ask, client
from tests.support.llm_server import ModelServer

EXTRA = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
RAW = json.dumps({"error": {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}})
BODIES: list[tuple[Any, str, str, str]] = [
    # the body, a part of what is said, its code, its parameter
    ({"error": {"message": "no", "code": "unsupported_value", "param": "seed"}}, "no", "unsupported_value", "seed"),
    ([{"error": {"code": 400, "message": 'Unknown name "seed"', "status": "INVALID_ARGUMENT"}}], "Unknown", "", ""),
    ({"detail": [EXTRA]}, "seed: Extra inputs", "", "seed"),
    ({"detail": [EXTRA, EXTRA | {"loc": ["body", "n"], "msg": "no"}]}, "permitted; n: no", "", "seed"),
    ({"detail": "temperature is fixed"}, "temperature is fixed", "", ""),
    ({"detail": {"error": {"message": "deep", "code": "odd_one"}}}, "deep", "odd_one", ""),
    ({"object": "error", "message": {"detail": [EXTRA]}, "type": "invalid_request_error"}, "seed: Extra", "", "seed"),
    ({"object": "error", "message": "no top_p", "param": "top_p", "code": 400}, "no top_p", "", "top_p"),
    ({"code": 20015, "message": "length is too large", "data": None}, "length is too large", "", ""),
    ({"code": "InvalidParameter", "message": "seed must be", "id": "r"}, "seed must be", "InvalidParameter", ""),
    ({"error": "Model does not support tools"}, "does not support tools", "", ""),
    ({"code": "Client specified an invalid argument", "error": "no stop"}, "no stop", "", ""),
    ({"errors": [{"message": "AiError: bad input", "code": 5006}], "success": False}, "AiError: bad input", "", ""),
    ({"error": ["first", "second"]}, "first; second", "", ""),
    ({"error": {"message": {"text": 1, "message": "inner"}}}, "inner", "", ""),
    ({"error_code": 336003, "error_msg": "the max length"}, "the max length", "", ""),
    ({"base_resp": {"status_code": 2013, "status_msg": "invalid params"}}, "invalid params", "", ""),
    ({"msg": "seed?"}, "seed?", "", ""),
    ({"message": "plain"}, "plain", "", ""),
    ("only a text", "only a text", "", ""),
    ({"error": {"message": "Provider returned error", "metadata": {"raw": RAW}}}, "Unsupported", "", "temperature"),
    ({"error": {"message": json.dumps({"detail": "wrapped"})}}, "wrapped", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("body", "says", "code", "param"), BODIES)
async def test_the_words_of_a_refusal_are_read_in_every_form(
    server: ModelServer, body: Any, says: str, code: str, param: str
) -> None:
    server.will(act("status", code=422, body=json.dumps(body).encode()))
    with pytest.raises(errors.BadRequest) as refused:
        await ask(client(server))
    assert says in refused.value.message
    assert (refused.value.code, refused.value.param) == (code, param)


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"[]", b"7", b'{"error": {}}', b'{"choices": []}'])
async def test_what_is_no_error_of_an_api_is_not_shown(server: ModelServer, body: bytes) -> None:
    server.will(act("status", code=400, body=body))
    with pytest.raises(errors.BadRequest, match="holds no error message"):
        await ask(client(server))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "filtered", "code": "content_filter"}, errors.BadRequest),
        ({"message": "?", "code": "context_length_exceeded"}, errors.ContextTooLong),
        ({"message": "?", "code": "insufficient_quota"}, errors.NoCredit),
    ],
)
async def test_a_refusal_under_status_200_is_the_refusal_that_its_code_names(
    server: ModelServer, error: dict[str, Any], kind: type[errors.LLMError]
) -> None:
    server.will(act("json_body", value={"error": error}))
    with pytest.raises(kind) as refused:
        await ask(client(server))
    assert refused.value.code == error["code"]


@pytest.mark.parametrize("key", ["x", "token", "EMPTY", "max", "ollama", "tokens"])
@pytest.mark.parametrize(
    "text",
    [
        "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
        "key_features and pk_columns are unknown",
        "A Bearer token is missing, or its Bearer authentication failed",
        "prompt_cache_key is unknown",
    ],
)
def test_the_name_of_a_parameter_is_no_secret(text: str, key: str) -> None:
    shown = masked(text, [Secret(key)])
    assert shown.replace("***", key) == text
    for name in ("max_tokens", "max_completion_tokens", "key_features", "pk_columns", "prompt_cache_key"):
        assert (name in shown) == (name in text)


def test_a_short_key_is_masked_as_a_word_of_its_own() -> None:
    assert masked("Incorrect key EMPTY: (EMPTY)", [Secret("EMPTY")]) == "Incorrect key ***: (***)"
    assert masked("it was rk-live-12345 or prefixhunter2secretpart", [Secret("hunter2secret")]) == (
        "it was *** or prefix***part"
    )
