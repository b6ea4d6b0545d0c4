"""Owners of budgets that stand above this app: the app that has agents says here how they are found."""

from __future__ import annotations

from typing import Any, Protocol

from django.db.models import QuerySet


class Agents(Protocol):
    """The manager of agents: rows with ``id``, ``organization_id``, ``name`` and ``slug``."""

    def all(self) -> QuerySet[Any]: ...

    def visible_to(self, actor: Any) -> QuerySet[Any]: ...


_registered: list[Agents] = []


def agents_register(agents: Agents) -> None:
    """Called once, as the apps are ready."""
    _registered[:] = [agents]


def registered_agents() -> Agents:
    """Raises:
    LookupError: no app has registered any."""
    if not _registered:
        raise LookupError("No app has said where agents are (budgets.owners.agents_register).")
    return _registered[0]
