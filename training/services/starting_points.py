"""Starting point of a later run of an agent: estimates of its earlier run, and the candidate that its gate refused.

A query that taught a lesson may not test it. The same seed splits the same data alike. If some test queries of a run
taught an earlier one (other data, another seed), the run starts without the estimates of that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from django.db.models import Q

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import DomainError
from experiences.learning.lessons.library import Library
from experiences.lessons.job_prompt import with_pack
from experiences.lessons.selectors import of_agent
from experiences.lessons.stamps import checked, stamp_of_agent
from experiences.models import Agent, AgentRuntime, Experience, ExperienceStatus, PromptPack
from experiences.rollouts.types import Scenario
from training.checkpoint_bytes import checkpoint_load
from training.data.pools import Pools
from training.learners import policy_of
from training.models import PolicyCheckpoint, TrainingRun
from training.policies.archive import CorruptState
from training.policies.context import ContextPolicy
from training.policies.prior_estimates import PriorEstimates
from training.schema import GRPOConfig
from training.services.checkpoints import latest
from training.services.pools import run_pools
from training.services.run_lessons import LibraryEntry, library_entry, runs_under
from training.splits import normalized

CHANGED_WEIGHT: Final = 0.25  # of estimates for an agent that has another model, other tools or another prompt now
MOST_RUNS: Final = 20  # earlier runs in a row whose training queries are compared with the next run's test queries


@dataclass(frozen=True)
class StartingPoint:
    """Starting point of a run besides the active lessons. ``lessons`` are further entries of its library: those that
    the gate of ``run`` refused. ``known`` are the estimates. ``origin`` is their provenance, as shown: rollouts,
    weight, later changes, and fingerprints of the agent."""

    run: TrainingRun | None = None
    lessons: Sequence[LibraryEntry] = ()
    known: PriorEstimates | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    warning: str = ""

    def known_of(self, library: Sequence[LibraryEntry]) -> dict[str, Any] | None:
        """Estimates for the lessons of a whole library, as a row stores them."""
        if self.known is None:
            return None
        return self.known.only(Library.of([entry["lesson"] for entry in library])).as_json()


def starting_point(
    agent: Agent,
    config: GRPOConfig,
    pools: Pools,
    chosen: PromptPack | None = None,
    *,
    after: TrainingRun | None = None,
) -> StartingPoint:
    """The starting point of a run of this agent on these queries. ``chosen`` is the prompt pack of the run, if it was
    chosen by the domain of its data. ``after`` is the run that it goes on from, with all lessons that this still tried
    at its end; None: the agent's last run, with the candidate that its gate refused.

    Raises:
        Conflict: the agent's prompt pack was altered.
    """
    if agent.runtime == AgentRuntime.ACTION:
        return StartingPoint()
    acting = with_pack(agent, chosen)
    alone = StartingPoint(origin={"acts_by": acts_by(acting)})
    earlier = after or (_earlier(agent, chosen) if config.context.reuse else None)
    if earlier is None:
        return alone
    taught = _taught(earlier)
    shared = 0 if taught is None else len(taught & _texts([*pools.selection, *pools.held_out]))
    if taught is None or shared:
        return replace(alone, warning=_not_used(earlier, shared))
    try:
        return _going_on(alone, acting, earlier, all_tried=after is not None)
    except (DomainError, CorruptState, KeyError) as error:
        return replace(alone, warning=f"What job {_named(earlier)} measured could not be read and is not used: {error}")


def acts_by(agent: Agent) -> dict[str, str]:
    """Fingerprints, by name, of what determines an agent's behaviour besides its lessons: estimates for another model
    say less about this one. {} for an agent that chooses actions: it calls no model and reads no prompt."""
    if agent.runtime == AgentRuntime.ACTION:
        return {}
    tools = {"own": sorted(agent.tools), "of servers": sorted((s.name, sorted(t)) for s, t in agent.server_tools)}
    return {
        "model": _fingerprint(_model(agent)),
        "tools": _fingerprint(tools),
        "prompt": stamp_of_agent(agent),
    }


def _model(agent: Agent) -> tuple[str, str, str]:
    endpoint = agent.endpoint
    if endpoint is None:
        return "", agent.model, agent.url
    return endpoint.base_url, agent.model or endpoint.model, agent.url


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _going_on(begun: StartingPoint, agent: Agent, earlier: TrainingRun, *, all_tried: bool) -> StartingPoint:
    checkpoint = latest(earlier)
    if checkpoint is None or not earlier.learns_context:
        return begun
    policy = cast(ContextPolicy, policy_of(checkpoint_load(checkpoint)))
    then, now = earlier.origin.get("acts_by", {}), begun.origin["acts_by"]
    changed = [name for name, value in now.items() if then.get(name, value) != value]
    known, weight = PriorEstimates.of(policy), CHANGED_WEIGHT if changed else 1.0
    lessons = [library_entry(row, "proposed") for row in _tried(agent, policy, earlier, all_tried=all_tried)]
    origin = {
        **begun.origin,
        "refused": len(lessons),
        "rollouts": round(max(known.effects.rollouts, default=0.0)),
        "weight": weight,
        "changed": changed,
    }
    return replace(begun, run=earlier, lessons=lessons, known=known.weighed(weight), origin=origin)


def _tried(agent: Agent, policy: ContextPolicy, earlier: TrainingRun, *, all_tried: bool) -> Iterator[Experience]:
    """Lessons of the candidate that a run ended with and did not ship, or all that it still tried, by their current
    rows. Lessons that a person pruned or reworded since are left out."""
    confidence = earlier.configuration.context.ship_confidence
    chosen = policy.candidate(confidence).handles if policy.selects else policy.keeps.handles
    tried = [lesson.handle for lesson in policy.library if lesson.live] if all_tried else chosen
    wanted = [handle for handle in tried if handle not in policy.shipped]
    rows = Experience.objects.filter(agent=agent, handle__in=wanted, status=ExperienceStatus.PROPOSED)
    for row in checked(of_agent(agent, rows.order_by("handle"))):
        draft = policy.library.get(row.handle)
        if draft is not None and draft.version == row.version:
            yield row


def _earlier(agent: Agent, chosen: PromptPack | None) -> TrainingRun | None:
    """The agent's last run that left a checkpoint, of the same kind: one under the same prompt, where there is one."""
    left = Q(policy_kind=agent.runtime, pk__in=PolicyCheckpoint.objects.filter(agent=agent).values("run"))
    for runs in (runs_under(agent, chosen), TrainingRun.objects.filter(agent=agent)):
        if found := runs.filter(left).order_by("-job__created_at").first():
            return found
    return None


def _taught(run: TrainingRun) -> set[str] | None:
    """Texts that this run, and earlier runs whose evidence it uses, learned from; None if they are no longer known."""
    texts: set[str] = set()
    at: TrainingRun | None = run
    for _ in range(MOST_RUNS):
        if at is None:
            return texts
        texts |= _texts(run_pools(at).train)
        if at.continues is None and at.known is not None:
            return None
        at = at.continues
    return None


def _texts(scenarios: Sequence[Scenario]) -> set[str]:
    return {normalized(scenario.query) for scenario in scenarios}


def _not_used(earlier: TrainingRun, shared: int) -> str:
    head = f"What job {_named(earlier)} measured is not used:"
    if not shared:
        return f"{head} it is not known any more which queries taught it."
    return (
        f"{head} {shared:,} of the queries that test this run taught that one. With its data and the seed"
        f" {earlier.seed} they would be split as they were then."
    )


def _named(run: TrainingRun) -> str:
    return Job.objects.values_list("title", flat=True).get(pk=run.pk) or str(run)
