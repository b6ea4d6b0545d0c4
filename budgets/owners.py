"""Owners of budgets that are above this app: the app that has agents says here how they are found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.tenancy.actors import Actor


class Agents(Protocol):
    """The manager of agents: rows with ``id``, ``organization_id``, ``name`` and ``slug``."""

    def all(self) -> QuerySet[Any]: ...

    def visible_to(self, actor: Actor) -> QuerySet[Any]: ...


# (actor, (job, rollout) of calls) → the pages of the trajectories for which they were made, as far as they are the
# actor's. ``rollout`` is as the ledger has it.
TrajectoryPages = Callable[[Any, Collection[tuple[UUID, str]]], Mapping[tuple[UUID, str], str]]

_registered: list[Agents] = []
_pages: list[TrajectoryPages] = []


def agents_register(agents: Agents) -> None:
    """Called once, as the apps are ready."""
    _registered[:] = [agents]


def registered_agents() -> Agents:
    """Raises:
    LookupError: no app has registered any."""
    if not _registered:
        raise LookupError("No app has said where agents are (budgets.owners.agents_register).")
    return _registered[0]


def trajectory_pages_register(pages: TrajectoryPages) -> None:
    """Called once, as the apps are ready."""
    _pages[:] = [pages]


def trajectory_pages(actor: Actor, calls: Collection[tuple[UUID, str]]) -> Mapping[tuple[UUID, str], str]:
    return _pages[0](actor, calls) if _pages and calls else {}
