"""Erasure in training: libraries of runs, proposals of epochs, contexts in checkpoints."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from agentcore_site.jobs.models import Job
from agentcore_site.lib.word_erasure import ERASED, ProgramKeys, contains_words, erase_words
from agentcore_site.tenancy.erasure import (
    ErasureFinding,
    erasure_handlers,
    holding,
    personal_rows,
    rewritten,
    rows_saying,
)
from experiences.erasure import idle_require, rows_about
from experiences.lessons.job_prompt import prompt_without
from experiences.models.jobs_at_work import jobs_of
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.config.versions import OWN
from training.models import OF_ACTIONS, Epoch, JobComment, PolicyCheckpoint, TrainingRun
from training.services.checkpoints import checkpoint_rewrite

# Of an estimate (``Planned.as_json``) all is ours but names of models, and warnings, which quote.
ESTIMATE: Final = ProgramKeys.but(
    (
        "cost_usd", "cost_usd_p90", "cost_basis", "seconds", "seconds_low", "seconds_high", "trajectories", "n_train",
        "n_selection", "n_held_out", "detectable_gain", "measured", "affordable_iterations", "gate", "reflection",
        "training_calls", "warnings", "model", "questions", "updates",
    ),
    "reflection", "training_calls", "warnings", "model",
)  # fmt: skip
# Of what a held-out evaluation found (``run_verdict_set``) all but its sentence.
VERDICT: Final = ProgramKeys.but(
    (
        "verdict", "evaluation_id", "success_rate", "success_low", "success_high", "baseline_success_rate",
        "improvement", "low", "high", "p_value", "lines", "changed",
    ),
    "verdict",
)  # fmt: skip
UNREADABLE = "Some checkpoints can't be read, so it is not known what they hold: delete those that you don't need."

personal_rows("tags of checkpoints", PolicyCheckpoint, rewritten, values=("tags",))
personal_rows("notes and tags of training jobs", TrainingRun, rewritten, texts=("note",), values=("tags",))
personal_rows("comments on training jobs", JobComment, rewritten, texts=("text",))


@erasure_handlers.register("jobs at work on it")
def jobs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: there is one."""
    datasets = {row.dataset_id for row in rows_about(organization_id, words)}
    idle_require(Job.objects.filter(training_run__dataset_id__in=datasets))
    return ErasureFinding(0, lambda: None)


@erasure_handlers.register("what runs began with")
def starting_libraries(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: such a run is at work."""
    mine = TrainingRun.objects.filter(organization_id=organization_id)
    found = list(holding(mine, words, texts=(), values=("library",)))
    idle_require(Job.objects.filter(training_run__in=found))

    def erase() -> None:
        for run in found:
            kept = [entry for entry in run.library if not contains_words(entry, words)]
            TrainingRun.objects.filter(pk=run.pk).update(library=kept)

    return ErasureFinding(len(found), erase)


@erasure_handlers.register("prompts that runs act by")
def prompts(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Removes the words from prompts of runs, and stamps them again as their packs, so that a run can be evaluated
    again.

    Raises:
        Conflict: a job of an agent with such a run is at work.
    """
    mine = TrainingRun.objects.filter(organization_id=organization_id)
    found = list(holding(mine, words, texts=(), values=("prompt",)))
    idle_require(jobs_of({run.agent_id for run in found}))

    def erase() -> None:
        for run in found:
            TrainingRun.objects.filter(pk=run.pk).update(prompt=prompt_without(run.prompt or {}, words))

    return ErasureFinding(len(found), erase)


@erasure_handlers.register("settings of runs")
def settings(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: such a run is at work."""
    mine = TrainingRun.objects.filter(organization_id=organization_id)
    columns = ("environment_options", "warnings")
    own = {"config": OWN, "estimate": ESTIMATE, "verdict": VERDICT}
    found = rows_saying(mine, words, values=columns, own=own)
    idle_require(Job.objects.filter(training_run__in=[run.pk for run in found]))
    note = "Settings of runs were changed: they can't be repeated to the letter."
    return rewritten(mine, words, values=columns, own=own, note=note)


@erasure_handlers.register("reports of epochs")
def epochs(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Epoch.objects.filter(run__organization_id=organization_id)
    found = list(holding(mine, words, texts=(), values=("changes",)))

    def erase() -> None:
        for epoch in found:
            changes = [
                one | {"text": ERASED, "why": ERASED} if contains_words(one, words) else one for one in epoch.changes
            ]
            Epoch.objects.filter(pk=epoch.pk).update(changes=erase_words(changes, words))

    return ErasureFinding(len(found), erase)


@erasure_handlers.register("checkpoints that tell of it")
def contexts(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Lessons in checkpoints of agents with a context, also where the run is gone. The checkpoint stays, without the
    text; an unreadable one is left."""
    of_actions = TrainingRun.objects.filter(OF_ACTIONS)
    rows = PolicyCheckpoint.objects.filter(organization_id=organization_id).exclude(run__in=of_actions)
    found: list[tuple[PolicyCheckpoint, bytes]] = []
    unreadable = 0
    for row in rows.iterator(chunk_size=20):
        try:
            cleaned = _without(row, words)
        except Damaged:
            unreadable += 1
        else:
            found += [(row, cleaned)] if cleaned is not None else []

    def erase() -> None:
        for row, data in found:
            checkpoint_rewrite(row, data)

    changed = "Checkpoints were changed: no agent receives the erased texts any more." if found else ""
    note = " ".join(filter(None, (changed, UNREADABLE if unreadable else "")))
    return ErasureFinding(len(found) + unreadable, erase, note, stays=unreadable)


def _without(checkpoint: PolicyCheckpoint, words: Sequence[str]) -> bytes | None:
    """The checkpoint's bytes without the lessons; None where it has none of them.

    Raises:
        Damaged: it can't be read.
    """
    # Imported here: every process registers this place, and few ever load a policy.
    from training.policies.archive import CorruptState, nested, pack, under, unpack
    from training.policies.context import without_lessons

    try:
        state = unpack(checkpoint_load(checkpoint))
    except CorruptState as error:
        raise Damaged(str(error)) from error
    policy = under("policy", state)
    if policy.get("kind") != "context":
        return None
    cleaned = without_lessons(policy, lambda text: contains_words(text, words))
    return None if cleaned is None else pack(state | nested("policy", cleaned))
