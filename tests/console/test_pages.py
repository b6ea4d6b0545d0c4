"""Pages for some roles alone, errors, and signing in. tests/test_doors_walk.py opens every page as each role."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.tenancy.actors import Actor
from budgets.models import Budget, BudgetAlert
from budgets.services import budget_set_limit
from evaluation.models import EvaluationRun
from experiences.models import Agent, TrajectoryRecord
from tests.console.conftest import SignIn
from tests.support.pages import html
from tests.support.rounds import one_in
from tests.support.routes import CONSOLE
from tests.test_doors import address, short_pings, values
from training.models import PolicyCheckpoint, TrainingRun
from training.presenters.tabs import TABS

__all__ = ["short_pings", "values"]  # fixtures
pytestmark = pytest.mark.django_db


def test_a_part_of_a_page_sends_a_stranger_to_sign_in_as_a_whole(run: TrainingRun) -> None:
    response = Client().get(f"/jobs/{run.pk}/status/", headers={"HX-Request": "true"})
    assert (response.status_code, response["HX-Redirect"]) == (401, "/sign-in/")


def test_the_audit_log_is_for_admins(
    adam: Any, olivia: Any, dan: Any, stella: Any, signed_in: SignIn, run: TrainingRun
) -> None:
    shown = html(signed_in(adam).get("/audit/"))
    assert "run.started" in shown and "olivia" in shown
    for person in (olivia, dan, stella):
        assert signed_in(person).get("/audit/").status_code == 403
        assert "/audit/" not in html(signed_in(person).get("/"))


def test_the_audit_log_is_read_from_day_to_day(adam: Any, signed_in: SignIn, run: TrainingRun) -> None:
    client = signed_in(adam)
    today = timezone.now().date()
    assert "run.started" in html(client.get(f"/audit/?since={today}&until={today}"))
    assert "No entry matches" in html(client.get(f"/audit/?until={today - timedelta(days=1)}"))
    assert client.get("/audit/?since=yesterday").status_code == 400


def test_an_admin_of_one_organisation_reads_only_its_log(adam: Any, charlie: Any, signed_in: SignIn) -> None:
    Client().post("/sign-in/", {"username": "charlie", "password": "correct horse battery staple"})
    assert "charlie" not in html(signed_in(adam).get("/audit/"))


MOVES = ("pause", "resume", "cancel", "share", "unshare")


def test_a_stakeholder_changes_nothing(
    stella: Any, signed_in: SignIn, run: TrainingRun, evaluation: EvaluationRun
) -> None:
    client = signed_in(stella)
    checkpoint = PolicyCheckpoint.objects.get(run=run)
    posts = [f"/jobs/{run.pk}/{move}/" for move in MOVES] + [
        "/launch/",
        f"/agents/{run.agent_id}/edit/",
        f"/agents/{run.agent_id}/archive/",
        "/agents/new/",
        f"/checkpoints/{checkpoint.pk}/tags/",
    ]
    for path in posts:
        assert client.post(path, {"confirm": run.agent.slug}).status_code == 403, path
    assert client.post("/evaluations/start/", {"run": run.pk}).status_code == 403
    assert client.post(f"/evaluations/{evaluation.pk}/cancel/").status_code == 403
    assert client.get(f"/checkpoints/{checkpoint.pk}/download/").status_code == 403
    assert client.get("/launch/").status_code == 403
    run.job.refresh_from_db()
    assert run.job.status == "completed"


def test_forbidden_actions_are_not_shown(stella: Any, signed_in: SignIn, run: TrainingRun, console: Client) -> None:
    for path, words in {
        "/jobs/": ["Launch training"],
        f"/jobs/{run.pk}/": ["Duplicate", "Share", ">Pause<", ">Cancel<"],
        f"/agents/{run.agent_id}/": ["Edit", "Archive", "Launch training"],
        f"/jobs/{run.pk}/?tab=checkpoints": ["Download", "Change the tags"],
        f"/jobs/{run.pk}/evaluations/": ["Evaluate the best checkpoint"],
    }.items():
        shown = html(signed_in(stella).get(path))
        assert [word for word in words if word in shown] == [], path
    assert "Duplicate" in html(console.get(f"/jobs/{run.pk}/"))


def test_a_person_of_another_organisation_moves_nothing(charlie: Any, signed_in: SignIn, run: TrainingRun) -> None:
    client = signed_in(charlie)
    for move in MOVES:
        assert client.post(f"/jobs/{run.pk}/{move}/", {"confirm": run.agent.slug}).status_code == 404
    assert client.post("/evaluations/start/", {"run": run.pk}).status_code == 404
    assert client.post("/launch/", {"agent": run.agent_id}).status_code == 400
    assert TrainingRun.objects.count() == 1


def test_changes_need_a_post(console: Client, run: TrainingRun) -> None:
    for move in MOVES:
        assert console.get(f"/jobs/{run.pk}/{move}/").status_code == 405
    assert console.get("/sign-out/").status_code == 405


@pytest.mark.slow(reason="every page")
@pytest.mark.rounds
def test_every_page_keeps_the_strict_policy(
    adam: Any, signed_in: SignIn, evaluation: EvaluationRun, values: dict[str, Any], run: TrainingRun
) -> None:
    client, values["evaluation"] = signed_in(adam), evaluation.pk
    a, b = TrajectoryRecord.objects.filter(job_id=evaluation.pk, scenario=0, rollout=0).order_by("arm")
    checkpoint = values["checkpoint_id"]
    with_query = [
        *(f"/jobs/{run.pk}/?tab={tab.key}" for tab in TABS),
        f"/trajectories/compare/?a={a.pk}&b={b.pk}",
        f"/checkpoints/compare/?pick={checkpoint}&pick={checkpoint}",
        f"/jobs/compare/?pick={run.pk}",
        f"/evaluations/{evaluation.pk}/?part=progress",
        *("/search/?q=a", "/search/palette/?q=a"),
    ]
    for path in [*with_query, *(address(route, values) for route in one_in(4, sorted(CONSOLE)))]:
        response = client.get(path)
        assert path not in with_query or response.status_code == 200, path
        if response.status_code == 200:
            assert "style-src 'self';" in response["Content-Security-Policy"] + ";", path
            if response["Content-Type"].startswith("text/html"):
                shown = html(response)
                assert " style=" not in shown and "<style" not in shown and "onclick=" not in shown, path
                assert "<script>" not in shown, path


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_unknown_address_gets_a_page_with_the_request_id(console: Client) -> None:
    response = console.get("/nowhere/", headers={"X-Request-Id": "abc-123"})
    assert response.status_code == 404
    shown = html(response)
    assert "This page does not exist, or you may not see it" in shown and "abc-123" in shown


def test_a_failure_gets_a_page_that_says_what_is_safe(
    olivia: Any, monkeypatch: pytest.MonkeyPatch, run: TrainingRun
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("training.presenters.panel.done_criteria", broken)
    client = Client(raise_request_exception=False)
    client.force_login(olivia)
    response = client.get(f"/jobs/{run.pk}/", headers={"X-Request-Id": "broken-1"})
    shown = html(response)
    assert response.status_code == 500
    assert "broken-1" in shown and "Running jobs continue" in shown and "secret detail" not in shown
    part = html(client.get(f"/jobs/{run.pk}/status/", headers={"HX-Request": "true"}))
    assert "An error occurred on the server" in part and "<html" not in part


def test_a_missing_database_gets_a_page_and_not_a_trace(console: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db.utils import OperationalError

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("agentcore_site.views.overview.jobs_visible", away)
    response = console.get("/")
    assert (response.status_code, response["Retry-After"]) == (503, "30")
    assert "The database can't be reached" in html(response)


def test_a_refusal_inside_a_page_is_a_notice(console: Client, run: TrainingRun) -> None:
    response = console.post(f"/jobs/{run.pk}/pause/", headers={"HX-Request": "true"})
    assert (response.status_code, response["HX-Retarget"]) == (409, "#notices")
    assert "completed can&#x27;t be paused" in html(response)


# -- signing in --------------------------------------------------------------------------------------------------------


def test_signing_in_goes_where_one_wanted_to_go(olivia: Any) -> None:
    client = Client()
    form = {"username": "olivia", "password": "correct horse battery staple", "next": "/jobs/"}
    assert client.post("/sign-in/", form)["Location"] == "/jobs/"
    assert client.post("/sign-out/")["Location"] == "/sign-in/"
    assert client.get("/jobs/").status_code == 302


def test_sign_in_does_not_send_people_to_other_sites(olivia: Any) -> None:
    form = {"username": "olivia", "password": "correct horse battery staple", "next": "https://evil.example/"}
    assert Client().post("/sign-in/", form)["Location"] == "/"


def test_a_wrong_password_keeps_the_name_and_is_slowed_down(settings: Any, olivia: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # it looks at eleven passwords
    client = Client()
    for _ in range(10):
        response = client.post("/sign-in/", {"username": "olivia", "password": "wrong"})
        assert response.status_code == 400 and 'value="olivia"' in html(response)
    response = client.post("/sign-in/", {"username": "olivia", "password": "correct horse battery staple"})
    assert response.status_code == 429 and response["Retry-After"] == "900"


def test_a_person_without_an_organisation_sees_an_empty_console(db: None, signed_in: SignIn) -> None:
    from tests.factories import UserFactory

    client = signed_in(UserFactory(username="nina"))
    shown = html(client.get("/"))
    assert "no organisation yet" in shown
    assert client.get("/agents/new/").status_code == 403


def test_the_overview_shows_budgets_that_are_nearly_used_up(
    console: Client, adam: Any, agent: Agent, acme: Any, charlie: Any, signed_in: SignIn
) -> None:
    budget = budget_set_limit(Actor(adam), organization=acme, agent_id=agent.id, limit_micros=1_000_000)
    Budget.objects.filter(id=budget.id).update(spent_micros=950_000)
    for threshold in (75, 90):
        BudgetAlert.objects.create(
            budget=budget, threshold=threshold, limit_micros=1_000_000, spent_micros=threshold * 10_000
        )
    shown = html(console.get("/"))
    assert shown.count(f"/budgets/{budget.id}/") == 1 and "90 %" in shown
    assert f"/budgets/{budget.id}/" not in html(signed_in(charlie).get("/"))
    budget_set_limit(Actor(adam), organization=acme, agent_id=agent.id, limit_micros=50_000_000)
    assert f"/budgets/{budget.id}/" not in html(console.get("/"))
