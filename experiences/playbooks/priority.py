"""The order in which playbooks evolve while money is short: agents that are used most come first."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db.models import Count
from django.utils import timezone

from agentcore_site.lib.errors import Insufficient, Unavailable
from agentcore_site.lib.money_format import money
from budgets.models import Scope
from budgets.selectors import budget_chain
from experiences.models import Agent, ExecutionTrace
from experiences.playbooks.evolution.costs import evolution_worst_case_micros

SHORT: Final = 0.25  # share of the organisation's monthly budget that is left
USED: Final = timedelta(days=30)  # an agent's executions in this time are its value


def priority_check(agent: Agent, wanted_micros: int) -> None:
    """While less than a quarter of the organisation's budget is left, an agent evolves only if the rest covers an
    evolution of each agent that is used more, too.

    Raises:
        Insufficient: it does not.
    """
    rooms = budget_chain(agent.organization_id)
    room = next((one for one in rooms if one.scope == Scope.ORGANIZATION and one.limit_micros), None)
    if room is None or room.left_micros is None or room.left_micros > SHORT * (room.limit_micros or 0):
        return
    ahead = _used_more(agent)
    first_micros = sum(map(_cost_micros, ahead))
    if room.left_micros < first_micros + wanted_micros:
        names = f"{len(ahead)} agents that are" if len(ahead) != 1 else "1 agent that is"
        raise Insufficient(
            f"Money is short: {money(room.left_micros)} of your organisation's {money(room.limit_micros or 0)} is left"
            f" this month, and {names} used more may evolve first ({money(first_micros)}). Raise that budget, or wait"
            " for the next month.",
            fields={"budget": f"{money(room.left_micros)} is left."},
        )


def _used_more(agent: Agent) -> list[Agent]:
    """Agents of the organisation that evolve and had more executions lately; equal ones in the order of their ids."""
    recorded = ExecutionTrace.objects.filter(
        organization_id=agent.organization_id, recorded_at__gte=timezone.now() - USED, agent__evolves=True
    ).filter(agent__archived_at=None)
    used = dict(recorded.order_by().values_list("agent_id").annotate(n=Count("pk")))
    mine = (-used.get(agent.pk, 0), str(agent.pk))
    ids = [agent_id for agent_id, n in used.items() if (-n, str(agent_id)) < mine]
    return list(Agent.objects.filter(pk__in=ids).select_related("organization", "endpoint"))


def _cost_micros(agent: Agent) -> int:
    try:
        return evolution_worst_case_micros(agent)
    except Unavailable:
        return 0
