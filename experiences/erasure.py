"""Erasure of personal data in experiences: trajectories and their groups, datasets, lessons with their history, answers
to reflection, prompt packs, and texts that people wrote about agents and services.

Trajectories are stored without addresses and numbers (``experiences.privacy``), so a person's address finds none of
them. Queries about the person are found by the row of the dataset that still holds them. Rows that are equal once
redacted can't be distinguished there: rollouts of all of them are erased.

A job that has not ended keeps its inputs and would write them again, so jobs of every kind have to end first.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from django.db.models import Q, QuerySet

from agentcore_site.encryption.search import encrypted_rows_containing
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.word_erasure import ERASED, erase_words
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding, personal_rows, rewritten, staying
from experiences.lessons.services.packs import packs_restamp, prompt_replace
from experiences.models import (
    Agent,
    Annotation,
    Dataset,
    DatasetRow,
    EndpointServer,
    Experience,
    ExperienceChange,
    GroupRecord,
    ModelEndpoint,
    PromptPack,
    QueryRecord,
    Question,
    ToolServer,
    TrajectoryRecord,
)
from experiences.models.append_only import history_erase
from experiences.models.jobs_at_work import jobs_of, titles_at_work
from experiences.privacy import redact

SAME: Final = "Rows that read the same without addresses and numbers lost what was asked with them together."
WHO_ACTED: Final = "Histories go on saying which of your people changed what."

personal_rows("annotations", Annotation, rewritten, texts=("label", "comment", "answer"))
personal_rows(
    "model endpoints",
    ModelEndpoint,
    rewritten,
    names=("name",),
    texts=("base_url", "model"),
    values=("options", "purpose_keys"),
    note="Model endpoints were changed: test their connections.",
)
personal_rows(
    "model servers",
    EndpointServer,
    rewritten,
    texts=("source", "reason"),
    note="Model servers were changed: look at the pages of their endpoints.",
)
personal_rows(
    "tool servers",
    ToolServer,
    rewritten,
    names=("name",),
    texts=("url", "command"),
    values=("tools", "variables"),
    note="Tool servers were changed: look at their addresses.",
)
personal_rows("names and domains of datasets", Dataset, rewritten, texts=("name", "domain", "origin_detail"))
personal_rows(
    "history of lessons: who acted",
    ExperienceChange,
    staying,
    path="experience__organization_id",
    texts=("by",),
    note=WHO_ACTED,
)


def rows_about(organization_id: uuid.UUID, words: Sequence[str]) -> list[DatasetRow]:
    mine = DatasetRow.objects.filter(dataset__organization_id=organization_id)
    return list(holding(mine, words, texts=("query",), values=("expected_outcome", "metadata")))


def stored_queries(organization_id: uuid.UUID, words: Sequence[str]) -> list[str]:
    """The queries of those rows as trajectories hold them."""
    return [redact(row.query) for row in rows_about(organization_id, words)]


def idle_require(jobs: QuerySet[Job]) -> None:
    """Checks that no job is at work that reads or writes what is to be erased.

    Raises:
        Conflict: one of them has not ended.
    """
    if titles := titles_at_work(jobs):
        raise Conflict(f"{titles} still work with this data. Let them end, or cancel them, then try again.")


@erasure_handlers.register("trajectories")
def trajectories(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: a job is at work that keeps one."""
    mine = TrajectoryRecord.objects.filter(organization_id=organization_id)
    found = set(
        holding(mine, words, texts=("query", "error", "model"), values=("steps", "evidence", "components")).values_list(
            "month", "id", "job_id"
        )
    )
    sealed = encrypted_rows_containing(mine, words, "steps", fields=("month", "job_id"))
    found |= {(row.month, row.id, row.job_id) for row in sealed}
    asked = stored_queries(organization_id, words)
    found |= set(mine.filter(query__in=asked).values_list("month", "id", "job_id")) if asked else set()
    ids, months = [id for _, id, _ in found], {month for month, _, _ in found}
    idle_require(Job.objects.filter(id__in={job_id for _, _, job_id in found}))
    rows = TrajectoryRecord.objects.filter(month__in=months, id__in=ids)

    def erase() -> None:
        rows._raw_delete("default")
        Annotation.objects.filter(trajectory_id__in=ids).delete()  # what was said of it says what it said

    return ErasureFinding(len(found), erase, SAME if any("[" in query for query in asked) else "")


@erasure_handlers.register("trajectory groups")
def groups(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = GroupRecord.objects.filter(organization_id=organization_id)
    found = set(holding(mine, words, texts=("query",)).values_list("id", flat=True))
    asked = [query[:200] for query in stored_queries(organization_id, words)]
    found |= set(mine.filter(query__in=asked).values_list("id", flat=True)) if asked else set()
    return ErasureFinding(len(found), lambda: GroupRecord.objects.filter(id__in=found).delete())


@erasure_handlers.register("queries of trajectories")
def queries(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """They go with their trajectories, and here in any case."""
    mine = QueryRecord.objects.filter(organization_id=organization_id)
    rows = holding(mine, words, texts=("query",)) | mine.filter(query__in=stored_queries(organization_id, words))
    return ErasureFinding(rows.count(), lambda: rows._raw_delete("default"))


@erasure_handlers.register("dataset rows")
def dataset_rows(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The row stays, empty: the others keep their numbers, and no agent is trained on it unnoticed."""
    found = rows_about(organization_id, words)

    def erase() -> None:
        for row in found:
            DatasetRow.objects.filter(pk=row.pk).update(
                query=f"{ERASED} {row.index}", expected_outcome={"answer": ERASED}, metadata={}
            )

    return ErasureFinding(
        len(found), erase, "Datasets were changed: what was trained on them can't be repeated to the letter."
    )


@erasure_handlers.register("lessons")
def lessons(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """A lesson goes whole, with its history.

    Raises:
        Conflict: a job of an agent with such a lesson is at work.
    """
    mine = Experience.objects.filter(organization_id=organization_id)
    found = set(
        holding(mine, words, texts=("summary", "why", "task", "domain"), values=("tool_stats",)).values_list(
            "pk", flat=True
        )
    )
    asked = [query[:200] for query in stored_queries(organization_id, words)]
    found |= set(mine.filter(task__in=asked).values_list("pk", flat=True)) if asked else set()
    idle_require(jobs_of(mine.filter(pk__in=found).values_list("agent_id", flat=True)))

    def erase() -> None:
        changes = ExperienceChange.objects.filter(experience_id__in=found)
        history_erase(changes)
        mine.filter(pk__in=found).delete()

    return ErasureFinding(len(found), erase)


@erasure_handlers.register("history of lessons")
def changes(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Lines of lessons that stay: what they said before."""
    mine = ExperienceChange.objects.filter(experience__organization_id=organization_id)
    found = list(holding(mine, words, texts=("before", "after", "why")).values_list("pk", flat=True))
    rows = ExperienceChange.objects.filter(pk__in=found)
    return ErasureFinding(len(found), lambda: history_erase(rows))


@erasure_handlers.register("answers to reflection")
def questions(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: a job is at work that keeps one."""
    mine = Question.objects.filter(organization_id=organization_id)
    rows = holding(mine, words, texts=("reason", "model"), values=("reply",))
    idle_require(Job.objects.filter(id__in=rows.values("job_id")))
    return ErasureFinding(rows.count(), rows.delete)


@erasure_handlers.register("prompt packs")
def packs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Removes the words from packs and stamps them again, together with the lessons that fitted.

    Raises:
        Conflict: a job of an agent with such a pack is at work.
    """
    mine = PromptPack.objects.filter(organization_id=organization_id)
    named = rewritten(mine, words, names=("name",), texts=("domain",))
    found = list(holding(mine, words, texts=("system",), values=("injections", "sources")))
    acting = Agent.objects.filter(Q(prompt_pack__in=found) | Q(runs__prompt_pack__in=found))
    idle_require(jobs_of(acting.values_list("id", flat=True)))

    def erase() -> None:
        for pack in found:
            pack.system, pack.sources = erase_words(pack.system, words), []
            pack.injections = erase_words(pack.injections, words)
        packs_restamp(found)
        named.erase()

    note = "Prompt packs were changed: load the files that they came from without the data."
    return ErasureFinding(len(found) + named.rows, erase, note)


@erasure_handlers.register("agents")
def agents(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Texts that people wrote about an agent, and its prompts.

    Raises:
        Conflict: a job of such an agent is at work.
    """
    mine = Agent.objects.filter(organization_id=organization_id)
    texts, values = (
        (
            "name",
            "description",
            "model",
            "url",
            "ace_delta_model",
            "reflector_model",
            "objective",
            "learning_objective",
        ),
        ("environment_options", "reward_options", "tools", "granted_tools"),
    )
    prompted = list(holding(mine, words, texts=("system_prompt",)))
    written = rewritten(mine, words, names=("slug",), texts=texts, values=values)
    found = holding(mine, words, texts=("system_prompt", "slug", *texts), values=values)
    idle_require(jobs_of(found.values_list("id", flat=True)))

    def erase() -> None:
        for agent in prompted:
            prompt_replace(agent, erase_words(agent.system_prompt, words))
        written.erase()

    return ErasureFinding(found.count(), erase, "Agents were changed: look at their settings before you use them.")
