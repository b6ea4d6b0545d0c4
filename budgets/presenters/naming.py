"""Names of budgets' owners: agents and jobs, as far as the actor may see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from budgets.models import Budget, Scope
from budgets.owners import registered_agents


@dataclass(frozen=True, slots=True)
class Named:
    """A budget with its owner's name."""

    budget: Budget
    name: str

    @property
    def used(self) -> float | None:
        """Spent and owed by limit, for a gauge; None: not limited."""
        limit_micros = self.budget.limit_micros
        if limit_micros is None:
            return None
        return (self.budget.spent_micros + self.budget.debt_micros) / limit_micros if limit_micros else 1.0


def all_agents() -> QuerySet[Any]:
    """Every organisation's."""
    return registered_agents().all()


def agents(actor: Actor) -> QuerySet[Any]:
    """The actor's agents."""
    return registered_agents().visible_to(actor)


def agent_is_of(organization_id: UUID, agent_id: UUID) -> bool:
    """Whether the organisation has such an agent, archived ones included."""
    return all_agents().filter(id=agent_id, organization_id=organization_id).exists()


def owner_name(budget: Budget) -> str:
    """The owner's name in messages. No rights are checked: its readers are the organisation's own admins."""
    known: dict[UUID, str] = {}
    if budget.scope == Scope.AGENT:
        mine = all_agents().filter(id=budget.owner_id, organization_id=budget.organization_id)
        known = dict(mine.values_list("id", "name"))
    return name_of(budget, known)


def agent_names(actor: Actor, ids: Iterable[UUID | None]) -> dict[UUID, str]:
    """Names by id; who is gone or not the actor's is called by the end of the id."""
    wanted = {one for one in ids if one is not None}
    known = dict(agents(actor).filter(id__in=wanted).values_list("id", "name")) if wanted else {}
    return {one: known.get(one, f"agent {str(one)[-6:]}") for one in wanted}


def agents_called(actor: Actor, text: str) -> list[UUID]:
    """Ids of the agents whose name or slug holds ``text``."""
    found = agents(actor).filter(Q(name__icontains=text) | Q(slug__icontains=text))
    return list(found.values_list("id", flat=True)[:500])


def agent_find(actor: Actor, ref: str) -> Any:
    """An agent by id or slug.

    Raises:
        Missing: there is none for this actor.
    """
    try:
        found = agents(actor).filter(id=UUID(ref)).first()
    except ValueError:
        found = agents(actor).filter(slug=ref).first()
    if found is None:
        raise Missing("There is no such agent.")
    return found


def jobs_of(actor: Actor, ids: Iterable[UUID | None]) -> dict[UUID, Job]:
    """Jobs by id, as far as the actor may see them."""
    wanted = {one for one in ids if one is not None}
    return {job.id: job for job in Job.objects.visible_to(actor).filter(id__in=wanted)} if wanted else {}


def named(actor: Actor, budgets: Iterable[Budget]) -> list[Named]:
    """Each budget with its owner's name; one query for all agents. ``budgets`` come with organisation and job."""
    rows = list(budgets)
    agents_by_id = agent_names(actor, [row.agent_id for row in rows if row.scope == Scope.AGENT])
    return [Named(row, name_of(row, agents_by_id)) for row in rows]


def name_of(budget: Budget, agents_by_id: dict[UUID, str]) -> str:
    if budget.scope == Scope.ORGANIZATION:
        return str(budget.organization)
    if budget.scope == Scope.AGENT:
        return agents_by_id.get(budget.owner_id, f"agent {str(budget.owner_id)[-6:]}")
    if budget.scope == Scope.PLAYGROUND:
        return "Playground"
    return str(budget.job)
