"""No page says what is false: about roles, about workers, about what is not there."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.workers import workers_seen
from agentcore_site.templatetags.figures import change
from evaluation.models import EvaluationRun
from tests.console.conftest import SignIn

pytestmark = pytest.mark.django_db


def text(response: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


@pytest.mark.parametrize("who", ["dan", "stella"])
def test_a_refused_role_sees_the_reason_and_the_roles_that_may(who: str, request: Any, signed_in: SignIn) -> None:
    person = request.getfixturevalue(who)
    shown = text(signed_in(person).get("/launch/"))
    role = {"dan": "developer", "stella": "stakeholder"}[who]
    assert f"You may not start training: your role is {role}. Operators and admins may do this." in shown
    assert "only reads" not in shown


@pytest.mark.parametrize(("address", "code"), [("/launch/", 403), ("/nowhere/", 404), ("/agents/none-such/", 404)])
def test_a_refusal_keeps_the_rail_and_the_search(dan: Any, signed_in: SignIn, address: str, code: int) -> None:
    response = signed_in(dan).get(address)
    html = response.content.decode()
    assert response.status_code == code
    assert 'id="rail"' in html and 'id="top-search"' in html and "trouble-mark" in html


def test_strangers_see_no_rail(client: Client, db: None) -> None:
    response = client.get("/nowhere/")
    assert response.status_code == 404 and 'id="rail"' not in response.content.decode()


def held(acme: Any, **values: Any) -> Job:
    return Job.objects.create(organization=acme, kind="training", title="x", worker="host:1", **values)


def panel(client: Client) -> str:
    return text(client.get("/overview/workers/"))


def test_a_worker_that_holds_a_job_is_shown_as_running_without_an_answer_to_ping(console: Client, acme: Any) -> None:
    """No Celery worker runs beside these tests, so that no worker responds."""
    assert "no worker responds" in panel(console)
    held(acme, status=Status.RUNNING, lease_until=timezone.now() + timedelta(seconds=20))
    assert "1 at work" in panel(console) and "no worker responds" not in panel(console)


def test_within_a_minute_of_a_finished_job_no_page_says_that_none_answers(console: Client, acme: Any) -> None:
    now = timezone.now()
    job = held(acme, status=Status.COMPLETED, finished_at=now - timedelta(seconds=50))
    Job.objects.filter(id=job.id).update(updated_at=now - timedelta(minutes=9))
    assert "idle" in panel(console) and "no worker responds" not in panel(console)
    Job.objects.filter(id=job.id).update(finished_at=now - timedelta(seconds=70))
    assert workers_seen().state == "none"


def test_an_interval_of_ten_queries_is_students_in_the_units_of_its_metric(
    console: Client, evaluation: EvaluationRun
) -> None:
    """Eight queries took three steps less, two as many: by Student's t 2.4 less, give or take .9."""
    steps = evaluation.report["lines"]["held_out"]["metrics"]["steps"]
    assert (steps["low"], steps["high"]) == (pytest.approx(-3.30, abs=0.02), pytest.approx(-1.50, abs=0.02))
    edges = f"{change(steps['low'], '')} to {change(steps['high'], '')}"
    assert edges in text(console.get(f"/evaluations/{evaluation.pk}/"))
    assert "Student's t over queries" in evaluation.report["method"]
