"""Erasure in evaluations: the queries of results, given queries, and reports."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from agentcore_site.jobs.models import Job
from agentcore_site.lib.word_erasure import ProgramKeys
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding, personal_rows, rewritten
from evaluation.models import EvaluationResult, EvaluationRun
from experiences.erasure import idle_require, rows_about, stored_queries

# The program wrote all keys of a report (``reports.build``); only the sentences may hold words of users.
REPORT: Final = ProgramKeys.but(
    ("context", "verdict", "baseline", "primary", "seconds", "method", "looks", "tries", "lines"), "verdict"
)

personal_rows("reports of evaluations", EvaluationRun, rewritten, own={"report": REPORT})


@erasure_handlers.register("evaluations at work on it")
def jobs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: an evaluation on the data is active."""
    datasets = {row.dataset_id for row in rows_about(organization_id, words)}
    idle_require(Job.objects.filter(evaluation_run__run__dataset_id__in=datasets))
    return ErasureFinding(0, lambda: None)


@erasure_handlers.register("evaluation results")
def results(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: the evaluation is active."""
    mine = EvaluationResult.objects.filter(evaluation__organization_id=organization_id)
    found = set(holding(mine, words, texts=("query",)).values_list("id", flat=True))
    asked = stored_queries(organization_id, words)
    found |= set(mine.filter(query__in=asked).values_list("id", flat=True)) if asked else set()
    rows = EvaluationResult.objects.filter(id__in=found)
    idle_require(Job.objects.filter(evaluation_run__in=rows.values("evaluation_id")))
    return ErasureFinding(len(found), rows.delete)


@erasure_handlers.register("queries given to evaluations")
def given(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: the evaluation is active."""
    mine = EvaluationRun.objects.filter(organization_id=organization_id, queries__isnull=False)
    found = list(holding(mine, words, texts=(), values=("queries",)).values_list("pk", flat=True))
    idle_require(Job.objects.filter(evaluation_run__in=found))
    return ErasureFinding(len(found), lambda: EvaluationRun.objects.filter(pk__in=found).update(queries=[]))
