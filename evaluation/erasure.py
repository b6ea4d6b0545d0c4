"""Where personal data may stand among evaluations: the queries of results, and queries that were given."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.tenancy.erasure import Finding, holding, places
from evaluation.models import EvaluationResult, EvaluationRun
from experiences.erasure import stored_queries


@places.register("evaluation results")
def results(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = EvaluationResult.objects.filter(evaluation__organization_id=organization_id)
    found = set(holding(mine, words, texts=("query",)).values_list("id", flat=True))
    asked = stored_queries(organization_id, words)
    found |= set(mine.filter(query__in=asked).values_list("id", flat=True)) if asked else set()
    return Finding(len(found), lambda: EvaluationResult.objects.filter(id__in=found).delete())


@places.register("queries given to evaluations")
def given(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = EvaluationRun.objects.filter(organization_id=organization_id, queries__isnull=False)
    found = holding(mine, words, texts=(), values=("queries",))
    return Finding(found.count(), lambda: EvaluationRun.objects.filter(pk__in=found.values("pk")).update(queries=[]))
