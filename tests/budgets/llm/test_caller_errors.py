"""A failure of the model's service as both gateways pass it on to the programs that called them."""

from __future__ import annotations

import pytest

from budgets.llm import errors
from budgets.llm.caller_errors import caller_error, retry_headers
from budgets.llm.refusals import refusal


def of_service(status: int, body: bytes, **headers: str) -> errors.LLMError:
    return refusal(status, headers, body, str)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            404,
            b'{"error": {"message": "The model does not exist", "code": "model_not_found", "param": "model"}}',
        ),
        (404, b'{"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist."}}'),
        (404, b'{"detail": "Not Found"}'),  # FastAPI: another address
        (404, b"<html>nginx</html>"),
        (405, b'{"detail": "Method Not Allowed"}'),
        (400, b'{"error": {"message": "invalid model", "code": "model_not_found"}}'),
    ],
)
def test_an_unknown_model_of_the_endpoint_is_no_word_about_the_callers_model(status: int, body: bytes) -> None:
    found = caller_error(of_service(status, body))
    assert (found.status, found.kind, found.code) == (424, "upstream_error", "upstream_model_not_found")
    assert not found.param and found.final and found.wait is None  # the caller's ``model`` is right
    assert "endpoint" in found.message and "not yours" in found.message and "An admin" in found.message
    assert str(status) in found.message


def test_a_refused_key_says_who_corrects_it() -> None:
    found = caller_error(of_service(401, b'{"error": {"message": "no such key", "code": "invalid_api_key"}}'))
    assert (found.status, found.code) == (424, "upstream_authentication")
    assert "not yours" in found.message and "An admin" in found.message and "no such key" in found.message


@pytest.mark.parametrize(
    ("status", "code", "param", "kind"),
    [
        (400, "content_filter", "prompt", "invalid_request_error"),
        (403, "content_filter", "", "invalid_request_error"),
        (422, "unsupported_value", "temperature", "invalid_request_error"),
        (429, "insufficient_quota", "", "invalid_request_error"),
    ],
)
def test_codes_and_parameters_of_the_service_are_kept(status: int, code: str, param: str, kind: str) -> None:
    body = f'{{"error": {{"message": "no", "code": "{code}", "param": "{param}"}}}}'.encode()
    found = caller_error(of_service(status, body))
    assert (found.status, found.code, found.param, found.kind, found.final) == (status, code, param, kind, True)
    error = found.body()["error"]
    assert (error["code"], error["param"], error["type"]) == (code, param or None, kind)
    assert retry_headers(found.wait, final=found.final) == [(b"x-should-retry", b"false")]


@pytest.mark.parametrize("lacks", ["support tool use.", "support image input", "can handle the parameters"])
def test_a_model_that_lacks_what_a_request_needs_is_no_unknown_model(lacks: str) -> None:
    body = f'{{"error": {{"message": "No endpoints found that {lacks}", "code": 404}}}}'.encode()
    error = of_service(404, body)
    found = caller_error(error)
    assert type(error) is errors.BadRequest and error.unbilled
    assert (found.status, found.kind, found.final) == (400, "invalid_request_error", True)
    assert "No endpoints found" in found.message and "not yours" not in found.message


def test_what_passes_says_when_to_come_back() -> None:
    found = caller_error(of_service(429, b'{"error": {"message": "slow down"}}', **{"retry-after": "6.2"}))
    assert (found.status, found.kind, found.code, found.final) == (429, "rate_limit_error", "rate_limit_error", False)
    assert retry_headers(found.wait, final=found.final) == [(b"retry-after", b"7")]
    assert caller_error(errors.CircuitOpen("it failed often", retry_after=3.0)).status == 503
    assert caller_error(errors.ConnectionLost("reset")).status == 502
