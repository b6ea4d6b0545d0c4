"""The Django admin: every model, read-only where only the work writes, actions through the services."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent, ErasedWords, Seal
from agentcore_site.audit.services import event_erase, record
from agentcore_site.audit.tasks import seal_all
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.encryption.models import DataKey
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import HostProcess, Job, Status
from agentcore_site.jobs.services import share_create
from agentcore_site.models import IdempotencyRecord, SavedView, SiteFact, TableSize
from agentcore_site.notices.models import Notice, NoticePreferences, WebhookAttempt
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.models import (
    ApiKey,
    BrowserSession,
    Erasure,
    Invitation,
    Membership,
    Organization,
    Passkey,
    ProviderAccount,
    SecondFactor,
    TokenFamily,
)
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_create
from budgets.ledger.days import days_sum
from evaluation.events.models import StoredSpan, WaitingSpan
from evaluation.models import EvaluationResult, HeldOutUse
from evaluation.services import evaluation_start
from evaluation.serving.deployments.services import deployment_start
from evaluation.serving.models import CanaryObservation, KeySpending, PlanDelivery, ReleaseApproval
from evaluation.serving.releases.services import release_make
from evaluation.warehouse.models import HourlyMeasure, RowChange, WarehouseStore
from experiences.agents.services.datasets import dataset_create
from experiences.models import (
    Agent,
    ArchivedJob,
    ArchiveRule,
    EndpointServer,
    ExperienceChange,
    ExportPart,
    QueryRecord,
    Question,
    TrajectoryExport,
    TrajectoryRecord,
)
from experiences.trajectories.annotations.services import annotation_create
from tests import factories
from tests.budgets.rows import a_row_of_each
from tests.support.erasures import erasure_of
from tests.support.playbooks import a_row_of_each_playbook_table
from tests.support.rounds import one_in, rounds, some
from tests.support.rows import checkpoint_of_run, lived_run, queued_run
from training.grading.graded import graded_set
from training.grading.selectors import scorers_of
from training.grading.services import sample_draw
from training.models import Epoch, TrainingRun
from training.services.notes import comment_add, job_pin

pytestmark = pytest.mark.django_db

# Keys of several columns have no pages in Django's admin: a query is on the pages of its trajectories.
OURS = [model for model in apps.get_models() if model._meta.app_label in {
    "agentcore_site", "budgets", "experiences", "training", "evaluation"
} and model is not QueryRecord]  # fmt: skip
OF_THE_SITE = {SiteFact, HostProcess, TableSize, Seal, ErasedWords}
READ_ONLY = {
    "auditevent", "apikey", "job", "jobevent", "sharelink", "dataset", "datasetrow", "trajectoryrecord", "grouprecord",
    "trainingrun", "iteration", "policycheckpoint", "evaluationrun", "evaluationresult", "heldoutuse",
    "idempotencyrecord", "budgetlimit", "reservation", "ledgerentry", "ledgerday", "budgetalert", "modelendpoint",
    "toolserver",
    "erasure", "tokenfamily", "sitefact", "mail", "hostprocess", "tablesize", "trajectoryarchive", "archivedjob",
    "trajectoryexport", "exportpart", "annotation", "archiverule", "seal", "erasedwords", "auditstream",
    "siteevent", "webhookendpoint", "webhookdelivery", "webhookattempt", "notice", "noticepreferences",
    "savedview", "jobcomment", "jobpin", "datakey", "browsersession", "secondfactor", "provideraccount", "passkey",
    "promptpack", "experience", "experiencechange", "question", "epoch", "playbook",
    "gradersample", "graderjudgement", "endpointserver",
    "playbookversion", "playbooksection", "playbookchange", "contextdelta", "executiontrace", "evolution",
}  # fmt: skip


@pytest.fixture
def boss(adam: Any) -> Client:
    client = Client()
    client.force_login(adam)
    return client


@pytest.fixture
def everything(operator: Actor, agent: Agent, adam: Any) -> TrainingRun:
    """A row of every model."""
    run = lived_run(operator, agent)
    evaluation = evaluation_start(operator, run=run, samples=1)
    EvaluationResult.objects.create(
        evaluation=evaluation, arm="trained", line="held_out", scenario=0, query="q", outcomes=[1.0], successes=[True],
        rewards=[1.0], steps=[2], tool_calls=[1], tool_errors=[0],
    )  # fmt: skip
    HeldOutUse.objects.create(evaluation=evaluation, agent=agent, organization=run.organization, fingerprint="f")
    share_create(operator, run.job)
    api_key_create(operator, name="laptop", scopes=["training:view"])
    IdempotencyRecord.objects.create(
        organization=run.organization, user=adam, key="k", operation="POST /api/v1/agents", fingerprint="f"
    )
    rows = [{"query": f"what is {n}?", "expected_outcome": {"answer": str(n)}} for n in range(20)]
    dataset_create(operator, name="numbers", rows=rows)
    a_row_of_each(run.job)
    factories.ModelEndpointFactory(organization=run.organization)
    factories.ToolServerFactory(organization=run.organization)
    endpoint = factories.ModelEndpointFactory(organization=run.organization, name="own")
    EndpointServer.objects.create(
        organization=run.organization, endpoint=endpoint, place="here", source="random", port=1
    )
    factories.PromptPackFactory(organization=run.organization)
    lesson = factories.ExperienceFactory(agent=agent)
    ExperienceChange.objects.create(experience=lesson, version=1, action="added", by="olivia")
    Question.objects.create(
        organization=run.organization, job=run.job, agent=agent, key="k", stage="summary", asked="a", usable=True
    )
    a_row_of_each_playbook_table(operator, agent, run.job)
    graded = graded_set(operator, run.job_id)
    sample_draw(operator, graded, scorers_of(graded)[0][0])
    Epoch.objects.create(run=run, number=1, metrics={"rollouts": 2}, gate={"accepted": True})
    Invitation.objects.create(
        organization=run.organization, email="new@example.org", digest="d", expires_at=timezone.now()
    )
    SiteFact.objects.create(name="a_fact", value="v")
    TableSize.objects.create(day=timezone.now().date(), name="jobs_job", size=8_192)
    HostProcess.objects.create(
        place="one:abc:all", name="web", host="one", pid=7, started_at=timezone.now(), seen_at=timezone.now()
    )
    with erasure_of(run.organization) as ordered:
        event_erase(record(None, "test.line", organization=run.organization).pk, ordered, ["words"])
    seal_all()
    ArchiveRule.objects.create(organization=run.organization, keep_days=30)
    comment_add(operator, run, "Look at it.")
    job_pin(operator, run)
    SavedView.objects.create(organization=run.organization, person=adam, page="training:jobs", name="mine")
    AuditStream.objects.create(organization=run.organization, url="https://siem.example.org/log")
    delivery = factories.WebhookDeliveryFactory(organization=run.organization)
    WebhookAttempt.objects.create(organization=run.organization, delivery=delivery, duration_ms=1)
    Notice.objects.create(organization=run.organization, user=adam, event=delivery.event)
    NoticePreferences.objects.create(organization=run.organization, user=adam)
    archive = factories.TrajectoryArchiveFactory(agent=agent)
    ArchivedJob.objects.create(
        organization=run.organization, archive=archive, job_id=run.job_id, rows=1, mark=1, first_group=0, groups=1
    )
    one = TrajectoryRecord.objects.filter(job_id=run.job_id).first()
    assert one is not None
    annotation_create(operator, one, label="good")
    exporting = lifecycle.submit(operator, kind="export", organization=run.organization, title="An export")
    export = TrajectoryExport.objects.create(
        organization=run.organization, job=exporting, format="jsonl", until=timezone.now()
    )
    ExportPart.objects.create(export=export, number=0, path="p", rows=1, size=1, sha256="s")
    DataKey.objects.create(organization=run.organization, version=1, holder="local", sealed="s", active=False)
    mail_queue(run.organization, to=["olivia@example.com"], subject="A subject", body="A body.")
    TokenFamily.objects.create(user=adam, current="j", expires_at=timezone.now())
    BrowserSession.objects.create(user=adam, session_key="s")
    SecondFactor.objects.create(user=adam, sealed="s")
    Passkey.objects.create(user=adam, name="laptop", credential_id="c", key=b"k")
    ProviderAccount.objects.create(user=adam, issuer="https://login.example.org", subject="s")
    Erasure.objects.create(organization=run.organization, digests=["d"], found={"rows": 1}, left={"rows": 0})
    assert days_sum(timezone.now() + timezone.timedelta(days=2))
    return run


def address(model: Any, name: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{name}", args=args)


def test_every_model_has_a_page() -> None:
    ours = {"agentcore_site", "budgets", "experiences", "training", "evaluation"}
    models = [model for model in apps.get_models() if model.__module__.partition(".")[0] in ours]
    assert len(models) > 90
    assert [model.__name__ for model in models if model not in admin.site._registry] == [QueryRecord.__name__]


@pytest.mark.parametrize("label", ["serving", "events", "warehouse"])
def test_pages_of_production_events_and_warehouse_open_and_change_nothing(boss: Client, label: str) -> None:
    for model in apps.get_app_config(label).get_models():
        assert boss.get(address(model, "changelist"), {"q": "router"}).status_code == 200, model
        assert boss.get(address(model, "add")).status_code == 403, model


def test_a_row_of_what_production_wrote_opens(boss: Client, adam: Any, acme: Organization) -> None:
    clerk = factories.AgentFactory(organization=acme, runtime="llm", environment="dataset", slug="clerk")
    release = release_make(Actor(adam), clerk)
    deployment = deployment_start(Actor(adam), release, strategy="immediate", override="No suite here.")
    now, of = timezone.now(), {"deployment": deployment}
    rows = [
        ReleaseApproval.objects.create(release=release, by=adam),
        deployment.events.first(),
        PlanDelivery.objects.create(**of),
        CanaryObservation.objects.create(
            **of, session="s", trace_id=uuid4(), new=True, share=0.1, failed=False, cost_micros=1, duration_ms=1, at=now
        ),
        KeySpending.objects.create(organization=acme, key_id=uuid4(), month=now.date(), spent_micros=1, calls=1),
        WaitingSpan.objects.create(organization=acme, agent=clerk, trace_id="t", span_id="s", root=True, body="{}"),
        StoredSpan.objects.create(organization=acme, agent=clerk, trace_id="t", span_id="s", root=True, body="{}"),
        RowChange.objects.create(sink="warehouse", kind="trajectory", organization_id=acme.pk),
        WarehouseStore.objects.create(),
        HourlyMeasure.objects.create(
            organization_id=acme.pk, agent_id=clerk.pk, hour=now, day=now.date(), measure="n", bucket=0, n=1, total=1.0,
            squares=1.0,
        ),
    ]  # fmt: skip
    for row in rows:
        assert boss.get(address(type(row), "change", row.pk)).status_code == 200, row
        assert boss.get(address(type(row), "changelist")).status_code == 200, row
        assert boss.post(address(type(row), "change", row.pk), {"share": 1}).status_code == 403, row


def test_its_pages_are_sound() -> None:
    """``manage.py check`` may look at them before they are loaded."""
    assert admin.site.check(None) == []


@pytest.mark.rounds
def test_each_list_and_each_row_opens(boss: Client, everything: TrainingRun) -> None:
    for model in one_in(4, OURS):
        for term in ("", *some(("question", str(everything.job_id), "%_'\"\\"), 1)):
            listing = boss.get(address(model, "changelist"), {"q": term} if term else {})
            assert listing.status_code == 200, (model, term)
        first = model._default_manager.first()
        assert first is not None, f"the test has no {model.__name__}"
        assert boss.get(address(model, "change", first.pk)).status_code == 200, model
        added = boss.get(address(model, "add")).status_code
        assert added == (403 if model._meta.model_name in READ_ONLY else 200), model


@pytest.mark.rounds
def test_rows_that_jobs_wrote_are_neither_changed_nor_deleted(boss: Client, everything: TrainingRun) -> None:
    for model in one_in(4, OURS):
        row = model._default_manager.first()
        assert row is not None, f"the test has no {model.__name__}"
        if model is Membership:
            continue  # members leave; see below
        assert boss.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403, model
        selected = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
        boss.post(address(model, "changelist"), selected)
        assert model._default_manager.filter(pk=row.pk).exists(), model
        if model._meta.model_name in READ_ONLY:
            assert boss.post(address(model, "change", row.pk), {"status": "completed"}).status_code == 403, model


def test_jobs_are_moved_through_the_services(boss: Client, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)

    def act(action: str) -> str:
        boss.post(address(Job, "changelist"), {"action": action, "_selected_action": [str(run.job_id)]})
        return str(Job.objects.get(id=run.job_id).status)

    assert act("pause") == Status.PAUSED
    assert act("resume") == Status.QUEUED
    assert act("cancel") == Status.CANCELLED
    refused = boss.post(
        address(Job, "changelist"), {"action": "resume", "_selected_action": [str(run.job_id)]}, follow=True
    )
    assert "Only a paused or failed job can be resumed" in refused.content.decode()
    logged = AuditEvent.objects.filter(target_id=str(run.job_id), actor="adam").values_list("action", "door")
    assert ("job.pause_requested", "admin") in logged and ("job.cancel_requested", "admin") in logged


def test_runs_keys_links_and_agents_have_their_actions(boss: Client, everything: TrainingRun, operator: Actor) -> None:
    other = factories.AgentFactory(organization=everything.organization)
    run = queued_run(operator, other)
    key = ApiKey.objects.get(name="laptop")
    link = everything.job.share_links.get()
    for model, action, row in (
        (TrainingRun, "cancel", run),
        (ApiKey, "revoke", key),
        (type(link), "revoke", link),
        (Agent, "archive", other),
    ):
        boss.post(address(model, "changelist"), {"action": action, "_selected_action": [str(row.pk)]})
    for row in (key, link, other, run.job):
        row.refresh_from_db()
    assert key.revoked_at and link.revoked_at and other.archived_at and run.job.status == Status.CANCELLED


def test_an_agent_is_edited_and_the_edit_is_logged(boss: Client, agent: Agent) -> None:
    values = {
        "organization": agent.organization_id, "name": "Renamed", "slug": agent.slug, "description": "",
        "philosophy": "react", "runtime": "action", "environment": "reasoning_gym", "environment_options": "{}",
        "max_tokens": 1024, "tools": "[]", "collects": "on", "leave_out_rate": agent.leave_out_rate,
    }  # fmt: skip
    refused = boss.post(address(Agent, "change", agent.pk), values | {"environment": "nowhere"})
    assert refused.status_code == 200 and "There is no environment named" in refused.content.decode()
    toolless = boss.post(address(Agent, "change", agent.pk), values | {"tools": '["hammer"]'})
    assert toolless.status_code == 200 and "There is no tool named" in toolless.content.decode()
    assert boss.post(address(Agent, "change", agent.pk), values).status_code == 302
    event = AuditEvent.objects.get(action="agent.changed")
    assert event.before == {"name": agent.name} and event.after == {"name": "Renamed"} and event.door == "admin"


def test_roles_are_edited_and_members_removed_with_a_trace(boss: Client, olivia: Any, acme: Organization) -> None:
    row = olivia.memberships.get()
    values = {"organization": acme.pk, "user": olivia.pk, "role": Role.STAKEHOLDER}
    assert boss.post(address(Membership, "change", row.pk), values).status_code == 302
    assert boss.post(address(Membership, "delete", row.pk), {"post": "yes"}).status_code == 302
    actions = AuditEvent.objects.filter(target_type="tenancy.membership").values_list("action", "organization_id")
    assert {("membership.changed", acme.id), ("membership.deleted", acme.id)} == set(actions)


def test_people_are_edited_and_no_password_is_logged(boss: Client, adam: Any) -> None:
    User = get_user_model()
    address_of_add = reverse("admin:auth_user_add")
    values = {
        "username": "newcomer",
        "password1": "a long enough one",
        "password2": "a long enough one",
        "usable_password": "true",
    }
    assert boss.post(address_of_add, values).status_code == 302
    assert User.objects.filter(username="newcomer").exists()
    event = AuditEvent.objects.get(action="user.created")
    assert event.after["username"] == "newcomer" and "long enough" not in str(event.after)
    assert boss.get(reverse("admin:auth_user_change", args=[adam.pk])).status_code == 200


def test_an_organisations_admin_sees_only_its_own_rows(everything: TrainingRun, elsewhere: Organization) -> None:
    carla = factories.UserFactory(username="carla", is_staff=True)
    factories.MembershipFactory(organization=elsewhere, user=carla, role=Role.ADMIN)
    own = factories.AgentFactory(organization=elsewhere)
    client = Client()
    client.force_login(carla)
    for model in OURS:
        listing = client.get(address(model, "changelist"))
        assert listing.status_code == (403 if model in OF_THE_SITE else 200), model
        shown = listing.content.decode()
        for secret in (str(everything.job_id), everything.agent.name, everything.agent.slug, "question 1"):
            assert secret not in shown, (model, secret)
    assert client.get(address(Agent, "change", everything.agent_id)).status_code == 302
    assert client.get(address(Agent, "change", own.pk)).status_code == 200
    values = {
        "organization": everything.organization_id, "name": "Taken", "slug": own.slug, "philosophy": "react",
        "runtime": "action", "environment": "reasoning_gym", "environment_options": "{}", "description": "",
    }  # fmt: skip
    assert client.post(address(Agent, "change", own.pk), values).status_code == 200
    own.refresh_from_db()
    assert own.organization_id == elsewhere.id
    client.post(address(Job, "changelist"), {"action": "cancel", "_selected_action": [str(everything.job_id)]})
    assert client.get(address(Organization, "add")).status_code == 403
    assert client.get(reverse("admin:auth_user_changelist")).status_code == 403


@pytest.mark.parametrize("person", ["olivia", "dan", "stella", "charlie"])
def test_only_staff_enter_the_admin(person: str, request: pytest.FixtureRequest, everything: TrainingRun) -> None:
    client = Client()
    client.force_login(request.getfixturevalue(person))
    for path in ("/admin/", address(Job, "changelist"), address(Agent, "change", everything.agent_id)):
        assert client.get(path).status_code == 302


def test_staff_without_a_role_see_nothing(everything: TrainingRun) -> None:
    helper = factories.UserFactory(username="helper", is_staff=True)
    client = Client()
    client.force_login(helper)
    for model in OURS:
        assert client.get(address(model, "changelist")).status_code == 403


def test_long_tables_are_never_counted(boss: Client, everything: TrainingRun) -> None:
    for query in ({}, {"q": str(everything.job_id)}, {"q": str(uuid4())}, {"success__exact": "1"}):
        with CaptureQueriesContext(connection) as asked:
            assert boss.get(address(TrajectoryRecord, "changelist"), query).status_code == 200
        mine = [one["sql"] for one in asked if "experiences_trajectory" in one["sql"]]
        assert mine and not any("COUNT(" in sql for sql in mine)
        assert not any('"steps"' in sql for sql in mine)


def test_a_jobs_trajectories_come_in_the_order_of_its_training(boss: Client, everything: TrainingRun) -> None:
    listing = boss.get(address(TrajectoryRecord, "changelist"), {"q": str(everything.job_id)})
    places = [(row.iteration, row.scenario, row.rollout) for row in listing.context["cl"].result_list]
    assert len(places) == 24 and places == sorted(places)


def test_secrets_and_blobs_are_not_shown(boss: Client, everything: TrainingRun) -> None:
    key = ApiKey.objects.get(name="laptop")
    assert key.digest not in boss.get(address(ApiKey, "change", key.pk)).content.decode()
    checkpoint = checkpoint_of_run(everything)
    with CaptureQueriesContext(connection) as asked:
        boss.get(address(type(checkpoint), "changelist"))
        boss.get(address(type(checkpoint), "change", checkpoint.pk))
    assert not any('"training_policycheckpoint"."data"' in one["sql"] for one in asked)


@pytest.mark.rounds
def test_no_list_names_an_organisation_whose_rows_the_list_hides(
    everything: TrainingRun, acme: Organization, charlie: Any
) -> None:
    """A filter that lists all organisations would show an admin the names of other customers."""
    theirs = charlie.memberships.get().organization
    Organization.objects.filter(id=theirs.id).update(name="Zanzibar Shipping")
    carla = factories.UserFactory(username="carla", is_staff=True)
    factories.MembershipFactory(organization=acme, user=carla, role=Role.ADMIN)
    client = Client()
    client.force_login(carla)
    shown = 0
    for model in one_in(4, OURS):
        page = client.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"))
        assert b"Zanzibar Shipping" not in page.content, model
        shown += page.status_code == 200
    assert shown > rounds(2, 20)
