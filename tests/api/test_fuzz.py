"""Any request gets an answer with a reason, never a 500."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest
from django.urls import resolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore_site.rpc import METHODS
from experiences.models import Agent
from tests.support.callers import Caller
from tests.support.openapi import described
from tests.support.rounds import rounds, some
from tests.support.rows import checkpoint_of_run
from training.models import TrainingRun

pytestmark = [pytest.mark.django_db, pytest.mark.rounds]

NASTY: list[Any] = [
    None, True, 0, -1, 1.5, 2**63, 2**70, -(2**40), 1e308, "", " ", "\u0000", "a\u0000b", "\ud800", "é" * 300,
    "x" * 5000,
    "'; DROP TABLE jobs_job; --",
    "%00", "../../etc/passwd", "00000000-0000-0000-0000-000000000000", "🐘" * 50, "\u202e",
    [], [[]], [None], {}, {"": ""}, {"a": {"b": {"c": []}}}, ["x"] * 200, {"$ne": 1},
]  # fmt: skip
# Offsets that ISO 8601 has and PostgreSQL has not, and moments that are in no year in UTC.
FAR = [
    "1290-10-20T22:14:55-18:18",
    "2026-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
]
# What a forged cursor says where a value of a row is.
FORGED: list[Any] = [*FAR, "\u0000", 1e308, "nan", "inf", 2**31, 2**62, -(2**62), "x" * 5000, True, str(UUID(int=7))]
DEEP = b"[" * 200 + b"]" * 200

ADDRESSES: dict[str, list[str]] = {
    "agents": ["name", "slug", "description", "philosophy", "runtime", "environment", "environment_options"],
    "datasets": ["name", "rows"],
    "training-jobs": [
        "agent", "dataset_id", "training_data", "environment", "environment_options", "config", "preset", "priority",
        "not_before", "title",
    ],
    "training-jobs/estimate": ["agent", "dataset_id", "n_queries", "environment_options", "config", "preset"],
    "evaluations": ["training_job_id", "checkpoint_id", "split", "queries", "samples"],
    "api-keys": ["name", "scopes", "days"],
    "prompt-packs": ["name", "domain", "system", "injections", "experience_slots", "max_words"],
    "token": ["username", "password"],
    "token/refresh": ["refresh"],
}  # fmt: skip
VALID: dict[str, dict[str, Any]] = {
    "agents": {"name": "x"},
    "datasets": {"name": "x", "rows": [{"query": "a"}]},
    "training-jobs/estimate": {},
    "api-keys": {"name": "x", "scopes": ["training:view"]},
    "prompt-packs": {"name": "x", "system": "x"},
    "token": {"username": "olivia", "password": "x"},
    "token/refresh": {"refresh": "x"},
}
LISTS: dict[str, list[str]] = {
    "agents": ["search", "environment", "archived"],
    "datasets": ["search"],
    "training-jobs": ["status", "agent", "search"],
    "trajectories": [
        "job", "agent", "iteration", "success", "min_reward", "max_reward", "since", "until", "purpose", "search",
    ],
    "trajectories/export": ["job", "agent", "iteration", "success", "min_reward", "since", "format", "search"],
    "checkpoints": ["job", "agent", "tag"],
    "evaluations": ["agent", "training_job", "checkpoint", "status"],
    "experiences": ["agent", "status", "domain", "min_effect", "search"],
    "prompt-packs": ["search", "domain", "archived"],
}  # fmt: skip


def body(values: dict[str, Any]) -> bytes:
    """JSON as a client may send it: with lone surrogates as escapes."""
    return json.dumps(values).encode()


def fine(response: Any, *what: Any) -> None:
    assert response.status_code < 500, (*what, response.status_code, response.content[:500])
    if response.status_code >= 400:
        answer = response.json()
        assert answer.get("detail") or answer["error"]["message"], what


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcore_site.rest.throttling import KeyThrottle

    monkeypatch.setattr(KeyThrottle, "THROTTLE_RATES", {"key": None, "token": None, "ace": None})


@pytest.mark.parametrize("path", ADDRESSES)
def test_no_field_of_a_body_breaks_anything(path: str, api: Caller, run: TrainingRun, unlimited: None) -> None:
    base = VALID.get(path, {"agent": run.agent.slug} if path.startswith("training") else {})
    if path == "evaluations":
        base = {"training_job_id": str(run.job_id)}
    for field in ADDRESSES[path]:
        for value in some(NASTY, 3):
            if field == "agent" and path == "training-jobs" and value == run.agent.slug:
                continue
            fine(api.post(path, body(base | {field: value})), path, field, value)
    for whole in some(NASTY, 3):
        fine(api.post(path, body(whole)), path, whole)
    for raw in (b"", b"{", b"\xff", b"nul", DEEP, b'{"a": ' + DEEP + b"}", b'{"a": NaN}', b'{"a": 1e999}'):
        fine(api.post(path, raw), path, raw)


@pytest.mark.parametrize("path", LISTS)
def test_no_query_parameter_breaks_anything(path: str, api: Caller, run: TrainingRun, unlimited: None) -> None:
    words = [value for value in NASTY if isinstance(value, str) and "\ud800" not in value]
    numbers = [
        "9" * 400,
        "-0",
        "1e400",
        "nan",
        "inf",
        "0x10",
        "٣",
        "1,5",
        "2025-13-45",
        "0000-00-00T00:00:00Z",
        *FAR,
        "%",
        "\\",
        "_",
    ]
    for name in [*LISTS[path], "cursor", "limit", "ordering", "unknown"]:
        for value in some([*words, *numbers], 3):
            response = api.get(path, **{name: value})
            if response.status_code == 200 and getattr(response, "streaming", False):
                b"".join(response)
            fine(response, path, name, value)


@pytest.mark.parametrize("path", LISTS)
def test_no_forged_cursor_breaks_anything(path: str, api: Caller, run: TrainingRun, unlimited: None) -> None:
    """A cursor is base64 of JSON: who reads that writes one of his own."""
    if path.endswith("/export"):
        return
    parameters = described()["paths"][f"/api/v1/{path}"]["get"]["parameters"]
    orderings = next(one["schema"]["enum"] for one in parameters if one["name"] == "ordering")
    view = resolve(f"/api/v1/{path}").func.cls
    for ordering in orderings:
        sign, public = ("-", ordering[1:]) if ordering.startswith("-") else ("", ordering)
        column = {name.lstrip("-"): column for name, column in view.orderings.items()}[public]
        names = [f"{sign}{column}", f"{sign}{view.tiebreak}"]
        for value in some(FORGED, 3):
            for state in ([names, [value, str(run.job_id)], False], [names, [value, value], True]):
                cursor = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
                fine(api.get(path, cursor=cursor, ordering=ordering), path, state)


def test_no_piece_of_an_address_breaks_anything(api: Caller, run: TrainingRun, unlimited: None) -> None:
    checkpoint = checkpoint_of_run(run)
    for piece in ("%00", "%ff", "%F0%9F%90%98", "..", "%2e%2e%2f", "a" * 3000, "'", '"', "{}", "%0a", "null", "-1"):
        for path in (
            "agents",
            "datasets",
            "training-jobs",
            "trajectories",
            "checkpoints",
            "evaluations",
            "jobs",
            "api-keys",
        ):
            for tail in ("", "/events", "/download", "/rows", "/series", "/queries"):
                fine(api.get(f"{path}/{piece}{tail}"), path, piece, tail)
    for name in ("after", "limit"):
        for value in ("-1", "x", "9" * 50, "1.5", "", "\x00"):
            fine(api.get(f"jobs/{run.job_id}/events", **{name: value}), name, value)
    for value in ("x", "", "\x00", str(checkpoint.id)):
        fine(api.get("checkpoints/compare", a=value, b=str(checkpoint.id)), value)


@pytest.mark.parametrize("method", METHODS)
def test_no_parameter_of_a_method_breaks_anything(method: str, api: Caller, run: TrainingRun, unlimited: None) -> None:
    fields = METHODS[method].params.model_fields
    base: dict[str, Any] = {}
    if "job_id" in fields:
        base["job_id"] = str(run.job_id)
    if "agent_id" in fields:
        base["agent_id"] = run.agent.slug
    if "wait_seconds" in fields:
        base["wait_seconds"] = 0
    for name in fields:
        for value in some(NASTY, 3):
            request = {"jsonrpc": "2.0", "method": method, "params": base | {name: value}, "id": 1}
            response = api.post("jsonrpc", body(request))
            assert response.status_code == 200, (method, name, value)
            error = response.json().get("error")
            assert error is None or error["code"] != -32603, (method, name, value, error)
            if error is None and method == "training.start_grpo":
                api.rpc("training.cancel", {"job_id": response.json()["result"]["training_job_id"]})


@settings(
    max_examples=rounds(20, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    config=st.dictionaries(
        st.sampled_from(
            ["n_iterations", "batch_size", "learning_rate", "max_budget_usd", "shaping", "credit", "seed", "x"]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_no_configuration_breaks_anything(api: Caller, agent: Agent, config: dict[str, Any], unlimited: None) -> None:
    fine(api.post("training-jobs/estimate", body({"agent": agent.slug, "config": config})), config)
