"""Erasure by subject: everything about a person goes, nothing else does, and the report proves it."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import JobEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid
from agentcore_site.lib.word_erasure import erase_words
from agentcore_site.models import IdempotencyRecord
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import digest, erasure_handlers, subject_erase
from agentcore_site.tenancy.models import Erasure
from evaluation.models import EvaluationResult, EvaluationRun
from evaluation.serving.erasure import VERDICT
from experiences.models import Agent, DatasetRow, GroupRecord, TrajectoryRecord
from tests.support.callers import Caller
from tests.support.running import SMALL, run_to_end
from training.models import TrainingRun
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

JANE, JOHN = "jane.doe@example-mail.org", "john.roe@example-mail.org"
ROWS = [
    {
        "query": f"Write to {JANE if n < 10 else JOHN} about order {n}: what is {n} + 4?",
        "expected_outcome": {"answer": n + 4},
        "metadata": {"customer": 'Zoë "Z" Quarré' if n == 11 else "nobody"},
    }
    for n in range(30)
]


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    made = run_start(operator, agent=agent, rows=ROWS, config=SMALL | {"n_iterations": 5, "eval_interval": 100})
    run_to_end(made.job)
    run_to_end(EvaluationRun.objects.get(run=made).job)
    return made


def test_erasure_finds_what_was_asked_about_a_person_also_where_the_address_is_not_stored(
    run: TrainingRun, adam: Any
) -> None:
    about_jane = {f"about order {n}:" for n in range(10)}
    before = TrajectoryRecord.objects.count()
    hers = [row.id for row in TrajectoryRecord.objects.all() if any(part in row.query for part in about_jane)]
    assert 0 < len(hers) < before and not TrajectoryRecord.objects.filter(query__contains=JANE).exists()
    only_counted = subject_erase(Actor(adam), [JANE], dry_run=True)
    assert only_counted.found["trajectories"] == len(hers) and TrajectoryRecord.objects.count() == before
    assert not Erasure.objects.exists()

    report = subject_erase(Actor(adam), [JANE.upper()])

    assert report.found["dataset rows"] == 10 and report.found["trajectories"] == len(hers)
    assert report.found["evaluation results"] > 0 and report.found["trajectory groups"] > 0
    assert set(report.left) == set(erasure_handlers.names()) and not any(report.left.values())
    assert TrajectoryRecord.objects.count() == before - len(hers)
    assert not TrajectoryRecord.objects.filter(id__in=hers).exists()
    for model in (TrajectoryRecord, GroupRecord, EvaluationResult):
        left = " ".join(row.query for row in model.objects.all())
        assert not any(part in left for part in about_jane) and "about order 1" in left
    rows = DatasetRow.objects.order_by("index")
    assert [row.index for row in rows] == list(range(30))
    assert not any(JANE in row.query for row in rows) and sum(JOHN in row.query for row in rows) == 20
    assert digest(JANE) in report.digests and JANE not in json.dumps(report.found) + str(report.digests)
    event = AuditEvent.objects.get(action="subject.erased")
    assert JANE not in json.dumps(event.after)


def test_a_name_inside_json_with_quotes_and_accents_is_found(run: TrainingRun, adam: Any) -> None:
    report = subject_erase(Actor(adam), ['zoë "z" quarré'])
    assert report.found["dataset rows"] == 1
    assert DatasetRow.objects.get(index=11).metadata == {}


def test_answers_kept_for_repeated_posts_are_erased_too(adam: Any, acme: Any) -> None:
    for n, body in enumerate(({"name": "Jane Doe's agent"}, {"name": "another"})):
        IdempotencyRecord.objects.create(
            organization=acme, user=adam, key=str(n), operation="POST", fingerprint="f", body=body
        )
    assert subject_erase(Actor(adam), ["jane doe"]).found["answers kept under idempotency keys"] == 1
    assert IdempotencyRecord.objects.count() == 1


def test_jobs_at_work_are_named_and_nothing_is_erased(operator: Actor, agent: Agent, adam: Any) -> None:
    run_start(operator, agent=agent, rows=ROWS, config=SMALL)
    with pytest.raises(Conflict, match="still work with this data"):
        subject_erase(Actor(adam), [JANE])
    assert sum(JANE in row.query for row in DatasetRow.objects.all()) == 10


def test_only_admins_of_the_own_organisation_may(
    run: TrainingRun, operator: Actor, stella: Any, charlie: Any, adam: Any
) -> None:
    for actor in (operator, Actor(stella)):
        with pytest.raises(Forbidden):
            subject_erase(actor, [JANE])
    charlie.memberships.update(role="admin")
    report = subject_erase(Actor(charlie), [JANE])
    assert not any(report.found.values()) and DatasetRow.objects.filter(query__contains=JANE).count() == 10


def test_persons_who_are_called_as_settings_are_cost_no_setting(run: TrainingRun, operator: Actor, adam: Any) -> None:
    """Settings, estimates and reports are read again: without a name or a value of theirs no job of the agent could be
    planned, and no page shown."""
    names = ["none", "Rate", "Seconds", "shaped", "lines", "Improve", "status", "queued", "passed", "sentence"]
    said = f"as {' and '.join(names)} like it"
    # Options of a reward belong to its author, even where they have the name of a setting.
    options = {"reward_options": {"said": said, "seed": said, "Rate": {"version": said}}}
    TrainingRun.objects.filter(pk=run.pk).update(config=run.config | options, note="Asked by Rate.")
    run.refresh_from_db()
    report = EvaluationRun.objects.get(run=run).report
    stored = [*JobEvent.objects.filter(job=run.job).order_by("seq").values_list("data", flat=True)]
    subject_erase(Actor(adam), names)
    assert [*JobEvent.objects.filter(job=run.job).order_by("seq").values_list("data", flat=True)] == stored
    verdict = {"passed": False, "sentence": "Queued by Status.", "findings": [{"check": "approval", "passed": False}]}
    assert erase_words(verdict, names, VERDICT) == verdict | {"sentence": "[erased] by [erased]."}
    left = TrainingRun.objects.get(pk=run.pk)
    assert left.note == "Asked by [erased]."
    erased = " and ".join(["[erased]"] * len(names))
    said = f"as {erased} like it"
    assert left.config == run.config | {"reward_options": {"said": said, "seed": said, "[erased]": {"version": said}}}
    assert left.configuration.reward == run.configuration.reward
    assert left.estimate.keys() == run.estimate.keys() and left.estimate["seconds"] == run.estimate["seconds"]
    assert left.verdict | {"verdict": ""} == run.verdict | {"verdict": ""}
    assert EvaluationRun.objects.get(run=run).report["lines"] == report["lines"]
    for path in (f"training-jobs/{run.pk}", f"evaluations/{EvaluationRun.objects.get(run=run).pk}"):
        shown = Caller(operator.user).get(path)
        assert shown.status_code == 200, shown.content


@pytest.mark.parametrize("identifiers", [[], ["abc"], ["   "], ["long enough", "xy"], ["name"] * 21 + ["n"]])
def test_an_identifier_that_would_match_everyone_is_refused(adam: Any, identifiers: list[str]) -> None:
    with pytest.raises(Invalid):
        subject_erase(Actor(adam), identifiers)


def test_over_rest_and_from_the_command_line(run: TrainingRun, adam: Any) -> None:
    boss = Caller(adam)
    counted = boss.post("erasures", {"identifiers": [JANE], "dry_run": True})
    assert counted.status_code == 200 and counted.json()["found"]["dataset rows"] == 10
    out = StringIO()
    call_command("erase_subject", user="adam", identifier=[JOHN], stdout=out)
    assert json.loads(out.getvalue())["found"]["dataset rows"] == 20
    done = boss.post("erasures", {"identifiers": [JANE]})
    assert done.status_code == 201 and not any(done.json()["left"].values())
    listed = boss.get("erasures").json()
    assert len(listed["results"]) == 2 and JANE not in json.dumps(listed)
