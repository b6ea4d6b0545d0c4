"""Figures of evolving playbooks, of all organisations, for metrics and notices."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Sum

from agentcore_site.lib.months import month_start
from budgets.ledger.accounts import month_of
from experiences.agents.evolution_settings import evolution_settings
from experiences.models import Evolution, Playbook


@dataclass(frozen=True, slots=True)
class EvolutionFigures:
    """``name``: organisation/agent. Cost and tokens are those of this month's evolutions, in micro-dollars; the other
    counts are of the playbook's whole life."""

    agent_id: UUID
    organization_id: UUID
    name: str
    playbook: Playbook
    cost_micros: int
    tokens: int
    budget_usd: float


def evolution_figures() -> list[EvolutionFigures]:
    """Of each agent that evolves or has evolved."""
    rows = Evolution.objects.filter(job__created_at__gte=month_start(month_of())).order_by().values("agent_id")
    sums = {row["agent_id"]: row for row in rows.annotate(cost=Sum("cost_micros"), tokens_used=Sum("tokens"))}
    playbooks = Playbook.objects.filter(agent__archived_at=None).exclude(evolutions=0, agent__evolves=False)
    return [
        EvolutionFigures(
            agent_id=playbook.agent_id,
            organization_id=playbook.organization_id,
            name=f"{playbook.agent.organization.slug}/{playbook.agent.slug}",
            playbook=playbook,
            cost_micros=sums.get(playbook.agent_id, {}).get("cost") or 0,
            tokens=sums.get(playbook.agent_id, {}).get("tokens_used") or 0,
            budget_usd=evolution_settings(playbook.agent).monthly_budget_usd,
        )
        for playbook in playbooks.select_related("agent__organization").defer("context")
    ]
