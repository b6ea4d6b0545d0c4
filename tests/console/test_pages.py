"""Who sees which page: every page as each role, as somebody of another organisation, and as nobody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from agentcore_site.tenancy.actors import Actor
from agentcore_site.views.audit import STREAM_ACTS
from budgets.models import Budget, BudgetAlert
from budgets.services import budget_set_limit
from evaluation.models import EvaluationRun
from experiences.models import Agent, TrajectoryRecord
from tests.console.conftest import SignIn
from tests.support.pages import html
from training.models import PolicyCheckpoint, TrainingRun

pytestmark = pytest.mark.django_db

ROLES = ("olivia", "dan", "adam", "stella")
LISTS = (
    "/",
    "/overview/workers/",
    "/agents/",
    "/jobs/",
    "/trajectories/",
    "/exports/",
    "/evaluations/",
    "/suites/",
    "/releases/",
    "/deployments/",
    "/traces/",
    "/keys/",
    "/events/",
    "/events/dead-letters/",
    "/events/trainings/",
    "/dashboards/",
    "/checkpoints/",
    "/datasets/",
    "/jobs/landscape/",
    "/summary/",
    "/notices/",
    "/notices/bell/",
    "/notices/settings/",
    "/search/?q=a",
    "/search/palette/?q=a",
)
RAW = ("/trajectories/", "/traces/", "/groups/")  # parts of addresses that who only looks is refused


@pytest.fixture
def addresses(run: TrainingRun, evaluation: EvaluationRun) -> list[str]:
    """The page of everything that there is, for reading."""
    one = TrajectoryRecord.objects.filter(job_id=run.pk, iteration=1).first()
    a, b = TrajectoryRecord.objects.filter(job_id=evaluation.pk, scenario=0, rollout=0).order_by("arm")
    checkpoint = PolicyCheckpoint.objects.get(run=run)
    assert one is not None
    return [
        f"/agents/{run.agent_id}/",
        f"/agents/{run.agent.slug}/",
        f"/agents/{run.agent_id}/serving/",
        f"/agents/{run.agent_id}/loop/",
        f"/jobs/{run.pk}/",
        *(
            f"/jobs/{run.pk}/?tab={tab}"
            for tab in ("trajectories", "failures", "checkpoints", "evaluation", "settings", "events")
        ),
        f"/jobs/{run.pk}/status/",
        f"/jobs/{run.pk}/series/",
        f"/jobs/{run.pk}/evaluations/",
        f"/jobs/{run.pk}/groups/1/{one.scenario}/",
        f"/trajectories/{one.pk}/",
        f"/trajectories/{one.pk}/steps/",
        f"/trajectories/{one.pk}/json/",
        f"/trajectories/compare/?a={a.pk}&b={b.pk}",
        f"/checkpoints/compare/?pick={checkpoint.pk}&pick={checkpoint.pk}",
        f"/jobs/compare/?pick={run.pk}",
        f"/evaluations/{evaluation.pk}/",
        f"/evaluations/{evaluation.pk}/?part=progress",
        f"/evaluations/{evaluation.pk}/json/",
    ]


@pytest.mark.parametrize("name", ROLES)
def test_it_shows_every_page_to_every_member(
    name: str, request: pytest.FixtureRequest, signed_in: SignIn, addresses: list[str]
) -> None:
    client = signed_in(request.getfixturevalue(name))
    for address in [*LISTS, *addresses]:
        raw = name == "stella" and any(part in address for part in RAW)
        assert client.get(address).status_code == (403 if raw else 200), address


def test_a_person_of_another_organisation_finds_nothing(charlie: Any, signed_in: SignIn, addresses: list[str]) -> None:
    client = signed_in(charlie)
    for address in addresses:
        assert client.get(address).status_code == 404, address


def test_lists_of_another_organisation_are_empty(
    charlie: Any, signed_in: SignIn, run: TrainingRun, evaluation: EvaluationRun
) -> None:
    client = signed_in(charlie)
    for address in LISTS:
        shown = html(client.get(address))
        assert str(run.pk) not in shown and run.agent.name not in shown, address


def test_a_stranger_is_sent_to_sign_in_and_back(addresses: list[str]) -> None:
    for address in [*LISTS, *addresses]:
        response = Client().get(address)
        assert response.status_code == 302 and response["Location"].startswith("/sign-in/?next="), address


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
    for address in posts:
        assert client.post(address, {"confirm": run.agent.slug}).status_code == 403, address
    assert client.post("/evaluations/start/", {"run": run.pk}).status_code == 403
    assert client.post(f"/evaluations/{evaluation.pk}/cancel/").status_code == 403
    assert client.get(f"/checkpoints/{checkpoint.pk}/download/").status_code == 403
    assert client.get("/launch/").status_code == 403
    run.job.refresh_from_db()
    assert run.job.status == "completed"


def test_forbidden_actions_are_not_shown(stella: Any, signed_in: SignIn, run: TrainingRun, console: Client) -> None:
    for address, words in {
        "/jobs/": ["Launch training"],
        f"/jobs/{run.pk}/": ["Duplicate", "Share", ">Pause<", ">Cancel<"],
        f"/agents/{run.agent_id}/": ["Edit", "Archive", "Launch training"],
        f"/jobs/{run.pk}/?tab=checkpoints": ["Download", "Change the tags"],
        f"/jobs/{run.pk}/evaluations/": ["Evaluate the best checkpoint"],
    }.items():
        shown = html(signed_in(stella).get(address))
        assert [word for word in words if word in shown] == [], address
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


def test_every_page_keeps_the_strict_policy(console: Client, addresses: list[str]) -> None:
    for address in ["/launch/", "/agents/new/", *LISTS, *addresses]:
        response = console.get(address)
        assert "style-src 'self';" in response["Content-Security-Policy"] + ";"
        if response["Content-Type"].startswith("text/html"):
            shown = html(response)
            assert " style=" not in shown and "<style" not in shown and "onclick=" not in shown, address
            assert "<script>" not in shown, address


def test_every_address_of_the_console_is_tried_here(addresses: list[str]) -> None:
    """A new page without a line in these tests fails this one."""
    tried = {
        "summary", "share_links", "share_link_revoke", "webhooks", "webhook_new", "webhook", "webhook_test",
        "webhook_on", "webhook_off", "webhook_secret", "webhook_remove", "webhook_again", "notices", "notice_bell",
        "notices_read", "notice_settings",
        "roles", "single_sign_on", "single_sign_on_back",
        "account", "sign_in_end", "sign_in_code", "sign_in_enrol", "second_factor", "second_factor_remove",
        "second_factor_recovery", "passkey_add", "passkey_begin", "passkey_remove", "sign_in_passkey",
        "sign_in_passkey_begin", "second_factor_required", "member_factor_remove",
        "password_forgotten", "password_reset", "key_revoke",
        "overview", "workers", "search", "palette", "sign_in", "sign_out", "audit", "audit_export", "system", "agents",
        "audit_stream", *(f"audit_stream_{one}" for one in STREAM_ACTS),
        "agent", "agent_new", "agent_demo",
        "note", "pin", "unpin", "comment", "comment_edit", "comment_remove", "columns", "view_save",
        "view_change", "view_remove",
        "agent_edit", "sign_out_everywhere", "people", "member_change", "member_remove",
        "invitation", "invitation_resend", "invitation_revoke",
        "agent_archive", "agent_options", "agent_test", "agent_server_tools",
        "endpoints", "endpoint_new", "endpoint_edit", "endpoint_archive",
        "endpoint_test", "tool_servers", "tool_server_new", "tool_server", "tool_server_archive", "tool_server_offer",
        "library", "experience", "experience_edit", "experience_restore", "experience_prune", "experience_quarantine",
        "experience_merge",
        "experience_approve", "playbooks", "playbook", "playbook_create", "playbook_switch", "playbook_delete",
        "playbook_add", "playbook_item", "playbook_item_edit", "playbook_remove", "playbook_revert", "playbook_diff",
        "playbook_rollback", "playbook_adopt", "playbook_evolve", "evolution", "evolution_cancel", "evolution_retry",
        "execution", "reviews", "review", "review_approve", "review_reject", "review_approve_lesson",
        "review_reject_lesson", "prompt_packs", "prompt_pack_new", "prompt_pack", "prompt_pack_archive",
        "exports", "export", "export_new", "export_start", "export_stream", "export_download", "export_cancel",
        "archives", "archiving", "archive_start", "archive_cancel", "archive_rule", "archive_restore",
        "datasets", "dataset_new", "dataset", "dataset_checks", "dataset_edit", "dataset_archive", "dataset_restore",
        "dataset_download", "dataset_overlaps",
        "encryption", "encrypting", "encryption_rotate", "encryption_end", "encryption_move", "encryption_stop",
        "annotate", "annotation_edit", "annotation_remove", "annotated_new",
        "trajectories", "compare", "chosen", "landscape", "trajectory", "steps", "raw", "group", "jobs",
        "job", "status", "series", "pause", "resume", "cancel", "share", "unshare", "unshare_one", "launch",
        "plan", "data", "domain",
        "settings", "upload", "upload_checkpoint", "checkpoints", "tags", "download", "shared", "shared_status",
        "shared_series",
        "evaluations", "start", "report", "report_json", "of_run",
        "approve", "deploy", "deployment", "deployment_advance", "deployment_pause", "deployment_resume",
        "deployment_roll_back", "deployments", "edits", "keys", "loop", "loop_rows", "loop_start", "loop_stop", "make",
        "promote", "release", "release_json", "release_tensorzero", "releases", "restore", "roll_back", "serving",
        "suite", "suite_add", "suite_archive", "suite_new", "suite_run", "suite_run_cancel", "suite_run_json",
        "suite_run_resume", "suite_start", "suite_version", "suites", "trace", "trace_feedback", "trace_json", "traces",
    }  # fmt: skip
    named = {pattern.name for pattern in _console_patterns(get_resolver().url_patterns) if pattern.name}
    assert named == tried


def _console_patterns(patterns: list[Any]) -> list[URLPattern]:
    found: list[URLPattern] = []
    for one in patterns:
        if isinstance(one, URLResolver):
            if one.app_name in ("experiences", "training", "evaluation", "serving"):
                found += _console_patterns(one.url_patterns)
        elif one.callback.__module__.startswith("agentcore_site.views") or ".views" in one.callback.__module__:
            found.append(one)
    return [one for one in found if not one.callback.__module__.startswith("rest_framework")]


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


def test_it_does_not_send_people_to_other_sites(olivia: Any) -> None:
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


def test_somebody_without_an_organisation_sees_an_empty_console(db: None, signed_in: SignIn) -> None:
    from tests.factories import UserFactory

    client = signed_in(UserFactory(username="nina"))
    shown = html(client.get("/"))
    assert "no organisation yet" in shown
    assert client.get("/agents/new/").status_code == 403


def test_the_overview_shows_budgets_that_are_nearly_used_up(
    console: Client, adam: Any, agent: Agent, acme: Any, charlie: Any, signed_in: SignIn
) -> None:
    budget = budget_set_limit(Actor(adam), organization=acme, agent_id=agent.id, limit=1_000_000)
    Budget.objects.filter(id=budget.id).update(spent=950_000)
    for threshold in (75, 90):
        BudgetAlert.objects.create(budget=budget, threshold=threshold, limit=1_000_000, spent=threshold * 10_000)
    shown = html(console.get("/"))
    assert shown.count(f"/budgets/{budget.id}/") == 1 and "90 %" in shown
    assert f"/budgets/{budget.id}/" not in html(signed_in(charlie).get("/"))
    budget_set_limit(Actor(adam), organization=acme, agent_id=agent.id, limit=50_000_000)
    assert f"/budgets/{budget.id}/" not in html(console.get("/"))
