"""The content of the logs: no secret that lets its reader in, and no stack trace that a stranger can cause at will."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils.log import log_response

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.deployments.services import deployment_start
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests import factories
from tests.support.rows import queued_run
from tests.support.running import run_to_end

pytestmark = pytest.mark.django_db


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The lines that the handler of the shipped settings writes, at the shipped level."""
    handler, written = logging._handlers["console"], io.StringIO()
    root = logging.getLogger()
    level, stream, added = root.level, handler.stream, handler not in root.handlers
    handler.stream = written
    root.setLevel("INFO")
    if added:
        root.addHandler(handler)
    yield written
    handler.stream = stream
    root.setLevel(level)
    if added:
        root.removeHandler(handler)


TOKEN = "SECRET-of-73-letters"


def test_no_line_holds_a_link_that_signs_in(lines: io.StringIO) -> None:
    log = logging.getLogger("anything")
    log.warning("Not Found: %s", f"/shared/{TOKEN}/")
    log.warning("socket", extra={"request": f"<ASGIRequest: GET '/ws/shared/{TOKEN}?after=0'>"})
    log.info('127.0.0.1 - "WebSocket /ws/shared/%s/" [accepted]', TOKEN)
    log.warning("mail to http://localhost/invitations/%s/ failed", TOKEN)
    try:
        raise RuntimeError(f"/shared/{TOKEN}")
    except RuntimeError:
        log.exception("broken")
    Client().get(f"/shared/{TOKEN}/")
    assert TOKEN not in lines.getvalue() and lines.getvalue().count("[cut]") >= 5
    assert all(json.loads(line) for line in lines.getvalue().splitlines())


@pytest.mark.parametrize("path", ["/", "/api/v1/agents", "/admin/", "/health/live"])
def test_a_foreign_host_is_one_line_without_a_stack_trace(path: str, lines: io.StringIO) -> None:
    assert Client(raise_request_exception=False).get(path, headers={"host": "evil.example"}).status_code in {200, 400}
    assert "Traceback" not in lines.getvalue() and len(lines.getvalue().splitlines()) <= 1


def test_the_servers_own_lines_go_through_the_same_formatter() -> None:
    loggers: dict[str, Any] = settings.LOGGING["loggers"]
    assert loggers["uvicorn.error"]["handlers"] == ["console"] and not loggers["uvicorn.error"]["propagate"]


def read(lines: io.StringIO, message: str) -> list[dict[str, Any]]:
    """The lines with this beginning, each with the ids that an incident is followed by."""
    messages = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [one for one in messages if one["message"].startswith(message)]


def test_each_step_of_a_job_and_each_iteration_is_a_line_with_its_ids(
    lines: io.StringIO, operator: Actor, agent: Agent, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        run = queued_run(operator, agent, config={"n_iterations": 3})
        run_to_end(run.job)
    steps = [one for one in read(lines, "job ") if one["kind"] == "training"]
    assert [(one["message"], one["status"]) for one in (*steps[:2], steps[-1])] == [
        ("job created", "queued"),
        ("job started", "running"),
        ("job completed", "completed"),
    ]
    assert {(one["job_id"], one["agent_id"]) for one in steps} == {(str(run.pk), str(agent.pk))}
    iterations = read(lines, "iteration ")
    assert [one["message"] for one in iterations] == [f"iteration {n} of 3" for n in (1, 2, 3)]
    for one in iterations:
        assert (one["job_id"], one["run"], one["agent_id"]) == (str(run.pk), str(run.pk), str(agent.pk))
        assert float(one["reward_mean"]) < 2 and int(one["trajectories"]) > 0


def test_a_request_that_launches_a_job_is_in_the_line_of_the_job(
    lines: io.StringIO, operator: Actor, agent: Agent, django_capture_on_commit_callbacks: Any
) -> None:
    caller = Client(headers={"X-Request-Id": "asked-by-me"})
    caller.force_login(operator.user)
    body = {"agent": agent.slug, "environment": "reasoning_gym", "config": {"n_iterations": 1}}
    with django_capture_on_commit_callbacks(execute=True):
        assert caller.post("/api/v1/training-jobs", body, "application/json").status_code == 201
    [created] = read(lines, "job created")
    assert (created["request_id"], created["agent_id"]) == ("asked-by-me", str(agent.pk))


def test_a_budget_that_has_no_room_is_a_line_with_its_request_and_no_error(
    lines: io.StringIO,
) -> None:
    record = logging.getLogger("django.request")
    request = RequestFactory().get("/api/v1/training-jobs")
    request.request_id = "asked-by-me"  # type: ignore[attr-defined]
    for code in (507, 500):
        log_response(
            "%s: %s", "no room", request.path, request=request, response=HttpResponse(status=code), logger=record
        )
    [refused, failed] = read(lines, "no room")
    assert (refused["level"], refused["request_id"]) == ("info", "asked-by-me")
    assert (failed["level"], failed["request_id"]) == ("error", "asked-by-me")


def test_each_step_of_a_deployment_is_a_line_with_its_ids(
    lines: io.StringIO, adam: Any, acme: Any, django_capture_on_commit_callbacks: Any
) -> None:
    clerk = factories.AgentFactory(organization=acme, runtime="llm", environment="dataset", slug="clerk")
    release = release_make(Actor(adam), clerk)
    with django_capture_on_commit_callbacks(execute=True):
        deployment = deployment_start(Actor(adam), release, strategy="immediate", override="No suite here.")
    result = read(lines, "deployment ")
    assert result[0]["message"] == "deployment started"
    for one in result:
        assert (one["deployment_id"], one["agent_id"]) == (str(deployment.pk), str(clerk.pk))
