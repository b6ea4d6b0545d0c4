"""Suites and proofs that use queries of a dataset: training on these queries makes such a proof worthless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count

from evaluation.models import EvaluationResult, Split
from evaluation.serving.models import SuiteResult
from experiences.models import Dataset, DatasetRow

MOST = 20


@dataclass(frozen=True, slots=True)
class ProofOverlap:
    """``n`` queries of the dataset are in that job's held-out set, or in that suite."""

    name: str
    n: int
    job: UUID | None = None
    suite: UUID | None = None


def overlaps(dataset: Dataset) -> list[ProofOverlap]:
    """The most shared queries first. Jobs of this very dataset are no news: they held queries of it out themselves.
    For a dataset that the actor may see."""
    texts = DatasetRow.objects.filter(dataset=dataset).values("query")
    of_jobs = EvaluationResult.objects.filter(
        evaluation__organization_id=dataset.organization_id, evaluation__split=Split.HELD_OUT, arm="trained"
    ).exclude(evaluation__run__dataset=dataset)
    of_suites = SuiteResult.objects.filter(run__organization_id=dataset.organization_id)
    found = [
        *(
            ProofOverlap(row["evaluation__run__job__title"], row["n"], job=row["evaluation__run"])
            for row in _counted(of_jobs, texts, "evaluation__run", "evaluation__run__job__title")
        ),
        *(
            ProofOverlap(row["run__version__suite__name"], row["n"], suite=row["run__version__suite"])
            for row in _counted(of_suites, texts, "run__version__suite", "run__version__suite__name")
        ),
    ]
    return sorted(found, key=lambda one: (-one.n, one.name))[:MOST]


def _counted(rows: Any, texts: Any, *by: str) -> Any:
    return rows.filter(query__in=texts).order_by().values(*by).annotate(n=Count("query", distinct=True))
