"""Writes of evaluation: starts evaluations."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Priority
from agentcore_site.lib.errors import Conflict, DomainError, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.models import Against, EvaluationRun, Split
from experiences.agents.consent import may_record, recording_require
from experiences.models import Agent
from experiences.trajectories.storage import partition_ensure
from training.checkpoint_bytes import checkpoint_load
from training.data.uploads import clean_rows
from training.learners import policy_of, stored_policy
from training.models import PolicyCheckpoint, TrainingRun
from training.policies.context import ContextPolicy
from training.presenters.epochs import nothing_changed
from training.selectors.runs import run_get
from training.services import checkpoints
from training.services.pools import run_pools
from training.services.run_lessons import changed_nothing
from training.services.runs import run_verdict_set
from training.services.starting_points import acts_by

log = logging.getLogger(__name__)

EVALUATED = "evaluated"
MAX_SAMPLES = 64


def evaluation_start(
    actor: Actor,
    *,  # the fields of the REST request
    run: TrainingRun,
    checkpoint: PolicyCheckpoint | None = None,
    split: str = Split.HELD_OUT,
    queries: Sequence[Any] | None = None,
    samples: int | None = None,
    against: str = Against.BEGAN,
) -> EvaluationRun:
    """Queues a comparison of a checkpoint (default: the best) with the start of the run, or with an agent without
    context. The checkpoint was saved by the run, or uploaded for its agent. ``queries`` are texts from the run's pools,
    or rows {"query", "expected_outcome"}.

    Raises:
        Missing, Forbidden: the actor may not, or the run has no checkpoint yet.
        Invalid: queries or samples are wrong, the agent has no context, or the checkpoint does not fit the run.
        Conflict: the agent is archived, may not be recorded, or the checkpoint's bytes have changed.
        ObjectsUnavailable: the object storage is unavailable.
    """
    require(actor, "evaluate", run.organization_id)
    samples = run.configuration.eval_samples if samples is None else samples
    if not 1 <= samples <= MAX_SAMPLES:
        message = f"samples must be between 1 and {MAX_SAMPLES}; got {samples}."
        raise Invalid(message, fields={"samples": message})
    if against == Against.NOTHING and not run.learns_context:
        message = "This agent chooses actions and has no context: its baseline is always the untrained policy."
        raise Invalid(message, fields={"against": message})
    if run.agent.archived_at is not None:
        raise Conflict(f"{run.agent.name} is archived.")
    recording_require([run.agent], "evaluated")
    chosen = checkpoint or checkpoints.best(run)
    if chosen is None:
        raise Missing("This run has no checkpoint yet. Wait for its first one.")
    _check_fits(run, chosen)
    rows = None if queries is None else _known_queries(run, queries)
    if rows is None and split == Split.GIVEN:
        raise Invalid("Give the queries to evaluate on.", fields={"queries": "Give at least one query."})
    split = Split.GIVEN if rows is not None else split
    evaluation = EvaluationRun(run=run, checkpoint=chosen, split=split, queries=rows, samples=samples, against=against)
    return _create(actor, evaluation)


def evaluation_of_agent(
    actor: Actor,
    agent: Agent,
    *,
    checkpoint_id: str | None = None,
    queries: Sequence[Any] | None = None,
    samples: int | None = None,
    against: str = Against.BEGAN,
) -> EvaluationRun:
    """Queues ``evaluation_start`` for an agent: of the named checkpoint, else of its best.

    Raises:
        Missing: no checkpoint, or it is another agent's; and the errors of ``evaluation_start``.
    """
    found = checkpoints.checkpoint_of(actor, checkpoint_id) if checkpoint_id else checkpoints.best_of_agent(agent)
    if found is None:
        raise Missing("This agent has no checkpoint yet. Train it first.")
    if found.agent_id != agent.id:
        raise Missing(f"This agent has no checkpoint {checkpoint_id}.")
    run = run_get(actor, checkpoints.job_with_queries(found))
    return evaluation_start(actor, run=run, checkpoint=found, queries=queries, samples=samples, against=against)


def _check_fits(run: TrainingRun, checkpoint: PolicyCheckpoint) -> None:
    """Raises:
    Invalid: another run saved the checkpoint, or it was uploaded and is of another kind than this run trains.
    Damaged, ObjectsUnavailable: an uploaded checkpoint can't be read."""
    fault = ""
    if checkpoint.run_id is not None or checkpoint.agent_id != run.agent_id:
        fault = "" if checkpoint.run_id == run.job_id else "belongs to another run"
    else:
        stored = stored_policy(checkpoint_load(checkpoint))
        if stored.learner.name != run.learner.name:
            fault = f"was uploaded and holds {stored.learner.title}: this run trains another kind of policy"
        elif not stored.chooses_among(run_pools(run).environment.actions):
            fault = "was uploaded and chooses among other actions than those of this run's environment"
    if fault:
        raise Invalid(f"The checkpoint {fault}.", fields={"checkpoint_id": f"{fault[0].upper()}{fault[1:]}."})


def evaluation_of_finished_run(run_id: UUID) -> EvaluationRun | None:
    """Starts the final evaluation on the held-out queries, once per checkpoint. None if it exists, or if the agent may
    not be recorded now."""
    run = TrainingRun.objects.select_related("job", "agent", "organization", "dataset").get(job_id=run_id)
    chosen = checkpoints.best(run)
    if chosen is None or not may_record(run.agent_id) or EvaluationRun.objects.filter(run=run, final=True).exists():
        return None
    if run.verdict:
        return None
    try:
        # If the context is unchanged since the start of the run, both arms of a proof would be equal.
        if run.learns_context and changed_nothing(run, cast(ContextPolicy, policy_of(checkpoint_load(chosen)))):
            run_verdict_set(run, {"verdict": nothing_changed(run), "changed": False})
            return None
        samples = run.configuration.eval_samples
        return _create(
            None,
            EvaluationRun(
                run=run, checkpoint=chosen, split=Split.HELD_OUT, samples=samples, against=Against.BEGAN, final=True
            ),
        )
    except (Conflict, IntegrityError):
        return None  # another request was first
    except DomainError as error:
        log.warning("the final evaluation of run %s waits: %s", run_id, error.message)
        return None


def _create(actor: Actor | None, evaluation: EvaluationRun) -> EvaluationRun:
    """Stores an evaluation of a checkpoint of ``evaluation.run`` with its job."""
    run, checkpoint, split = evaluation.run, evaluation.checkpoint, evaluation.split
    partition_ensure(timezone.now().date().replace(day=1))
    evaluation.organization, evaluation.agent = run.organization, run.agent
    evaluation.sha256, evaluation.acts_by = checkpoint.sha256, acts_by(run.acting_agent)
    evaluation.temperature, evaluation.seed = run.configuration.eval_temperature, run.seed
    evaluation.lines = list(run_pools(run).lines) if split == Split.HELD_OUT else [str(split)]
    with transaction.atomic():
        # An evaluated checkpoint is evidence: its tag keeps it from being pruned.
        tags = sorted({*checkpoint.tags, EVALUATED})
        PolicyCheckpoint.objects.filter(id=checkpoint.id).update(tags=tags)
        evaluation.job = lifecycle.submit(
            actor,
            kind="evaluation",
            organization=run.organization,
            title=f"Evaluate {run.agent.name}",
            exclusive_key=f"evaluation:{checkpoint.id}" if evaluation.final else "",
            priority=Priority.HIGH,
        )
        evaluation.save(force_insert=True)
        asked = {"split": split, "against": evaluation.against, "checkpoint": str(checkpoint)}
        record(actor, "evaluation.started", evaluation, after=asked)
    return evaluation


def _known_queries(run: TrainingRun, queries: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows to evaluate on: a bare text is looked up in the run's own pools, which have its right answer."""
    if not queries:
        raise Invalid("Give at least one query.", fields={"eval_queries": "Give at least one query."})
    pools = run_pools(run)
    known = {
        scenario.query.strip(): (split, scenario.index)
        for split, scenarios in (("train", pools.train), ("selection", pools.selection), ("held_out", pools.held_out))
        for scenario in scenarios
    }
    rows: list[dict[str, Any]] = []
    given: list[Any] = []
    for number, query in enumerate(queries, start=1):
        text = query if isinstance(query, str) else ""
        if text and text.strip() in known:
            split, index = known[text.strip()]
            rows.append({"query": text.strip(), "pool": split, "index": index})
        elif text:
            message = (
                f"Query {number} is not among this agent's queries, so its right answer is unknown. "
                'Give it as {"query": "...", "expected_outcome": {"answer": "..."}}.'
            )
            raise Invalid(message, fields={"eval_queries": message})
        else:
            given.append(query)
    if rows and given:
        message = "Give either texts of this agent's own queries or rows with an expected outcome, not both."
        raise Invalid(message, fields={"eval_queries": message})
    return rows + [{**row, "pool": "given"} for row in (clean_rows(given) if given else [])]
