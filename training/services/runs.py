"""Runs as people move them: start, estimate, pause, resume, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Priority
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.registry import UnknownName
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.services import budget_open_job, budget_set_limit
from experiences.agents.endpoint_config import uses_model_server
from experiences.agents.selectors import dataset_rows, images_each
from experiences.agents.services.datasets import dataset_create, dataset_of_rows
from experiences.agents.services.environments import environment_addresses_check, environment_fits, images_fit
from experiences.lessons.job_prompt import ChosenPrompt, prompt_for, prompt_frozen, with_pack
from experiences.models import Agent, AgentRuntime, Dataset
from experiences.models.trajectories import DatasetOrigin
from experiences.rollouts.environments.dataset import refuse_judged
from experiences.trajectories.storage import partition_ensure
from training.config.validation import ConfigError, parse_config, query_warnings
from training.config.versions import as_stored
from training.data.mapping import images_asked
from training.data.pools import Pools, dataset_pools, environment_pools, pool_sizes, shares
from training.data.uploads import clean_rows
from training.estimates import planning
from training.estimates.planning import PlanEstimate, Planned
from training.learners import learner_of
from training.models import TrainingRun
from training.schema import GRPOConfig
from training.services.admission import RefusalShown, job_slot, refusals
from training.services.launch_defaults import groups_fault, launch_defaults
from training.services.promotion import warm_start
from training.services.run_lessons import let_in_lessons, starting_library, starting_rule
from training.services.starting_points import starting_point
from training.splits import split_counts

MOST_ITERATIONS: Final = 10_000  # that the schema allows


@dataclass(frozen=True)
class RequestedData:
    """The data that a launch names: at most one of a dataset, rows (with their domain) and an environment."""

    dataset: Dataset | None
    rows: Sequence[Any] | None
    domain: str
    environment: str | None
    options: Mapping[str, Any] | None


@dataclass(frozen=True)
class LaunchRequest:
    """A validated launch request."""

    agent: Agent
    config: GRPOConfig
    warnings: list[str]
    dataset: Dataset | None
    rows: list[dict[str, Any]] | None
    environment: str
    options: dict[str, Any]
    domain: str  # of the data; "" where they name none


def run_start(
    actor: Actor,
    *,  # the fields of the REST request
    agent: Agent,
    dataset: Dataset | None = None,
    rows: Sequence[Any] | None = None,
    domain: str = "",
    environment: str | None = None,
    environment_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    preset: str = "recommended",
    priority: int = Priority.NORMAL,
    not_before: datetime | None = None,
    title: str = "",
    after: TrainingRun | None = None,
) -> TrainingRun:
    """Queues a training job. ``after`` is a run that it goes on from (``going_on.run_go_on``): the job then has as many
    iterations as its budget is expected to pay for. Data are a dataset, rows, or the agent's (or a named)
    environment. ``domain`` says what rows are about; a dataset says it itself.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: configuration or data are wrong (``fields`` says where).
        TooLarge: more than 10,000 queries.
        Conflict: the agent already has an active job, or several prompt packs are for the domain of the data.
        TooMany: a limit on active jobs is reached.
        Insufficient: the measured estimate, or the lower bound of a guess, does not fit the job's budget; or the
            organisation or the agent has too little left this month.
        ObjectsUnavailable: the checkpoint that it would begin with can't be reached.
    """
    require(actor, "run.start", agent.organization_id)
    asked = _validated(agent, RequestedData(dataset, rows, domain, environment, environment_options), config, preset)
    known = agent.environment_options if asked.environment == agent.environment else {}
    environment_addresses_check(actor, agent.organization_id, asked.environment, asked.options, known)
    pools = _pools(asked, asked.config.seed)
    if after is not None:
        asked = replace(asked, config=_affordable(asked, pools))
    sizes = {"n_train": len(pools.train), "n_selection": len(pools.selection), "n_held_out": len(pools.held_out)}
    planned = planning.planned(asked.config, agent, **sizes, images=_images(asked))
    choose = cache(partial(prompt_for, agent, asked.domain))
    if refused := refusals(actor, planned, choose):
        raise refused[0].error
    run = _prepared(asked, pools, planned, choose(), after)
    partition_ensure(timezone.now().date().replace(day=1))
    with transaction.atomic():
        run.dataset = asked.dataset
        if asked.rows is not None:
            name, origin = title or f"Queries for {agent.name}", DatasetOrigin.LAUNCH
            run.dataset = dataset_create(
                actor, name=name, rows=asked.rows, domain=domain, origin=origin, origin_detail=agent.name
            )
        run.job = lifecycle.submit(
            actor, **job_slot(agent), title=title or f"Train {agent.name}", priority=priority, not_before=not_before
        )
        run.save(force_insert=True)
        if (limit_micros := planned.monthly_micros) is not None:
            note = f"configuration of {run.job}"
            budget_set_limit(
                actor, organization=agent.organization_id, agent_id=agent.id, limit_micros=limit_micros, note=note
            )
        budget_open_job(actor, run.job, agent_id=agent.id, limit_micros=planned.budget_micros)
        record(actor, "run.started", run, organization=agent.organization_id, after={"config": run.config})
    return run


def _images(asked: LaunchRequest) -> float:
    """The images of a query, on average."""
    if asked.rows is None:
        return images_each(asked.dataset) if asked.dataset is not None else 0.0
    return images_asked(asked.rows) / len(asked.rows)


def _affordable(asked: LaunchRequest, pools: Pools) -> GRPOConfig:
    """The configuration with as many iterations as its budget is expected to pay for, and at least one. Those that were
    asked for stay where they cost nothing."""
    sizes = {"n_train": len(pools.train), "n_selection": len(pools.selection), "n_held_out": len(pools.held_out)}
    config = asked.config
    most = config.model_copy(update={"n_iterations": MOST_ITERATIONS})
    paid = planning.planned(most, asked.agent, **sizes, images=_images(asked)).affordable
    return config if paid is None else config.model_copy(update={"n_iterations": max(paid, 1)})


def _prepared(
    asked: LaunchRequest, pools: Pools, planned: Planned, prompt: ChosenPrompt, after: TrainingRun | None
) -> TrainingRun:
    """The run with all that its start decides; its job and its dataset are yet to be stored.

    Raises:
        ObjectsUnavailable: the checkpoint that it would begin with can't be reached.
    """
    agent, config = asked.agent, asked.config
    start_from = starting_point(agent, config, pools, prompt.pack, after=after)
    start = warm_start(agent, config, pools.environment)
    acting = with_pack(agent, prompt.pack)
    of_actions = agent.runtime == AgentRuntime.ACTION
    library = [] if of_actions else [*starting_library(acting), *start_from.lessons]
    if learner_of(agent.runtime, config.learner).learns_context:
        library += let_in_lessons(acting, config, library)
    return TrainingRun(
        organization=agent.organization,
        agent=agent,
        prompt_pack=prompt.pack,
        prompt=None if of_actions else prompt_frozen(acting),
        environment=asked.environment,
        environment_options=asked.options,
        policy_kind=agent.runtime,
        preset=config.preset,
        config=as_stored(config),
        seed=config.seed,
        continues=start_from.run,
        origin=start_from.origin,
        known=start_from.known_of(library),
        **planned.pools,
        estimate={**planned.as_json(), "prompt": prompt.of(agent)},
        starts_from=start.checkpoint,
        warnings=[*asked.warnings, *filter(None, [start_from.warning, start.warning])],
        library=library,
        starting_rule=None if of_actions else starting_rule(agent, prompt.pack),
        total_iterations=config.n_iterations,
        budget_micros=planned.budget_micros,
    )


class RunEstimate(PlanEstimate):
    """The estimate with the whole configuration, the prompt (None: several packs are for the domain, or the agent reads
    none) and the reasons that refuse the launch."""

    config: dict[str, Any]
    prompt: dict[str, Any] | None
    refusals: list[RefusalShown]


def run_estimate(
    actor: Actor,
    *,  # the fields of the REST request
    agent: Agent,
    dataset: Dataset | None = None,
    n_queries: int | None = None,
    domain: str = "",
    environment_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    preset: str = "recommended",
) -> RunEstimate:
    """Cost, duration and statistical power of a run, its prompt, and the reasons that refuse its launch; nothing is
    stored. ``domain`` is the subject of queries without a dataset.

    Raises:
        Invalid: the configuration is wrong.
    """
    require(actor, "view", agent.organization_id)
    parsed, warnings = run_config(config, preset, agent)
    n_queries = dataset.size if dataset is not None else n_queries
    if n_queries is not None:
        n_train, n_selection, n_held_out = split_counts(n_queries, **shares(parsed))
    else:
        try:
            sizes = pool_sizes(environment_options or agent.environment_options)
        except ValueError as error:
            raise Invalid(str(error), fields={"environment_options": str(error)}) from error
        n_train, n_selection, n_held_out = sizes["train"], sizes["selection"], sizes["held_out"]
    pools = {"n_train": n_train, "n_selection": n_selection, "n_held_out": n_held_out}
    images = images_each(dataset) if dataset is not None else 0.0
    planned = planning.planned(parsed, agent, **pools, images=images)
    estimate = planned.as_json()
    choose = cache(partial(prompt_for, agent, dataset.domain if dataset is not None else domain.strip()))
    refused = refusals(actor, planned, choose)
    return {
        **estimate,
        "warnings": warnings + estimate["warnings"],
        "config": parsed.model_dump(mode="json"),
        "prompt": _prompt(agent, choose),
        "refusals": [refusal.as_json() for refusal in refused],
    }


def _prompt(agent: Agent, choose: Callable[[], ChosenPrompt]) -> dict[str, Any] | None:
    """The prompt of a job; None where the launch is refused since several packs are for the domain."""
    try:
        return choose().of(agent)
    except Conflict:
        return None


def run_verdict_set(run: TrainingRun, verdict: Mapping[str, Any]) -> None:
    """Stores the result of the held-out evaluation. Evaluation calls this in the transaction of its report."""
    TrainingRun.objects.filter(job_id=run.job_id).update(verdict=dict(verdict))
    event_add(run.job, "verdict", message=str(verdict.get("verdict", "")), data=dict(verdict))


def _validated(agent: Agent, data: RequestedData, config: Mapping[str, Any] | None, preset: str) -> LaunchRequest:
    dataset = data.dataset
    if sum(source is not None for source in (dataset, data.rows, data.environment)) > 1:
        message = "Give one source of data: a dataset, queries, or an environment."
        raise Invalid(message, fields={"data": message})
    if dataset is not None and dataset.archived_at is not None:
        message = f"{dataset.name} is archived. Restore it, or choose another dataset."
        raise Conflict(message, fields={"data": message})
    parsed, warnings = run_config(config, preset, agent)
    cleaned = clean_rows(list(data.rows)) if data.rows is not None else None
    from_rows = dataset is not None or cleaned is not None
    if from_rows:
        known: Sequence[Mapping[str, Any]] = dataset_rows(dataset) if dataset is not None else cleaned or []
        warnings = [*warnings, *query_warnings([row["query"] for row in known])]
    name = "dataset" if from_rows else (data.environment or agent.environment)
    if name == "dataset" and not from_rows:
        message = "This agent trains on datasets: give a dataset or queries."
        raise Invalid(message, fields={"data": message})
    default = agent.environment_options if name == agent.environment else {}
    options = dict(default if data.options is None else data.options)
    about = _domain(agent, dataset, cleaned, data.domain)
    return LaunchRequest(agent, parsed, warnings, dataset, cleaned, name, options, about)


def _domain(agent: Agent, dataset: Dataset | None, rows: list[dict[str, Any]] | None, given: str) -> str:
    """The domain of the data. Rows that are stored already as a dataset have the domain of that dataset."""
    given = given.strip()
    if given and rows is None:
        message = "A domain is for queries that come with the job; a dataset has its own."
        raise Invalid(message, fields={"domain": message})
    known = dataset if rows is None else dataset_of_rows(agent.organization, rows)
    return given or (known.domain if known is not None else "")


def run_config(config: Mapping[str, Any] | None, preset: str, agent: Agent) -> tuple[GRPOConfig, list[str]]:
    """(configuration, warnings) of a run of this agent.

    Raises:
        Invalid: the configuration is wrong; ``fields`` names each mistake.
    """
    asked = dict(config or {})
    raw = {"preset": preset, **asked}
    try:
        parsed, warnings = parse_config(raw, runtime=agent.runtime, defaults=launch_defaults(agent, asked))
    except ConfigError as error:
        raise Invalid(str(error), fields={one.field: one.message for one in error.errors}) from error
    if parsed.algorithm == "tfgrpo" and (message := groups_fault(agent)):
        raise Invalid(message, fields={"algorithm": message})
    if learner_of(agent.runtime, parsed.learner).needs_model_server and not uses_model_server(agent):
        message = f"{agent.name} calls a model whose weights can't be trained: its endpoint is not of kind weights."
        raise Invalid(message, fields={"learner": message})
    return parsed, warnings


def _pools(asked: LaunchRequest, seed: int) -> Pools:
    try:
        pools = _made(asked, seed)
        if asked.agent.runtime == AgentRuntime.ACTION:
            refuse_judged(pools.environment)
    except (ValueError, UnknownName) as error:
        raise Invalid(str(error), fields={"data": str(error)}) from error
    return pools


def _made(asked: LaunchRequest, seed: int) -> Pools:
    rows = dataset_rows(asked.dataset) if asked.rows is None and asked.dataset is not None else asked.rows
    if rows is not None:
        images_fit(asked.agent, rows)
        return dataset_pools(rows, asked.options, seed, **shares(asked.config))
    # The agent's own environment may be another one: it has to be able to play this one too.
    environment_fits(asked.agent, asked.environment)
    return environment_pools(asked.environment, asked.options, seed)
