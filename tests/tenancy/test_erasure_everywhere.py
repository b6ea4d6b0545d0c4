"""An erasure goes through every column in which a person's words may be: a forgotten one fails here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import ProgrammingError, connection, transaction
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import event_erase
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.lib import row_scope
from agentcore_site.lib.errors import Conflict
from agentcore_site.models import IdempotencyRecord, SavedView
from agentcore_site.notices.models import NoticePreferences, WebhookAttempt
from agentcore_site.row_security import SHARED, tenant_models
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import erasure_handlers, subject_erase
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.models import ApiKey, BrowserSession, Invitation, Passkey, ProviderAccount, TokenFamily
from budgets.ledger.days import days_sum
from budgets.models import BudgetAlert, BudgetSettings
from budgets.services import budget_set_limit
from evaluation.events.models import ErasedMessage, ReceivedReward, ReceivedTrajectory, StoredSpan, WaitingSpan
from evaluation.events.training import training_request, training_request_cancel
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from evaluation.serving.releases.services import release_make
from evaluation.warehouse.rollups import roll_up
from experiences.agents.services.agents import agent_update
from experiences.lessons.stamps import checked
from experiences.models import (
    Agent,
    DatasetRow,
    EndpointServer,
    Experience,
    ExperienceChange,
    ToolServer,
    TrajectoryRecord,
)
from experiences.playbooks.services.evolutions import evolution_queue
from experiences.playbooks.services.executions import NewTrace, traces_record
from experiences.trajectories.annotations.services import annotation_create
from tests import factories
from tests.support import person
from tests.support.erasures import erasure_of
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, add, lived, model_agent, playbook_of, suggesting
from tests.support.rounds import some
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from tests.support.suites import suite_run_stored
from tests.support.survival import survival_run_stored
from training.grading.graded import graded_set
from training.grading.selectors import scorers_of
from training.grading.services import sample_draw
from training.models import Epoch, PolicyCheckpoint, TrainingRun
from training.services.checkpoints import checkpoint_save, checkpoint_tag
from training.services.notes import comment_add, job_describe
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

JANE = "j.doe@x.de"  # short: it has to fit into every column
ROWS = [{"query": f"What is {n} + 4?", "expected_outcome": {"answer": n + 4}, "metadata": {"n": n}} for n in range(30)]
# What an erasure finds and may not change; the report says so.
STAYING = {
    "accounts at the provider",
    "audit log: who acted", "accounts", "the organisation's name", "ledger", "days of the ledger",
    "reservations", "limits that were set",
    "history of lessons: who acted", "history of playbooks: who acted", "checkpoints that tell of it",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=lambda _: suggesting(add("Name the depot.", confidence=0.9)), prices={"small": PRICE}) as on:
        yield on


@pytest.fixture(autouse=True)
def alone(db: None) -> None:
    """Tests that end leave their trajectories: Django doesn't know the table, and doesn't empty it."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    made = run_start(operator, agent=agent, rows=ROWS, config=SMALL | {"n_iterations": 3})
    run_to_end(made.job)
    run_to_end(EvaluationRun.objects.get(run=made).job)
    return made


@pytest.fixture
def everything(operator: Actor, adam: Any, acme: Any, run: TrainingRun, server: ModelServer) -> TrainingRun:
    """An organisation with at least one row in every table that has a column for a person's words."""
    boss = Actor(adam)
    evaluation = evaluation_start(operator, run=run, queries=[ROWS[0]["query"]])
    run_to_end(evaluation.job)
    playbook = playbook_of(operator, model_agent(boss, server))
    lived(operator, playbook.agent, 3)
    run_to_end(evolution_queue(operator, playbook).job)
    release = release_make(operator, playbook.agent, note="said")
    factories.served(release)
    suite_run_stored(operator, release)
    survival_run_stored(operator, release, run, release.agent.endpoint)
    factories.EventCredentialFactory(agent=run.agent)
    factories.DeadLetterFactory(organization=acme)
    factories.TrajectoryExportFactory(organization=acme)
    one = TrajectoryRecord.objects.filter(job_id=run.job_id).first()
    assert one is not None
    annotation_create(operator, one, label="good", comment="said", answer="said")
    graded = graded_set(operator, run.job_id)
    sample_draw(operator, graded, scorers_of(graded)[0][0])
    asked = training_request(operator, {"training_config": {"algorithm": "dpo", "base_model": "m"}})
    training_request_cancel(operator, asked)
    ReceivedTrajectory.objects.create(organization=acme, agent=run.agent, trajectory_id="t-1", digest="d")
    for model in (WaitingSpan, StoredSpan):
        model.objects.create(
            organization=acme, agent=run.agent, body="said", trace_id="a" * 32, span_id="b" * 16, root=True
        )
    ErasedMessage.objects.create(organization_id=acme.pk, stream="RL_TRAJECTORIES", sequence=1, mark="m")
    ReceivedReward.objects.create(organization=acme, reward_id="r-1", trajectory_id="t-1", digest="d", total=1.0)
    lesson = factories.ExperienceFactory(agent=run.agent)
    ExperienceChange.objects.create(experience=lesson, version=1, action="added", after="said", by="olivia")
    factories.PromptPackFactory(organization=acme)
    factories.ToolServerFactory(organization=acme)
    endpoint = factories.ModelEndpointFactory(organization=acme, name="own")
    EndpointServer.objects.create(organization=acme, endpoint=endpoint, place="here", source="small", port=1)
    Epoch.objects.create(run=run, number=1, changes=[{"text": "said", "why": "so"}])
    checkpoint_tag(boss, PolicyCheckpoint.objects.filter(run=run).latest("iteration"), ["kept"])
    budget = budget_set_limit(boss, organization=acme.id, limit_micros=10**9, note="for the year")
    BudgetAlert.objects.create(budget=budget, threshold=75, limit_micros=1, spent_micros=1)
    BudgetSettings.objects.get_or_create(organization=acme)
    job_describe(boss, run, note="said", tags=["said"])
    comment_add(boss, run, "said")
    SavedView.objects.create(organization=acme, person=adam, page="training:jobs", name="said", asked={"q": ["said"]})
    AuditStream.objects.create(organization=acme, url="https://siem.example.org/log")
    hooked = factories.WebhookDeliveryFactory(organization=acme)
    WebhookAttempt.objects.create(organization=acme, delivery=hooked, duration_ms=1, answer="said", error="said")
    NoticePreferences.objects.create(organization=acme, user=adam)
    expires = timezone.now() + timezone.timedelta(days=1)
    ApiKey.objects.create(organization=acme, user=adam, name="key", prefix="ak", digest="d", expires_at=expires)
    IdempotencyRecord.objects.create(organization=acme, user=adam, key="1", operation="POST", fingerprint="f", body={})
    Invitation.objects.create(organization=acme, email="jo@example.org", digest="d", expires_at=expires)
    TokenFamily.objects.create(user=adam, current="j", expires_at=expires)
    BrowserSession.objects.create(user=adam, session_key="s")
    Passkey.objects.create(user=adam, name="said", credential_id="c", key=b"k")
    ProviderAccount.objects.create(user=adam, issuer="https://login.example.org", subject="s")
    mail_queue(acme, to=["jo@example.org"], subject="said", body="said", key="1")
    kind = ContentType.objects.get_for_model(Agent)
    LogEntry.objects.create(user=adam, content_type=kind, object_id="1", object_repr="agent", action_flag=CHANGE)
    roll_up()
    assert days_sum(timezone.now() + timezone.timedelta(days=2))
    assert not Job.objects.exclude(status__in=ENDED).exists()
    return run


class Undone(Exception):
    """Rolls back what was tried with one column."""


def missed(adam: Any, columns: Sequence[tuple[Any, Any]]) -> dict[str, str]:
    """The columns from which an erasure does not take the words, and what it said. One after the other: rows that go
    because of another column would hide one that no rule reads."""
    found: dict[str, str] = {}
    for model, field in columns:
        with contextlib.suppress(Undone), transaction.atomic():
            with person.unguarded():
                rows = person.write_into(model, field, JANE)
            assert rows, f"{model._meta.label} has no row in this test: make one"
            try:
                report = subject_erase(Actor(adam), [JANE])
            except Conflict as conflict:
                found[person.label(model, field)] = conflict.message
                raise Undone from conflict
            left = {name for name, n in report.left.items() if n}
            if not left <= STAYING or (person.holding(JANE) and not left):
                found[person.label(model, field)] = f"{person.holding(JANE)}"
            raise Undone
    return found


@pytest.mark.rounds
def test_nothing_is_left_of_what_stood_in_every_column(
    everything: TrainingRun, adam: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "Register these columns with an erasure: agentcore_site.tenancy.erasure.places"
    assert not missed(adam, some(person.theirs(), 4)), why
    # And it would be noticed.
    monkeypatch.delitem(erasure_handlers._items, "tool servers")
    servers = [(model, field) for model, field in person.theirs() if model is ToolServer]
    assert len(missed(adam, servers)) == len(servers) > 3


def test_the_audit_log_accepts_changes_of_erasures_only(operator: Actor, agent: Agent) -> None:
    agent_update(operator, agent, name="Named after J. Doe")
    mine = AuditEvent.objects.filter(action="agent.changed")
    before = mine.values().get()

    for attempt in (
        lambda: mine.update(after={}),
        lambda: mine.update(target=""),
        lambda: mine.update(actor="another"),
        lambda: mine.delete(),
    ):
        for _ in erasure_claimed():
            with pytest.raises(ProgrammingError, match=r"permission denied|append-only"), transaction.atomic():
                attempt()
    with erasure_of(agent.organization) as ordered:
        event_erase(before["id"], ordered, ["j. doe"])
    erased = mine.values().get()
    assert erased.pop("salt") != before.pop("salt")  # so that the digest of the former text reveals nothing
    assert erased == before | {"target": "Named after [erased]", "after": {"name": "Named after [erased]"}}


def erasure_claimed() -> Iterator[None]:
    """Without and with the setting that only the owner's functions are believed about."""
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('agentcore.erasure', 'on', true)")
    yield


def test_the_audit_log_distinguishes_prompts_and_does_not_hold_them(operator: Actor, agent: Agent) -> None:
    for prompt in (f"Write to {JANE}.", f"Write to {JANE} twice."):
        agent_update(operator, agent, system_prompt=prompt, description=f"For {JANE}")
    events = list(AuditEvent.objects.filter(action="agent.changed").order_by("at"))
    assert "j.doe" not in str([(one.before, one.after) for one in events])
    assert events[1].before["system_prompt"] == events[0].after["system_prompt"] != events[1].after["system_prompt"]
    assert events[0].after["system_prompt"].startswith("20 characters, digest ")


def test_an_agent_goes_on_without_the_words_and_its_lessons_still_fit(operator: Actor, agent: Agent, adam: Any) -> None:
    agent_update(operator, agent, system_prompt=f"Ask {JANE} first.", description=f"{JANE}'s", slug="j-doe-desk")
    lesson = factories.ExperienceFactory(agent=agent)
    report = subject_erase(Actor(adam), [JANE, "j-doe"])
    agent.refresh_from_db()
    assert (agent.system_prompt, agent.description) == ("Ask [erased] first.", "[erased]'s")
    assert agent.slug.startswith("erased-") and report.found["agents"] == 1 and not report.left["agents"]
    assert [one.pk for one in checked([Experience.objects.get(pk=lesson.pk)])] == [lesson.pk]


def test_rows_that_may_not_change_are_reported_with_the_reason(operator: Actor, agent: Agent, adam: Any) -> None:
    adam.email = JANE
    adam.save()
    report = subject_erase(Actor(adam), [JANE])
    assert report.left["accounts"] == 1 and any("delete it in the admin" in note for note in report.notes)


def test_a_checkpoint_that_can_not_be_read_is_left_and_not_nothing(run: TrainingRun, adam: Any) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(policy_kind="llm")
    assert not any(subject_erase(Actor(adam), [JANE]).left.values())
    with transaction.atomic():
        checkpoint_save(run, iteration=99, data=b"no archive", metrics={})
    report = subject_erase(Actor(adam), [JANE])
    assert report.left["checkpoints that tell of it"] == 1 and any("can't be read" in note for note in report.notes)


# -- jobs that would write it again ------------------------------------------------------------------------------------


def refused(adam: Any, *words: str) -> bool:
    try:
        subject_erase(Actor(adam), words)
    except Conflict as conflict:
        return "still work with this data" in conflict.message
    return False


@pytest.mark.parametrize("status", [Status.QUEUED, Status.PAUSED, Status.RUNNING])
def test_an_evaluation_on_the_data_has_to_end_first(run: TrainingRun, operator: Actor, adam: Any, status: str) -> None:
    asked = evaluation_start(operator, run=run)
    Job.objects.filter(pk=asked.job_id).update(status=status)
    assert refused(adam, "what is 3 + 4?")
    Job.objects.filter(pk=asked.job_id).update(status=Status.CANCELLED)
    assert subject_erase(Actor(adam), ["what is 3 + 4?"]).found["dataset rows"] == 1


def test_so_has_one_on_queries_that_were_given(operator: Actor, agent: Agent, adam: Any) -> None:
    made = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL | {"n_iterations": 2})
    run_to_end(made.job)
    Job.objects.filter(kind="evaluation").update(status=Status.CANCELLED)
    given = [{"query": f"Ask {JANE}: 3 + 4?", "expected_outcome": {"answer": 7}}]
    asked = evaluation_start(operator, run=made, queries=given)
    assert refused(adam, JANE)
    run_to_end(asked.job)
    report = subject_erase(Actor(adam), [JANE])
    assert report.found["queries given to evaluations"] == 1 and not person.holding(JANE)


def test_so_has_an_evolution_that_reads_what_was_said(operator: Actor, adam: Any, server: ModelServer) -> None:
    playbook = playbook_of(operator, model_agent(Actor(adam), server))
    traces_record(operator, [NewTrace(playbook.agent, {"q": "Where is Hollebrandt's parcel?"}, {}, 9.0, True)])
    queued = evolution_queue(operator, playbook)
    assert refused(adam, "hollebrandt")
    run_to_end(queued.job)
    assert subject_erase(Actor(adam), ["hollebrandt"]).found["executions"] == 1


def test_every_job_of_an_agent_with_the_name_in_its_prompt_has_to_end_first(
    operator: Actor, agent: Agent, adam: Any
) -> None:
    agent_update(operator, agent, system_prompt="Hollebrandt pays late.")
    made = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL | {"n_iterations": 2})
    assert refused(adam, "hollebrandt")
    run_to_end(made.job)
    assert refused(adam, "hollebrandt"), "its evaluation waits"
    run_to_end(EvaluationRun.objects.get(run=made).job)
    assert subject_erase(Actor(adam), ["hollebrandt"]).found["agents"] == 1


def test_rows_that_differ_only_in_the_address_lose_what_was_asked_with_them_together(
    operator: Actor, agent: Agent, adam: Any
) -> None:
    rows = [*ROWS[:28], *({**ROWS[28], "query": f"Ask {name}@example.org: 3 + 4?"} for name in ("jane", "john"))]
    made = run_start(operator, agent=agent, rows=rows, config=SMALL | {"n_iterations": 40})
    run_to_end(made.job)
    run_to_end(EvaluationRun.objects.get(run=made).job)
    report = subject_erase(Actor(adam), ["jane@example.org"])
    assert report.found["dataset rows"] == 1 and any("read the same" in note for note in report.notes)
    assert DatasetRow.objects.filter(query__contains="john@example.org").count() == 1
    assert not TrajectoryRecord.objects.filter(agent_id=agent.id, query__contains="[email]").exists()
    assert TrajectoryRecord.objects.filter(agent_id=agent.id).exists()


def test_no_row_of_any_table_is_seen_by_another_organisation(
    everything: TrainingRun, acme: Any, elsewhere: Any
) -> None:
    """Asked without any filter, through all models: the second wall (``agentcore_site.row_security``)."""
    filled = {model: model._default_manager.count() for model in tenant_models()}
    with row_scope.only(acme.id):
        own = {model: model._default_manager.count() for model in filled}
    with row_scope.only(elsewhere.id):
        others = {model: model._default_manager.count() for model in filled}
    shared = {model for model in filled if model._meta.db_table in SHARED}
    assert {model for model, n in filled.items() if own[model] + others[model] != n} - shared == set()
    assert {model._meta.db_table for model, n in others.items() if n} - set(SHARED) == {"tenancy_organization"}
    assert len([n for n in own.values() if n]) > 50
