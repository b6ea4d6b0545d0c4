"""Writes of suites: made, given a next version, archived, and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import archive, record
from agentcore_site.jobs import lifecycle
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.money import dollars, micros
from agentcore_site.lib.registry import UnknownName
from agentcore_site.lib.row_checks import check_row, hold_row, save_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.meter_port import UnknownPrice
from budgets.metering.price_book import DatabasePriceBook
from budgets.selectors import budget_preflight
from budgets.services import budget_open_job
from evaluation.serving.models import Release, Suite, SuiteKind, SuiteRun, SuiteVersion
from evaluation.serving.releases.bundle import Bundle, digest
from evaluation.serving.releases.bundle_agent import acting_agent, action_policy
from evaluation.serving.releases.bundle_builder import bundle_of_agent
from evaluation.serving.suite_spec import MOST_QUERIES, SuiteSpec
from evaluation.serving.suites.admission import cost_required_micros, queries_of_part
from evaluation.serving.suites.built_in import BUILT_IN
from evaluation.serving.suites.questions import Player, questions_of
from experiences.agents.consent import recording_require
from experiences.agents.endpoint_config import BadEndpoint, endpoint_of_agent
from experiences.agents.services.environments import environment_addresses_check
from experiences.models import Agent, AgentRuntime
from experiences.rollouts.runtimes.base import calls_model
from experiences.trajectories.storage import partition_ensure

DEFAULT_BUDGET_USD: Final = 5.0
MOST_BUDGET_USD: Final = 10_000.0


@transaction.atomic
def suite_create(actor: Actor, *, name: str, spec: Mapping[str, Any], description: str = "") -> Suite:
    """Makes a suite with its first version.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a field is wrong (``fields`` says which).
        Conflict: the name is taken.
    """
    organization = current_organization(actor)
    require(actor, "suite.edit", organization)
    return _create(actor, organization, name, description, _checked(actor, organization.pk, spec))


def _create(actor: Actor, organization: Organization, name: str, description: str, parsed: SuiteSpec) -> Suite:
    kind = SuiteKind.SAFETY if parsed.is_safety else SuiteKind.BENCHMARK
    user = Actor.of(actor).user
    suite = Suite(organization=organization, name=name.strip(), kind=kind, description=description.strip())
    suite.created_by = user
    check_row(suite, exclude=["organization", "created_by"])
    save_row(suite, unique="name", taken=f"There is already a suite called {suite.name!r}. Choose another name.")
    _add(actor, suite, parsed)
    record(actor, "suite.created", suite, after={"name": suite.name, "digest": parsed.digest})
    return suite


@transaction.atomic
def suite_version_add(actor: Actor, suite: Suite, *, spec: Mapping[str, Any]) -> SuiteVersion:
    """Makes the suite's next version. Runs of earlier ones stay as they are.

    Raises:
        Missing, Forbidden, Invalid: as for ``suite_create``.
        Conflict: the suite is archived or of the other kind, or nothing changed.
    """
    require(actor, "suite.edit", suite.organization_id)
    return _next(actor, suite, _checked(actor, suite.organization_id, spec))


def _next(actor: Actor, suite: Suite, parsed: SuiteSpec) -> SuiteVersion:
    hold_row(suite)
    if suite.archived_at is not None:
        raise Conflict(f"{suite.name} is archived.")
    if parsed.is_safety != (suite.kind == SuiteKind.SAFETY):
        raise Conflict(f"{suite.name} is a {suite.get_kind_display().lower()} suite and stays one. Make another suite.")
    latest = suite.versions.order_by("-number").first()
    if latest is not None and latest.digest == parsed.digest:
        raise Conflict(f"Nothing differs from version {latest.number}.")
    made = _add(actor, suite, parsed)
    record(actor, "suite.changed", suite, after={"version": made.number, "digest": made.digest})
    return made


@transaction.atomic
def suite_built_in_add(actor: Actor, *, name: str) -> Suite:
    """Adds a suite that comes with the program, or its next version where this release of the program asks something
    else.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: there is no such suite.
        Conflict: it is here, as this program has it; or it is archived.
    """
    organization = current_organization(actor)
    require(actor, "suite.edit", organization)
    if name not in BUILT_IN:
        message = f"There is no built-in suite {name[:60]!r}. Known: {', '.join(BUILT_IN)}."
        raise Invalid(message, fields={"built_in": message})
    found = Suite.objects.filter(organization=organization, name=name).first()
    if found is None:
        return _create(actor, organization, name, BUILT_IN[name].description, BUILT_IN[name].spec)
    _next(actor, found, BUILT_IN[name].spec)
    return found


def suite_archive(actor: Actor, suite: Suite) -> Suite:
    """Takes a suite out of use; its runs stay.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    require(actor, "suite.edit", suite.organization_id)
    archive(actor, suite, "suite.archived")
    return suite


def suite_run_start(
    actor: Actor,
    version: SuiteVersion,
    *,
    agent: Agent | None = None,
    release: Release | None = None,
    judge_model: str = "",
    max_budget_usd: float = DEFAULT_BUDGET_USD,
) -> SuiteRun:
    """Queues a run of a ``release``, or of an ``agent`` as it is now. The run has a budget of its own.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: neither or both are given, the budget is out of range, or nothing in the suite can be asked of it.
        Conflict: suite or agent is archived, the agent may not be recorded, its endpoint, a price or its parameters are
            not there, or the same is being run.
        Insufficient: a budget is below what the last such run cost, or below the least that a first one costs.
    """
    suite = version.suite
    require(actor, "evaluate", suite.organization_id)
    if (agent is None) == (release is None):
        message = "Say what is measured: an agent as it is now, or a release."
        raise Invalid(message, fields={"agent": message})
    played = release.agent if release is not None else agent
    assert played is not None
    require(actor, "evaluate", played.organization_id)
    for archived in (suite, played):
        if archived.archived_at is not None:
            raise Conflict(f"{archived.name} is archived.")
    recording_require([played], "measured")
    if not 0 < max_budget_usd <= MOST_BUDGET_USD:
        message = f"The budget is above $0 and at most ${MOST_BUDGET_USD:,.0f}."
        raise Invalid(message, fields={"max_budget_usd": message})
    stored = _bundle(played) if release is None else release.bundle
    bundle = Bundle.from_json(stored)
    judge = judge_model.strip()[:120]
    queries = _playable(version, played, bundle, judge)
    run = SuiteRun(
        organization=played.organization,
        version=version,
        agent=played,
        release=release,
        digest=digest(stored),
        bundle={} if release is not None else stored,
        judge_model=judge,
    )
    limit_micros = micros(max_budget_usd)
    if calls_model(played.runtime):
        budget_preflight(
            organization_id=played.organization_id,
            agent_id=played.pk,
            wanted_micros=cost_required_micros(run, bundle, queries, limit_micros),
        )
    return _queued(actor, run, limit_micros)


@transaction.atomic
def _queued(actor: Actor, run: SuiteRun, limit_micros: int) -> SuiteRun:
    """Stores the run with its job and its budget of ``limit_micros``."""
    version, agent, release = run.version, run.agent, run.release
    paid = calls_model(agent.runtime)
    partition_ensure(timezone.now().date().replace(day=1))
    run.job = lifecycle.submit(
        actor,
        kind="suite",
        organization=agent.organization,
        title=f"{version.suite.name} on {agent.name}" + (f" release {release.number}" if release else ""),
        exclusive_key=f"suite:{version.pk}:{run.digest[:16]}",
        busy="This suite is being run on the same already. Wait for it, or cancel it.",
    )
    run.save(force_insert=True)
    if paid:
        budget_open_job(actor, run.job, agent_id=agent.pk, limit_micros=limit_micros)
    after = {"suite": version.suite.name, "version": version.number, "agent": agent.slug, "digest": run.digest}
    record(actor, "suite.run", run, after=after | {"limit_usd": dollars(limit_micros) if paid else None})
    return run


def _bundle(agent: Agent) -> dict[str, Any]:
    if agent.runtime == AgentRuntime.ACTION:
        raise Conflict("An agent that chooses actions has its parameters in a checkpoint: measure a release of it.")
    return bundle_of_agent(agent).as_json()


def _priced(acting: Agent, judge_model: str) -> None:
    """Raises:
    Conflict: a model that would be asked has no price, or can't be asked at all."""
    try:
        prices = DatabasePriceBook.load(acting.organization_id)
        for model in filter(None, (endpoint_of_agent(acting).model, judge_model)):
            prices.price(model)
    except (BadEndpoint, UnknownPrice) as error:
        raise Conflict(f"It can't be run: {error}") from error


def _playable(version: SuiteVersion, agent: Agent, bundle: Bundle, judge_model: str) -> int:
    """Number of queries that the agent can be asked.

    Raises:
        Conflict: a model has no price, or a part's environment, dataset or plugin is gone.
        Invalid: the agent can be asked nothing.
    """
    player = Player(bundle.runtime)
    if bundle.runtime == AgentRuntime.ACTION:
        player = Player(bundle.runtime, actions=action_policy(bundle).actions)
    else:
        _priced(acting_agent(agent, bundle), judge_model)
    try:
        if bundle.runtime == AgentRuntime.LLM:  # all can be asked; the worker makes items, not a request
            return sum(queries_of_part(part, agent.organization_id) for part in version.parsed.parts)
        asked = questions_of(version.parsed, agent.organization_id, player)
    except (UnknownName, ValueError) as error:
        raise Conflict(f"{version} can't be run any more: {error}") from error
    if not (queries := sum(len(part.scenarios) for part in asked)):
        message = f"Nothing in {version.suite.name} can be asked of {agent.name}: it needs a language model."
        raise Invalid(message, fields={"agent": message})
    return queries


def _checked(actor: Actor, organization_id: Any, given: Mapping[str, Any]) -> SuiteSpec:
    """Raises:
    Missing, Forbidden: an address may not be called by the actor's wish.
    Invalid: the spec is wrong; the message says where."""
    if why := unstorable(given):
        raise _wrong(f"It can't be stored: {why}.")
    try:
        spec = SuiteSpec.of(given)
        for part in spec.parts:
            if part.environment:
                environment_addresses_check(actor, organization_id, part.environment, part.options, {})
        asked = questions_of(spec, organization_id, Player())
    except (UnknownName, ValueError) as error:
        raise _wrong(str(error)) from error
    n = sum(len(one.scenarios) for one in asked)
    if not 1 <= n <= MOST_QUERIES:
        raise _wrong(f"A suite asks 1 to {MOST_QUERIES:,} queries; these parts have {n:,}.")
    return spec


def _wrong(message: str) -> Invalid:
    return Invalid(message, fields={"spec": message})


def _add(actor: Actor, suite: Suite, spec: SuiteSpec) -> SuiteVersion:
    latest = suite.versions.order_by("-number").values_list("number", flat=True).first() or 0
    return SuiteVersion.objects.create(
        suite=suite,
        number=latest + 1,
        digest=spec.digest,
        spec=spec.as_json(),
        created_by=Actor.of(actor).user,
    )
