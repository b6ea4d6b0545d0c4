"""Candidates of foreign optimisers: a context that a program, a coding agent or a person wrote, tried by our rules.

A candidate is a list of texts, the whole context of the agent. It is played on the selection queries of a job against
the context with which that job began, and paid for by the job's budget. The answer has sums alone, so that no
selection query is copied into a candidate, and each further try is judged by a stricter level. The held-out queries
prove a candidate as they prove any checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from django.db import transaction

from agentcore_site.jobs.models import Status
from agentcore_site.lib import disk
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.models import Against, EvaluationRun, Split
from evaluation.services import evaluation_start
from experiences.learning.lessons.library import Lesson, Library, new_handle
from experiences.learning.lessons.prompt_injection import suspicion
from experiences.learning.lessons.states import LONGEST
from experiences.lessons.provenance import acting_functions
from training.models import PolicyCheckpoint, TrainingRun
from training.services.checkpoint_uploads import checkpoint_admit
from training.services.run_setup import setup_of

MOST_TEXTS: Final = 200


def candidate_try(
    actor: Actor, run: TrainingRun, *, lessons: Sequence[str], samples: int | None = None
) -> tuple[EvaluationRun, bool]:
    """Queues a candidate on the selection queries of a job. Returns its evaluation, and whether it is a new one: the
    same texts are played once.

    Raises:
        Missing, Forbidden: the actor may not evaluate.
        Invalid: a text is empty, too long, or looks like an attempt to steer a model.
        Conflict: the job learns no context, or the agent is archived, or may not be recorded.
        Insufficient: the disk is nearly full.
    """
    require(actor, "evaluate", run.organization_id)
    if not run.learns_context:
        raise Conflict("This job trains no context: a candidate is a list of lessons, and its agent reads none.")
    if run.agent.archived_at is not None:
        raise Conflict(f"{run.agent.name} is archived.")
    disk.require_room()
    data = _bytes(run, _cleaned(run, lessons))
    sha256 = PolicyCheckpoint.digest(data)
    checkpoint = PolicyCheckpoint.objects.filter(agent=run.agent, run=None, sha256=sha256).first()
    if checkpoint is None:
        checkpoint = checkpoint_admit(actor, run.agent, data)
    samples = run.configuration.eval_samples if samples is None else samples
    same = EvaluationRun.objects.filter(run=run, checkpoint=checkpoint, split=Split.SELECTION, samples=samples)
    with transaction.atomic():
        hold_row(checkpoint)  # of two requests at once the second finds the first one's evaluation
        there = same.filter(against=Against.BEGAN).exclude(job__status__in=(Status.FAILED, Status.CANCELLED)).first()
        if there is not None:
            return there, False
        return evaluation_start(actor, run=run, checkpoint=checkpoint, split=Split.SELECTION, samples=samples), True


def _bytes(run: TrainingRun, texts: Sequence[str]) -> bytes:
    """A checkpoint that serves these texts to every query. The same texts give the same bytes."""
    library = Library(tuple(Lesson(new_handle("candidate", text), text, status="active") for text in texts))
    setup = replace(setup_of(run), library=library, weights={}, known=None, rule=None, start=None)
    return setup.fresh_state().to_bytes()


def _cleaned(run: TrainingRun, lessons: Sequence[str]) -> list[str]:
    texts = list(dict.fromkeys(text.strip() for text in lessons))
    fault = "" if 1 <= len(texts) <= MOST_TEXTS else f"Give 1 to {MOST_TEXTS} texts; there are {len(texts)}."
    functions = acting_functions(run.acting_agent)
    for number, text in enumerate(texts, start=1):
        if not text or len(text) > LONGEST["summary"]:
            fault = fault or f"Text {number} must have 1 to {LONGEST['summary']:,} characters; it has {len(text):,}."
        elif found := unstorable(text):
            fault = fault or f"Text {number} can't be stored: {found}."
        elif found := suspicion(text, functions):
            fault = fault or f"Text {number} was refused: {found}. Write it as advice for the task."
    if fault:
        raise Invalid(fault, fields={"lessons": fault})
    return texts
