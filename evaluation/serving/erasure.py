"""Erasure in releases, suites and traces: rows with immutable content are deleted whole.
An agent whose release was erased is served by none until another one is deployed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from django.db import connection
from django.db.models import Q

from agentcore_site.encryption.search import encrypted_rows_containing
from agentcore_site.jobs.models import Job
from agentcore_site.lib.word_erasure import ProgramKeys
from agentcore_site.tenancy.erasure import (
    ErasureFinding,
    deleted,
    emptied,
    erasure_handlers,
    erasure_under_way,
    holding,
    personal_rows,
    rewritten,
)
from evaluation.serving.models import (
    AgentServing,
    CanaryObservation,
    Deployment,
    DeploymentEvent,
    Feedback,
    LearningLoop,
    LoopRow,
    LoopTurn,
    ProductionTrace,
    Release,
    ReleaseApproval,
    Suite,
    SuiteResult,
    SuiteRun,
    SuiteVersion,
    SurvivalRun,
)
from experiences.erasure import idle_require, rows_about, stored_queries
from experiences.playbooks.invalidation import announce_on_commit
from training.config.versions import OWN

# Of a gate's verdict, which pages read again: sentences hold the names of suites, figures may too.
FINDINGS: Final = ("sentence", "findings", "check")
VERDICT: Final = ProgramKeys.but(("passed", *FINDINGS), *FINDINGS, foreign=["figures"])
NOTE = "Releases were deleted, with what suites found of them: make new ones of what is left."

personal_rows("feedback", Feedback, rewritten, texts=("text",), names=("metric",))
personal_rows(
    "webhooks of agents",
    AgentServing,
    emptied,
    text="webhook_url",
    note="The webhook of an agent is gone: give it another address.",
)
personal_rows("deployments", Deployment, rewritten, texts=("note", "reason"), own={"verdict": VERDICT})
personal_rows("timelines of deployments", DeploymentEvent, deleted, path="deployment__organization_id", texts=("note",))
# The names of sessions, as callers gave them.
personal_rows(
    "sessions of deployments", CanaryObservation, rewritten, path="deployment__organization_id", names=("session",)
)
personal_rows("learning loops", LearningLoop, rewritten, values=("environment_options",), own={"config": OWN})
personal_rows("turns of learning loops", LoopTurn, rewritten, texts=("waits_for", "reason"))
personal_rows(
    "rows of learning loops",
    LoopRow,
    deleted,
    path="turn__organization_id",
    texts=("query", "expected"),
    values=("flags",),
)
personal_rows("suites", Suite, rewritten, texts=("description",), names=("name",))


@erasure_handlers.register("releases")
def releases(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: a suite is being run on one."""
    mine = Release.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("note",), values=("bundle", "evidence"))
    ids = [str(pk) for pk in found.values_list("pk", flat=True)]
    numbers = list(found.values_list("agent_id", "number"))
    measured = SuiteRun.objects.filter(release_id__in=ids)
    _idle(measured)
    survived = SurvivalRun.objects.filter(release_id__in=ids)
    _idle_survival(survived)

    def erase() -> None:
        measured.delete()
        survived.delete()
        served = AgentServing.objects.filter(release__in=ids)
        for agent_id in served.values_list("agent_id", flat=True):
            announce_on_commit(agent_id)
        served.update(release=None)
        for agent_id, number in numbers:
            serving, _ = AgentServing.objects.get_or_create(
                agent_id=agent_id, defaults={"organization_id": organization_id}
            )
            serving.last_erased = max(serving.last_erased, number)
            serving.save(update_fields=["last_erased"])
        ReleaseApproval.objects.filter(release__in=ids).delete()
        LoopTurn.objects.filter(release__in=ids).update(release=None)
        Deployment.objects.filter(Q(release__in=ids) | Q(previous__in=ids)).delete()
        _erased("serving_releases_erase", ids)

    return ErasureFinding(len(ids), erase, NOTE)


@erasure_handlers.register("production traces")
def production_traces(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = ProductionTrace.objects.filter(organization_id=organization_id)
    texts = ("session", "model", "endpoint", "error", "finish_reason")
    found = holding(mine, words, texts=texts, values=("metadata", "request", "response", "components"))
    sealed = encrypted_rows_containing(mine, words, "request", "response", fields=())
    ids = {*found.values_list("pk", flat=True), *(row.pk for row in sealed)}
    return ErasureFinding(len(ids), lambda: ProductionTrace.objects.filter(pk__in=ids).delete())


@erasure_handlers.register("rules of the gate")
def gates(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    from evaluation.serving.gate.verdict import (
        GateRule,  # here: every process registers this place, and few need its statistics
    )

    mine = AgentServing.objects.filter(organization_id=organization_id)
    own = ProgramKeys.but({field.name for field in fields(GateRule)} - {"suites"}, foreign=["suites"])
    return rewritten(mine, words, own={"gate": own})


@erasure_handlers.register("versions of suites")
def versions(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: one is being run."""
    mine = SuiteVersion.objects.filter(suite__organization_id=organization_id)
    ids = [str(pk) for pk in holding(mine, words, texts=(), values=("spec",)).values_list("pk", flat=True)]
    _idle(SuiteRun.objects.filter(version_id__in=ids))
    return ErasureFinding(len(ids), lambda: _erased("serving_suite_versions_erase", ids))


@erasure_handlers.register("runs of suites")
def suite_runs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: one is at work."""
    mine = SuiteRun.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("judge_model",), values=("bundle", "report"))
    rows = SuiteRun.objects.filter(pk__in=list(found.values_list("pk", flat=True)))
    _idle(rows)
    return ErasureFinding(rows.count(), rows.delete)


@erasure_handlers.register("results of suites")
def results(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: the run is at work, or a run asks a dataset that names the person."""
    mine = SuiteResult.objects.filter(run__organization_id=organization_id)
    found = set(holding(mine, words, texts=("category", "query", "answer", "why")).values_list("pk", flat=True))
    asked = stored_queries(organization_id, words)
    found |= set(mine.filter(query__in=asked).values_list("pk", flat=True)) if asked else set()
    rows = SuiteResult.objects.filter(pk__in=found)
    datasets = {str(one.dataset_id) for one in rows_about(organization_id, words)}
    asking = [Q(version__spec__parts__contains=[{"dataset": dataset}]) for dataset in datasets]
    for at_work in (Q(pk__in=rows.values("run_id")), *asking):
        _idle(SuiteRun.objects.filter(at_work, organization_id=organization_id))
    return ErasureFinding(len(found), rows.delete)


@erasure_handlers.register("survival of lessons")
def survival_runs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: one is at work, or plays the queries of a dataset that names the person."""
    mine = SurvivalRun.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("model",), values=("bundle", "report"))
    rows = SurvivalRun.objects.filter(pk__in=list(found.values_list("pk", flat=True)))
    _idle_survival(rows)
    datasets = {one.dataset_id for one in rows_about(organization_id, words)}
    _idle_survival(mine.filter(run__dataset_id__in=datasets))
    return ErasureFinding(rows.count(), rows.delete)


def _idle_survival(runs: object) -> None:
    idle_require(Job.objects.filter(survival_run__in=runs))


def _idle(runs: object) -> None:
    idle_require(Job.objects.filter(suite_run__in=runs))


def _erased(function: str, ids: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(%s, %s)", [ids, erasure_under_way()])
