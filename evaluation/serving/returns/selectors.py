"""Reads of returns: what agents' learning cost by the ledger, and what their releases saved and gained."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Count
from django.db.models.functions import TruncMonth

from agentcore_site.lib.money import MICROS
from agentcore_site.lib.months import month_start
from budgets.ledger.accounts import month_of
from budgets.ledger.days import agents_paid
from evaluation.serving.models import ArmName, Deployment, DeploymentState, ProductionTrace, Release
from evaluation.serving.monitoring.guardrails import Monitor
from evaluation.serving.releases.bundle_builder import known_of
from evaluation.serving.returns.arithmetic import Amount, MonthReturn, ReleaseMonth, month_return
from experiences.models import Agent

MONTHS: Final = 12
MOST_VALUE_USD: Final = 1_000_000
SERVING: Final = "production"  # purpose of the calls that answer users


def months_back(n: int, this: date | None = None) -> list[date]:
    """This month and those before, the latest first."""
    first = this or month_of()
    at = first.year * 12 + first.month - 1
    return [date((at - k) // 12, (at - k) % 12 + 1, 1) for k in range(n)]


def returns_of(
    agent_ids: Iterable[UUID], *, months: int = MONTHS, value_usd: float = 0.0
) -> dict[UUID, dict[date, MonthReturn]]:
    """By agent and month, the latest first; months without calls are left out. ``value_usd``: what one more right
    answer is worth. Checks no rights: the agents are the actor's.

    A handful of queries for all agents, and one for each release of theirs that has a proof.
    """
    ids, since = list(agent_ids), month_start(months_back(months)[-1])
    money = _money(ids, since)
    answered = _answered(ids, since)
    measured = _measured({release for counts in answered.values() for _, release in counts})
    found: dict[UUID, dict[date, MonthReturn]] = {}
    for agent_id in ids:
        counts, costs = answered.get(agent_id, {}), money.get(agent_id, {})
        for month in sorted({*costs, *(at for at, _ in counts)}, reverse=True):
            releases = [
                ReleaseMonth(measured[release][0], n, *measured[release][1:])
                for (at, release), n in counts.items()
                if at == month and release in measured
            ]
            learning, serving = costs.get(month, (0, 0))
            found.setdefault(agent_id, {})[month] = month_return(
                releases, cost=learning / MICROS, serving=serving / MICROS, value_of_answer=value_usd
            )
    return found


def _money(ids: list[UUID], since: datetime) -> Mapping[UUID, dict[date, tuple[int, int]]]:
    """By agent and month, micro-dollars of (learning, answers to users)."""
    organizations = Agent.objects.filter(pk__in=ids).values_list("organization_id", flat=True)
    sums: dict[UUID, dict[date, tuple[int, int]]] = defaultdict(dict)
    for agent_id, month, purpose, paid_micros in agents_paid(ids, organizations, since.date()):
        learning_micros, serving_micros = sums[agent_id].get(month, (0, 0))
        answers = purpose == SERVING
        sums[agent_id][month] = (
            learning_micros + (0 if answers else paid_micros),
            serving_micros + (paid_micros if answers else 0),
        )
    return {agent_id: {month: both for month, both in months.items() if sum(both)} for agent_id, months in sums.items()}


def _answered(ids: list[UUID], since: datetime) -> Mapping[UUID, dict[tuple[date, UUID], int]]:
    """By agent, the number of queries by month and release."""
    rows = ProductionTrace.objects.filter(agent_id__in=ids, created_at__gte=since).exclude(release_id=None)
    grouped = rows.exclude(arm=ArmName.SHADOW).order_by().annotate(month=TruncMonth("created_at", tzinfo=UTC))
    found: dict[UUID, dict[tuple[date, UUID], int]] = defaultdict(dict)
    for row in grouped.values("agent_id", "month", "release_id").annotate(n=Count("pk")):
        found[row["agent_id"]][row["month"].date(), row["release_id"]] = row["n"]
    return found


def _measured(ids: set[UUID]) -> dict[UUID, tuple[int, Amount | None, Amount | None]]:
    """By release its number, dollars that it saves per query, and right answers that it gains per query."""
    savings: dict[UUID, Amount] = {}
    done = Deployment.objects.filter(release_id__in=ids, state=DeploymentState.DONE).order_by("created_at")
    for release_id, monitor in done.values_list("release_id", "monitor"):
        if (saved := _saved(monitor)) is not None:
            savings[release_id] = saved
    releases = Release.objects.filter(pk__in=ids).select_related("checkpoint").defer("bundle", "checkpoint__data")
    return {release.pk: (release.number, savings.get(release.pk), _gained(release)) for release in releases}


def _saved(monitor: Mapping[str, Any]) -> Amount | None:
    """Dollars per query: the mean of the release before less its own, with the interval of their difference."""
    found = Monitor.from_json(monitor).differences.get("cost") if "evidence" in monitor else None
    if found is None or not all(math.isfinite(mean) for mean in found.means):
        return None
    new, before = found.means
    band = found.band()
    return Amount.of(before - new, -band.high, -band.low)


def _gained(release: Release) -> Amount | None:
    proof = known_of(release).get("held_out") or {}
    if proof.get("improvement") is None:
        return None
    return Amount.of(float(proof["improvement"]), proof.get("low"), proof.get("high"))
