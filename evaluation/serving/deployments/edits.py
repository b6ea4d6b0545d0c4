"""Automatic deployment of small edits of an agent's context, by the agent's own rule and through its gate."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import ACTIVE, ENDED
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.lib.money import dollars, micros
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.ledger.accounts import month_of
from evaluation.serving.deployments.gate import verdict_of
from evaluation.serving.deployments.missing_suites import MissingSuite, suites_missing
from evaluation.serving.deployments.selectors import live_deployment
from evaluation.serving.deployments.services import STRATEGIES, deployment_start
from evaluation.serving.models import AgentServing, DeploymentStrategy, Release, SuiteRun
from evaluation.serving.releases.bundle import Bundle, differences
from evaluation.serving.releases.bundle_builder import bundle_of_agent, bundle_of_playbook
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.releases.services import Unchanged, release_make
from evaluation.serving.suites.services import DEFAULT_BUDGET_USD, suite_run_start
from experiences.models import Agent, AgentRuntime, Playbook

log = logging.getLogger(__name__)

MOST: Final = 20  # texts
TEXTS: Final = frozenset({"lesson", "item"})  # parts of a bundle that a small edit may change
NEEDED: Final = ("deployment.edit", "release.make", "evaluate")
LIMITS: Final = ("strategy", "a_month", "monthly_usd")
MOST_A_MONTH: Final = 1_000
MOST_USD: Final = 10_000
NOTE: Final = "A small edit, by the agent's own rule."


@transaction.atomic
def edits_change(actor: Actor, agent: Agent, *, most: int | None, **limits: Any) -> AgentServing:
    """Sets whether edits of at most ``most`` texts, and of nothing else, are deployed automatically as this person.
    ``most=None`` turns this off. ``limits`` are the changed values of ``LIMITS``.

    Raises:
        Missing, Forbidden: the actor may not do one of the actions of ``NEEDED``.
        Invalid: a value is out of its range (``fields``).
    """
    for action in NEEDED:
        require(actor, action, agent.organization_id)
    if most is not None and not 1 <= most <= MOST:
        raise _wrong("most", f"A small edit changes 1 to {MOST} texts.")
    if limits.get("strategy", DeploymentStrategy.CANARY) not in STRATEGIES:
        raise _wrong("strategy", f"A small edit goes out by one of {', '.join(STRATEGIES)}.")
    if not 0 <= limits.get("a_month", 0) <= MOST_A_MONTH:
        raise _wrong("a_month", f"0 to {MOST_A_MONTH:,} small edits go out in a month.")
    if not 0 <= limits.get("monthly_usd", 0) <= MOST_USD:
        raise _wrong("monthly_usd", f"Suites of small edits may cost $0 to ${MOST_USD:,} a month.")
    hold_row(agent)
    serving, _ = AgentServing.objects.get_or_create(agent=agent, defaults={"organization_id": agent.organization_id})
    before = edits_settings(serving)
    serving.most_edits, serving.edits_by = most, None if most is None else Actor.of(actor).user
    serving.edits_strategy = limits.get("strategy", serving.edits_strategy)
    serving.edits_a_month = limits.get("a_month", serving.edits_a_month)
    if "monthly_usd" in limits:
        serving.edits_monthly_micros = micros(limits["monthly_usd"])
    serving.save()
    after = edits_settings(serving)
    record(actor, "serving.edits", serving, organization=agent.organization_id, before=before, after=after)
    return serving


def edits_settings(serving: AgentServing) -> dict[str, Any]:
    """The current values of the arguments of ``edits_change``."""
    return {
        "most": serving.most_edits,
        "strategy": serving.edits_strategy,
        "a_month": serving.edits_a_month,
        "monthly_usd": dollars(serving.edits_monthly_micros),
    }


def _wrong(name: str, message: str) -> Invalid:
    return Invalid(message, fields={name: message})


def edits_advance() -> int:
    """Takes one step for each agent with automatic small edits. Returns the number of these agents."""
    ids = list(agents_with_edits().values_list("pk", flat=True))
    for pk in ids:
        try:
            _step(pk)
        except DomainError as error:  # the next tick tries again
            log.info("the edit of agent %s waits: %s", pk, error.message)
        except Exception:  # an agent whose step fails must not hold up the others
            log.exception("the edit of agent %s could not be stepped", pk)
    return len(ids)


def agents_with_edits() -> QuerySet[AgentServing]:
    rows = AgentServing.objects.filter(most_edits__isnull=False, edits_by__isnull=False, agent__archived_at=None)
    return rows.exclude(release=None)


@transaction.atomic
def _step(pk: UUID) -> None:
    """Makes a release of an edit, runs the suites that the gate requires, and deploys the release once the gate passes.
    Raises DomainError."""
    rows = AgentServing.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
    serving = rows.select_related("agent", "release", "edits_by").filter(pk=pk).first()
    if serving is None or serving.release is None or live_deployment(serving.agent) or not edit_of(serving):
        return
    agent, current = serving.agent, serving.release
    actor = Actor(serving.edits_by, organization_id=agent.organization_id, interface="edits")
    try:
        release = release_make(actor, agent, playbook_version=_version(agent), note=NOTE)
    except Unchanged as same:
        release = same.release
    if release.deployments.exists():  # it was rolled back, or a person decided
        return
    if edits_limit(serving):
        return
    missing = suites_missing(release, current)
    if missing:
        _measure(actor, serving, [one for one in missing if one.last is None])  # a person reruns a failed suite
    elif verdict_of(release, current).passed:
        deployment_start(actor, release, strategy=serving.edits_strategy, note=NOTE)
        _count(serving, out=1)


def _measure(actor: Actor, serving: AgentServing, suites: Sequence[MissingSuite]) -> None:
    """Runs the suites within the dollars that are left this month. Waits while other suite runs of this agent's edits
    are active, because their cost is not known yet. Raises DomainError."""
    runs = _runs(serving)
    if not suites or runs.filter(job__status__in=ACTIVE).exists():
        return
    most = min(DEFAULT_BUDGET_USD, dollars(_left_micros(serving) // len(suites)))
    begun = [suite_run_start(actor, suite.version, release=suite.of, max_budget_usd=most) for suite in suites]
    _count(serving, runs=[run.pk for run in begun])


def _count(serving: AgentServing, *, out: int = 0, runs: Sequence[UUID] = ()) -> None:
    month = month_of()
    if serving.edits_month != month:
        serving.edits_month, serving.edits_out, serving.edits_runs = month, 0, []
    serving.edits_out += out
    serving.edits_runs = [*serving.edits_runs, *runs]
    serving.save(update_fields=["edits_month", "edits_out", "edits_runs", "updated_at"])


def _runs(serving: AgentServing) -> QuerySet[SuiteRun]:
    """The suite runs that were started for edits this month."""
    return SuiteRun.objects.filter(pk__in=serving.edits_runs if serving.edits_month == month_of() else [])


def _left_micros(serving: AgentServing) -> int:
    spent_micros = _runs(serving).aggregate(spent_micros=Sum("cost_micros"))["spent_micros"] or 0
    return max(serving.edits_monthly_micros - int(spent_micros), 0)


def edits_limit(serving: AgentServing) -> str:
    """The monthly limit that stops edits, as a sentence; "" if no limit does."""
    out = serving.edits_out if serving.edits_month == month_of() else 0
    if out >= serving.edits_a_month:
        return f"{out} small edits went out this month, which is the limit."
    current, latest = serving.release, Release.objects.filter(agent=serving.agent_id).order_by("-number").first()
    if current is None or latest is None or _left_micros(serving) or not suites_missing(latest, current):
        return ""
    return "This month's dollars for suites of small edits are used up."


def edit_of(serving: AgentServing) -> int:
    """Number of texts that differ between the agent's rows and its release, if the rule calls that a small edit; else
    0.

    Raises:
        Conflict: the agent's prompt pack was altered.
    """
    if serving.release is None or serving.most_edits is None:
        return 0
    changed = differences(bundle_of(serving.release), _bundle(serving.agent))
    small = {one.part for one in changed} <= TEXTS and len(changed) <= serving.most_edits
    return len(changed) if small else 0


def edits_sentence(serving: AgentServing) -> str:
    """The rule of small edits, and the reason why the newest edit waits, as sentences."""
    if serving.most_edits is None:
        return "No edit goes out automatically."
    by = serving.edits_by or "a deleted user"
    rule = f"Edits of at most {serving.most_edits} texts go out automatically once the gate passes them, as {by}."
    if limit := edits_limit(serving):
        return f"{rule} {limit}"
    latest = Release.objects.filter(agent=serving.agent_id).order_by("-number").first()
    if latest is None or serving.release is None or latest.number <= serving.release.number:
        return rule
    if latest.deployments.exists():
        return rule
    missing = suites_missing(latest, serving.release)
    if ended := [one for one in missing if one.last is not None and one.last.job.status in ENDED]:
        return f"{rule} Release {latest.number} waits: suite {ended[0].version.suite.name} ended; run it again."
    if missing:
        return f"{rule} Release {latest.number} waits for suite {missing[0].version.suite.name}."
    return f"{rule} Release {latest.number}: {verdict_of(latest, serving.release).sentence}"


def _version(agent: Agent) -> int | None:
    """The playbook version to release of an agent that chooses actions; None for other agents: their rows are
    released."""
    if agent.runtime != AgentRuntime.ACTION:
        return None
    return Playbook.objects.filter(agent=agent).values_list("version", flat=True).first()


def _bundle(agent: Agent) -> Bundle:
    if (version := _version(agent)) is None:
        return bundle_of_agent(agent)
    return bundle_of_playbook(agent, Playbook.objects.get(agent=agent), version)
