"""The promoted checkpoint of an agent: the one that users promoted last, from which later jobs start.

Promotions are a stack: a rollback removes the newest one. An agent that chooses actions starts its jobs with the policy
of that checkpoint. An agent of a language model starts with its active lessons, and a promotion makes the lessons that
the checkpoint ships active.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.registry import UnknownName
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent
from experiences.models.jobs_at_work import jobs_of, titles_at_work
from experiences.rollouts.environments.base import Environment
from experiences.trajectories.storage import TrajectoryScope
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.learners import learner_of, policy_of, stored_policy
from training.models import PolicyCheckpoint, TrainingRun
from training.policies.archive import CorruptState
from training.policies.base import Policy
from training.policies.context import ContextPolicy
from training.schema import GRPOConfig
from training.services.run_lessons import ship_again

NOTHING_BEFORE: Final = "No other checkpoint of {} was promoted before: there is nothing to roll back to."


class WarmStart(NamedTuple):
    """The checkpoint that a run begins with; ``warning`` says why it does not begin with the one that was promoted."""

    checkpoint: PolicyCheckpoint | None = None
    warning: str = ""


def promoted(agent: Agent) -> PolicyCheckpoint | None:
    """The promoted checkpoint; None where there was no promotion, or all were rolled back."""
    mine = PolicyCheckpoint.objects.filter(agent=agent, promoted_at__isnull=False)
    return mine.select_related("run").order_by("-promoted_at").first()


def before_promoted(agent: Agent) -> PolicyCheckpoint | None:
    """The checkpoint that a rollback returns to."""
    mine = PolicyCheckpoint.objects.filter(agent=agent, promoted_at__isnull=False)
    return next(iter(mine.select_related("run").order_by("-promoted_at")[1:2]), None)


@transaction.atomic
def promoted_checkpoint_set(actor: Actor, checkpoint: PolicyCheckpoint) -> None:
    """Promotes a checkpoint.

    Raises:
        Missing, Forbidden: the actor may not.
        Damaged, ObjectsUnavailable: it can't be read.
        Conflict: the agent learns lessons and has an active job, which would overwrite them; or the agent is
            archived.
    """
    require(actor, "checkpoint.edit", checkpoint.organization_id)
    agent = checkpoint.agent
    hold_row(agent)
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    before = promoted(agent)
    _take_up(actor, checkpoint)
    checkpoint.promoted_at = timezone.now()
    checkpoint.save(update_fields=["promoted_at"])
    after = {"checkpoint": checkpoint.label, "sha256": checkpoint.sha256}
    record(
        actor, "checkpoint.promoted", checkpoint, before={"checkpoint": before.label if before else None}, after=after
    )


@transaction.atomic
def agent_step_back(actor: Actor, agent: Agent) -> PolicyCheckpoint:
    """Rolls the last promotion back and returns the checkpoint that is promoted now.

    Raises:
        Missing, Forbidden, Damaged, ObjectsUnavailable: as for ``promoted_checkpoint_set``.
        Conflict: nothing was promoted before; or as for ``promoted_checkpoint_set``.
    """
    require(actor, "checkpoint.edit", agent.organization_id)
    hold_row(agent)
    gone, back = promoted(agent), before_promoted(agent)
    if gone is None or back is None:
        raise Conflict(NOTHING_BEFORE.format(agent.name))
    _take_up(actor, back)
    gone.promoted_at = None
    gone.save(update_fields=["promoted_at"])
    record(actor, "checkpoint.rolled_back", back, before={"checkpoint": gone.label}, after={"checkpoint": back.label})
    return back


def _take_up(actor: Actor, checkpoint: PolicyCheckpoint) -> None:
    """Loads the checkpoint and, if it learns a context, activates the lessons that it ships. Lessons of an uploaded
    checkpoint have no rows here: a release delivers them, and jobs start with the existing rows."""
    try:
        policy = policy_of(checkpoint_load(checkpoint))
    except (CorruptState, UnknownName) as error:
        raise Conflict(f"{checkpoint.label} can't be read: {error}") from error
    run = checkpoint.run
    if run is None or not run.learns_context:
        return
    if working := titles_at_work(jobs_of([checkpoint.agent_id])):
        raise Conflict(f"{working} is at work and writes the agent's lessons. Cancel it, or wait until it has ended.")
    scope = TrajectoryScope(run.job_id, run.organization_id, run.agent_id, run.job.created_at.date().replace(day=1))
    ship_again(run, cast(ContextPolicy, policy), scope.id_of, by=Actor.of(actor).name)


def warm_start(agent: Agent, config: GRPOConfig, environment: Environment) -> WarmStart:
    """The policy from which a run of an agent that chooses actions starts.

    Raises:
        ObjectsUnavailable: the storage can't be reached now.
    """
    learner = learner_of(agent.runtime, config.learner)
    found = promoted(agent) if config.warm_start and not learner.learns_context else None
    if found is None:
        return WarmStart()
    try:
        stored = stored_policy(checkpoint_load(found))
    except (Damaged, CorruptState) as error:
        return WarmStart(warning=f"{found.label} was promoted and can't be read, so this begins untrained: {error}")
    if stored.learner.name != learner.name:
        return WarmStart(warning=f"{found.label} was promoted, and is {stored.learner.title}: this begins untrained.")
    if not stored.chooses_among(environment.actions):
        other = f"{found.label} was promoted, and chooses among other actions than this environment has"
        return WarmStart(warning=f"{other}: this begins untrained.")
    return WarmStart(found)


def start_of_run(run: TrainingRun) -> Policy:
    """The policy that a run went on from. Raises Damaged, ObjectsUnavailable, CorruptState."""
    assert run.starts_from is not None
    return policy_of(checkpoint_load(run.starts_from))
