"""The REST description against the site, operation by operation: requests that it allows and that it does not.

Any answer is documented, in status, content type, headers and shape; none is a 5xx. The cases are the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentcore_site.wsgi import application
from tests.support.callers import Caller
from tests.support.openapi import described
from tests.support.rounds import one_in, rounds
from training.models import TrainingRun

pytestmark = [pytest.mark.django_db, pytest.mark.rounds]

WRONG = pytest.mark.thorough(reason="every operation once more, with wrong values")
STRANGER = pytest.mark.thorough(reason="every operation once more, as a stranger")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EACH = settings(
    max_examples=rounds(1, 3),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def schema() -> Any:
    schema = schemathesis.openapi.from_dict(deepcopy(described()))
    schema.app = application
    return schema


@pytest.fixture
def one_connection() -> Iterator[None]:
    """The site answers on the test's own connection, within its transaction, as for Django's test client."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.mark.parametrize(
    ("person", "mode"),
    [
        ("adam", GenerationMode.POSITIVE),
        pytest.param("adam", GenerationMode.NEGATIVE, marks=WRONG),
        pytest.param("charlie", GenerationMode.POSITIVE, marks=STRANGER),
    ],
)
def test_every_operation_answers_by_its_description(
    person: str,
    mode: GenerationMode,
    schema: Any,
    run: TrainingRun,
    one_connection: None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from agentcore_site.rest.throttling import KeyThrottle

    monkeypatch.setattr(KeyThrottle, "THROTTLE_RATES", {"key": None, "token": None, "ace": None})
    headers = Caller(request.getfixturevalue(person)).headers
    wrong: list[str] = []
    asked = 0

    def check(case: Any) -> None:
        nonlocal asked
        asked += 1
        try:
            case.validate_response(case.call(headers=headers), checks=CHECKS)
        except FailureGroup as error:  # all of them at the end, not the first alone
            wrong.append(f"{case.method} {case.formatted_path}: {error}"[:600])

    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in one_in(4, operations):
        EACH(given(case=operation.as_strategy(generation_mode=mode))(check))()
    assert wrong == []
    assert asked >= rounds(len(operations) // 4, len(operations))


def test_the_answer_of_json_rpc_to_a_stranger_is_described(schema: Any) -> None:
    """401 without a key, 429 above the limit: JSON-RPC describes itself, so nothing adds these for it."""
    said = schema.raw_schema["paths"]["/api/v1/jsonrpc"]["post"]["responses"]
    assert {"401", "403", "413", "429", "503"} <= set(said)
