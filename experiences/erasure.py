"""Where personal data may stand among what agents lived and learned: trajectories, their groups, rows of datasets,
lessons with their history, what reflection was answered, and prompt packs.

Trajectories are stored without addresses and numbers (``experiences.privacy``), so a person's address finds none of
them; what was asked about the person is found by the row of the dataset that still holds it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from django.db.models import QuerySet

from agentcore_site.errors import Conflict
from agentcore_site.jobs.models import ACTIVE, Job
from agentcore_site.tenancy.erasure import Finding, holding, places
from experiences.library.lessons import ERASED
from experiences.models import (
    DatasetRow,
    Experience,
    ExperienceChange,
    GroupRecord,
    PromptPack,
    Question,
    TrajectoryRecord,
)
from experiences.privacy import redact
from experiences.services.packs import packs_restamp


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


@places.register("lessons")
def lessons(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """A lesson goes whole, with its history. A job at work would write it again, so it has to end first.

    Raises:
        Conflict: agents with such lessons are being trained.
    """
    mine = Experience.objects.filter(organization_id=organization_id)
    found = set(
        holding(mine, words, texts=("summary", "why", "task"), values=("tool_stats",)).values_list("pk", flat=True)
    )
    asked = [query[:200] for query in stored_queries(organization_id, words)]
    found |= set(mine.filter(task__in=asked).values_list("pk", flat=True)) if asked else set()
    _check_idle(mine.filter(pk__in=found))
    return Finding(len(found), lambda: mine.filter(pk__in=found).delete())


@places.register("history of lessons")
def changes(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """Lines of lessons that stay: what they said before."""
    mine = ExperienceChange.objects.filter(experience__organization_id=organization_id)
    found = list(holding(mine, words, texts=("before", "after", "why")).values_list("pk", flat=True))
    return Finding(len(found), lambda: ExperienceChange.objects.filter(pk__in=found).delete())


@places.register("answers to reflection")
def questions(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = Question.objects.filter(organization_id=organization_id)
    rows = holding(mine, words, texts=("reason",), values=("reply",))
    return Finding(rows.count(), rows.delete)


@places.register("prompt packs")
def packs(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """The pack stays, without the words, and is stamped anew with the lessons that fitted it."""
    mine = PromptPack.objects.filter(organization_id=organization_id)
    found = list(holding(mine, words, texts=("system",), values=("injections", "sources")))

    def erase() -> None:
        for pack in found:
            pack.system, pack.sources = _without(pack.system, words), []
            pack.injections = [_without(text, words) for text in pack.injections]
        packs_restamp(found)

    return Finding(len(found), erase, "Prompt packs were changed: load the files that they came from without the data.")


def _check_idle(rows: QuerySet[Experience]) -> None:
    keys = {f"agent:{agent_id}" for agent_id in rows.values_list("agent_id", flat=True)}
    busy = Job.objects.filter(exclusive_key__in=keys, status__in=ACTIVE)
    names = [str(job) for job in busy[:3]]
    if names:
        raise Conflict(f"{', '.join(names)} still work with this data. Let them end, or cancel them, then try again.")


def _without(text: str, words: Sequence[str]) -> str:
    for word in words:
        text = re.sub(re.escape(word), ERASED, text, flags=re.IGNORECASE)
    return text
