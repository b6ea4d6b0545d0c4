"""Starts measurements of a release's lessons on another model."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Conflict, Insufficient, Invalid, Missing
from agentcore_site.lib.money import dollars, micros
from agentcore_site.lib.money_format import apart
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.llm.tokens import prompt_bound
from budgets.meter_port import UnknownPrice
from budgets.metering.price_book import DatabasePriceBook
from budgets.pricing import Price, worst_case_micros
from budgets.selectors import budget_preflight
from budgets.services import budget_open_job
from evaluation.serving.models import Release, SurvivalRun
from evaluation.serving.releases.bundle import Bundle, ModelPart
from evaluation.serving.releases.bundle_agent import endpoint_now
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.survival.drop_outs import MEMBERS
from experiences.agents.consent import recording_require
from experiences.agents.endpoint_config import BadEndpoint, endpoint_value
from experiences.models import AgentRuntime, ModelEndpoint
from experiences.rollouts.rewards.base import rubric_of
from experiences.trajectories.storage import partition_ensure
from training.data.pools import Pools
from training.estimates import measured
from training.models import TrainingRun
from training.services.checkpoints import job_with_queries
from training.services.pools import run_pools
from training.trainer.setup import configured_reward

DEFAULT_PAIRS: Final = 200
MOST_PAIRS: Final = 5_000
DEFAULT_BUDGET_USD: Final = 5.0
MOST_BUDGET_USD: Final = 10_000.0
TOOL_TOKENS: Final = 300  # of a tool's description, about


@dataclass(frozen=True, slots=True)
class SurvivalCosts:
    """In micro-dollars: ``least_micros`` has to be there for the first pair, ``expected_micros`` is a guess by listed
    prices for all pairs, ``hold_micros`` is held for a first call."""

    least_micros: int
    expected_micros: int
    hold_micros: int


@dataclass(frozen=True, slots=True)
class SurvivalPlan:
    """A measurement that can be started: the queries of ``run``, the ``bundle`` that is played, and its costs."""

    run: TrainingRun
    endpoint: ModelEndpoint
    bundle: Bundle
    costs: SurvivalCosts


def survival_start(
    actor: Actor,
    release: Release,
    *,
    endpoint: ModelEndpoint | None = None,
    model: str = "",
    max_budget_usd: float = DEFAULT_BUDGET_USD,
    pairs: int = DEFAULT_PAIRS,
) -> tuple[SurvivalRun, bool]:
    """Queues a measurement. Returns it, and whether it is a new one: the same request is played once.

    Raises:
        Missing, Forbidden: as ``survival_plan``.
        Invalid: as ``survival_plan``, or the limit is out of range.
        Conflict: as ``survival_plan``, or the release is being measured on that model.
        Insufficient: the limit, or a budget of agent or organisation, can't pay for one pair of plays.
    """
    require(actor, "evaluate", release.organization_id)
    if not (math.isfinite(max_budget_usd) and 0 < max_budget_usd <= MOST_BUDGET_USD):
        message = f"The limit is above $0 and at most ${MOST_BUDGET_USD:,.0f}."
        raise Invalid(message, fields={"max_budget_usd": message})
    plan = survival_plan(actor, release, endpoint=endpoint, model=model, pairs=pairs)
    limit_micros, least_micros = micros(max_budget_usd), plan.costs.least_micros
    if limit_micros < least_micros:
        least, limit = apart(least_micros, limit_micros)
        message = f"One pair of plays may cost {least}, and the limit is {limit}. Give at least {least}."
        raise Insufficient(message, fields={"max_budget_usd": message})
    with transaction.atomic():
        hold_row(release)  # of two requests at once the second finds the first one's measurement
        same = SurvivalRun.objects.filter(release=release, endpoint=plan.endpoint, model=plan.bundle.model.name)
        same = same.filter(digest=release.digest, pairs=pairs, limit_micros=limit_micros)
        there = same.exclude(job__status__in=(Status.FAILED, Status.CANCELLED)).first()
        if there is not None and Bundle.from_json(there.bundle).model == plan.bundle.model:
            return there, False
        budget_preflight(organization_id=release.organization_id, agent_id=release.agent_id, wanted_micros=least_micros)
        return _queued(actor, release, plan, pairs, limit_micros), True


def survival_plan(
    actor: Actor, release: Release, *, endpoint: ModelEndpoint | None = None, model: str = "", pairs: int
) -> SurvivalPlan:
    """Checks a measurement before its limit is known. Without ``endpoint`` the release's own, without ``model`` the
    endpoint's own.

    Raises:
        Missing, Forbidden: the actor may not, or the endpoint is another organisation's.
        Invalid: the model is the release's own, or can't be called (``fields`` says why).
        Conflict: the release has no lessons, or no query to measure them on; or the agent is archived, or may not be
            recorded; or the judge of its rewards is gone.
    """
    require(actor, "evaluate", release.organization_id)
    if not 1 <= pairs <= MOST_PAIRS:
        message = f"Give 1 to {MOST_PAIRS:,} pairs; got {pairs:,}."
        raise Invalid(message, fields={"pairs": message})
    agent, bundle = release.agent, bundle_of(release)
    if bundle.runtime == AgentRuntime.ACTION or bundle.policy is not None or not bundle.context.lessons:
        raise Conflict(f"Release {release.number} has no lessons, so there is nothing to measure on another model.")
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    recording_require([agent], "measured")
    where = endpoint_now(bundle, agent.organization_id) if endpoint is None else endpoint
    if where is None:
        message = "The release names no endpoint. Name the endpoint of the other model."
        raise Invalid(message, fields={"endpoint": message})
    if where.organization_id != release.organization_id:
        raise Missing(f"There is no model endpoint {str(where.pk)!r}.")
    other = _model(where, model.strip(), bundle.model)
    played, run = replace(bundle, model=other), _run_with_queries(release)
    if is_judged(run, run_pools(run)):  # by the release's own model: else the other one would grade itself
        endpoint_now(bundle, agent.organization_id)
    return SurvivalPlan(run, where, played, _costs(played, _price(where, other), pairs))


@transaction.atomic
def _queued(actor: Actor, release: Release, plan: SurvivalPlan, pairs: int, limit_micros: int) -> SurvivalRun:
    agent, model = release.agent, plan.bundle.model
    named = hashlib.sha256(f"{plan.endpoint.pk}/{model.name}".encode()).hexdigest()[:16]
    partition_ensure(timezone.now().date().replace(day=1))
    run = SurvivalRun(
        organization=agent.organization,
        agent=agent,
        release=release,
        run=plan.run,
        endpoint=plan.endpoint,
        model=model.name,
        digest=release.digest,
        bundle=plan.bundle.as_json(),
        pairs=pairs,
        limit_micros=limit_micros,
        seed=plan.run.seed,
    )
    run.job = lifecycle.submit(
        actor,
        kind="survival",
        organization=agent.organization,
        title=f"Lessons of {agent.name} release {release.number} on {model.name}",
        exclusive_key=f"survival:{release.pk}:{named}",
        busy="The lessons of this release are being measured on that model already. Wait for it, or cancel it.",
    )
    run.save(force_insert=True)
    budget_open_job(actor, run.job, agent_id=agent.pk, limit_micros=limit_micros)
    after = {"agent": agent.slug, "release": release.number, "model": model.name, "endpoint": model.endpoint_name}
    record(actor, "survival.started", run, after=after | {"limit_usd": dollars(limit_micros), "pairs": pairs})
    return run


def _model(where: ModelEndpoint, name: str, before: ModelPart) -> ModelPart:
    try:
        found = endpoint_value(where, name)
    except BadEndpoint as error:
        field = "model" if error.field == "model" else "endpoint"
        raise Invalid(f"{where.name} can't be used: {error}", fields={field: str(error)}) from error
    other = ModelPart(
        name=found.model,
        endpoint=str(where.pk),
        endpoint_name=where.name,
        kind=where.kind,
        base_url=where.base_url,
        options=dict(where.options or {}),
        max_tokens=before.max_tokens,
    )
    if (other.endpoint, other.name) == (before.endpoint, before.name):
        message = f"The release plays on {before.name} at {where.name} already. Choose another model or endpoint."
        raise Invalid(message, fields={"model": message})
    return other


def _price(where: ModelEndpoint, model: ModelPart) -> Price:
    try:
        return DatabasePriceBook.load(where.organization_id).price(model.name)
    except UnknownPrice as error:
        raise Invalid(f"{model.name} can't be paid for: {error}", fields={"model": str(error)}) from error


def _run_with_queries(release: Release) -> TrainingRun:
    """The job whose queries measure the lessons: the one that made the release's checkpoint, else the agent's newest
    that learned a context."""
    if release.checkpoint is not None:
        return TrainingRun.objects.select_related("dataset").get(pk=job_with_queries(release.checkpoint))
    runs = TrainingRun.objects.filter(agent_id=release.agent_id).order_by("-job__created_at")
    found = next((run for run in runs.select_related("dataset")[:50] if run.learns_context), None)
    if found is None:
        raise Conflict(f"{release.agent.name} has had no job with queries to measure its lessons on. Train it first.")
    return found


def is_judged(run: TrainingRun, pools: Pools) -> bool:
    """True if a language model grades the answers to the queries of this job, whose ``pools`` are given."""
    rubric = rubric_of(configured_reward(run.configuration))
    return rubric is not None or bool(getattr(pools.environment, "judged", False))


def _costs(bundle: Bundle, price: Price, pairs: int) -> SurvivalCosts:
    play, tools = bundle.play, len(bundle.tools) + sum(len(server.tools) for server in bundle.servers)
    said = [bundle.system, *(lesson.text for lesson in bundle.context.lessons)]
    said += play.instructions.values() if play is not None else []
    prompt = prompt_bound(json.dumps(said), messages=len(said), tools=tools) + measured.PROMPT_TOKENS
    prompt += TOOL_TOKENS * tools
    hold_micros = worst_case_micros(price, prompt_tokens=prompt, max_tokens=bundle.model.max_tokens)
    rates = measured.guessed(
        price,
        question_micros=0.0,
        philosophy=bundle.philosophy,
        prompt_tokens=len("".join(said)) // 3,
        max_tokens=bundle.model.max_tokens,
        concurrency=1,
    )
    least_micros = MEMBERS * max(hold_micros, math.ceil(rates.rollout_micros))
    return SurvivalCosts(least_micros, math.ceil(MEMBERS * pairs * rates.rollout_micros), hold_micros)


def costs_of(run: SurvivalRun) -> SurvivalCosts:
    """Costs of a stored measurement at present prices.

    Raises:
        UnknownPrice: its model has no price any more.
    """
    bundle = Bundle.from_json(run.bundle)
    price = DatabasePriceBook.load(run.organization_id).price(bundle.model.name)
    return _costs(bundle, price, run.pairs)
