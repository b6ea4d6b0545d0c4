"""Refusals by their words: no money, a prompt too long, a moderation, a template, in the dialects of services."""

from __future__ import annotations

import json
from typing import Any

import pytest

from budgets.llm import errors
from budgets.llm.refusals import refusal
from budgets.llm.remedies import FILTERED, correction, remedies

SYSTEM: dict[str, Any] = {"messages": [{"role": "system", "content": "s"}], "temperature": 0.7, "seed": 1}


def refused(status: int, body: Any, headers: dict[str, str] | None = None) -> errors.LLMError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return refusal(status, headers or {}, raw, str)


@pytest.mark.parametrize(
    "words",
    [
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",  # Gemini
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",  # Anthropic
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The decoder prompt (length 4100) is longer than the maximum model length of 4096.",  # vLLM
        "the request exceeds the available context size. try increasing the context size",  # llama.cpp
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000",  # TGI, Together
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",  # xAI
        "Invalid request: Your request exceeded model token limit: 8192",  # Kimi
        "Input is too long for requested model.",  # Bedrock
        "Range of input length should be [1, 30720]",  # Qwen
        "invalid params, context window exceeds limit (2013)",  # MiniMax
        "prompt token count of 130000 exceeds the limit of 128000",
        "Please reduce the length of the messages or completion.",  # Groq
        "too many tokens: size limit exceeded by 3000 tokens",  # Cohere
    ],
)
def test_a_prompt_that_is_too_long_is_known_by_the_words_of_each_service(words: str) -> None:
    assert isinstance(refused(400, {"error": {"message": words}}), errors.ContextTooLong)


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens.",
        "Range of max_tokens should be [1, 8192]",
        "Could not finish the message because max_tokens or model output limit was reached.",
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64.",
        "Invalid 'messages[1].content': string too long.",
    ],
)
def test_another_length_is_no_prompt_that_is_too_long(words: str) -> None:
    assert type(refused(400, {"error": {"message": words}})) is errors.BadRequest


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
        ),
        (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
        (403, {"code": "The caller does not have permission", "error": "Your team doesn't have any credits yet."}),
        (429, {"error": {"message": "Your account is suspended", "type": "exceeded_current_quota_error"}}),
        (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}),
        (429, {"error": {"code": "1113", "message": "您的账户已欠费，请充值后重试。"}}),
        (400, {"error": {"code": "Arrearage", "message": "Access denied."}}),
        (403, {"error": {"message": "用户额度不足", "type": "new_api_error", "code": "insufficient_user_quota"}}),
    ],
)
def test_an_account_without_money_is_known_in_each_form(status: int, body: Any) -> None:
    found = refused(status, body)
    assert isinstance(found, errors.NoCredit) and found.unbilled
    assert "credit" in correction(found)


def test_a_pace_is_no_account_without_money() -> None:
    error: dict[str, Any] = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota."}
    error["details"] = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    gemini = {"error": error}
    found = refused(429, [gemini])
    assert isinstance(found, errors.RateLimited) and found.retry_after == 34.5
    assert refused(429, [gemini], {"retry-after": "2"}).retry_after == 2
    error["details"] = [{"retryDelay": "soon"}, {"retryDelay": 3}]
    assert refused(429, gemini).retry_after is None


def test_a_moderation_is_no_refusal_of_the_key() -> None:
    openrouter = {"error": {"code": 403, "message": "Your input was flagged for \"violence\".",
                            "metadata": {"reasons": ["violence"], "flagged_input": "..."}}}  # fmt: skip
    for body in (openrouter, {"error": {"message": "?", "code": "content_filter"}}):
        found = refused(403, body)
        assert type(found) is errors.BadRequest and correction(found) == FILTERED and not remedies(found, SYSTEM)
    assert isinstance(refused(403, {"error": {"message": "No access to the model"}}), errors.AuthFailed)


@pytest.mark.parametrize(
    "words",
    ["Jinja Exception: System role not supported", "Conversation roles must alternate user/assistant/user/assistant"],
)
def test_a_template_that_fails_under_500_is_the_requests_fault_and_has_a_remedy(words: str) -> None:
    found = refused(500, {"error": {"code": 500, "message": words, "type": "server_error"}})
    assert type(found) is errors.BadRequest and found.unbilled
    assert remedies(found, SYSTEM) == [{"system_as_user": True}]


def test_other_words_under_500_are_the_services_failure() -> None:
    for words in ("Internal error", "upstream: jinja failed", "connection reset: context size"):
        assert isinstance(refused(500, {"error": {"message": words}}), errors.Overloaded)
    too_long = {"error": {"message": "the request exceeds the available context size", "type": "server_error"}}
    assert isinstance(refused(500, too_long), errors.ContextTooLong)
    assert isinstance(refused(500, b"the request exceeds the available context size"), errors.Overloaded)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (451, {"message": "Not available in your region"}, "Not available in your region"),
        (403, {"error": "Forbidden", "message": "No access to m", "statusCode": 403}, "Forbidden: No access to m"),
        (400, {"error": "invalid_request", "error_description": "seed is unknown"}, "seed is unknown"),
        (400, {"title": "Errors occurred.", "errors": {"messages": ["It is required."]}}, "messages: It is required."),
        (400, {"ResponseMetadata": {"Error": {"Code": "BadModel", "Message": "No such model"}}}, "No such model"),
        (400, {"error": {"message": "", "code": "unsupported_value"}}, "unsupported_value"),
        (400, {"errors": ["first", {"msg": "second"}]}, "first; second"),
    ],
)
def test_the_services_words_are_shown_in_each_form(status: int, body: Any, says: str) -> None:
    assert says in refused(status, body).message


@pytest.mark.parametrize(
    "body",
    [
        *(b"<html><body>403 Forbidden</body></html>", b"Forbidden", b'"Forbidden"', b"[]"),
        *({"message": "of another service"}, {"status": 403, "title": "Forbidden", "detail": "of another service"}),
    ],
)
@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_words_outside_of_an_error_object_are_not_shown_where_the_service_may_be_another(
    status: int, body: Any
) -> None:
    """An endpoint may have the address of a service within the network, whose answers its author may not read."""
    assert "holds no error message" in refused(status, body).message
