"""Where personal data may stand among what agents lived: trajectories, their groups, and rows of datasets.

Trajectories are stored without addresses and numbers (``experiences.privacy``), so a person's address finds none of
them; what was asked about the person is found by the row of the dataset that still holds it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.tenancy.erasure import Finding, holding, places
from experiences.models import DatasetRow, GroupRecord, TrajectoryRecord
from experiences.privacy import redact

ERASED = "[erased]"


def rows_about(organization_id: uuid.UUID, words: Sequence[str]) -> list[DatasetRow]:
    mine = DatasetRow.objects.filter(dataset__organization_id=organization_id)
    return list(holding(mine, words, texts=("query",), values=("expected_outcome", "metadata")))


def stored_queries(organization_id: uuid.UUID, words: Sequence[str]) -> list[str]:
    """The queries of those rows as trajectories hold them."""
    return [redact(row.query) for row in rows_about(organization_id, words)]


@places.register("trajectories")
def trajectories(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = TrajectoryRecord.objects.filter(organization_id=organization_id)
    found = set(
        holding(mine, words, texts=("query", "error"), values=("steps", "evidence", "components")).values_list(
            "month", "id"
        )
    )
    asked = stored_queries(organization_id, words)
    found |= set(mine.filter(query__in=asked).values_list("month", "id")) if asked else set()
    ids, months = [id for _, id in found], {month for month, _ in found}
    return Finding(
        len(found), lambda: TrajectoryRecord.objects.filter(month__in=months, id__in=ids)._raw_delete("default")
    )


@places.register("trajectory groups")
def groups(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = GroupRecord.objects.filter(organization_id=organization_id)
    found = set(holding(mine, words, texts=("query",)).values_list("id", flat=True))
    asked = [query[:200] for query in stored_queries(organization_id, words)]
    found |= set(mine.filter(query__in=asked).values_list("id", flat=True)) if asked else set()
    return Finding(len(found), lambda: GroupRecord.objects.filter(id__in=found).delete())


@places.register("dataset rows")
def dataset_rows(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """The row stays, empty: the others keep their numbers, and nobody is trained on it without noticing."""
    found = rows_about(organization_id, words)

    def erase() -> None:
        for row in found:
            DatasetRow.objects.filter(pk=row.pk).update(
                query=f"{ERASED} {row.index}", expected_outcome={"answer": ERASED}, metadata={}
            )

    return Finding(
        len(found), erase, "Datasets were changed: what was trained on them can't be repeated to the letter."
    )
