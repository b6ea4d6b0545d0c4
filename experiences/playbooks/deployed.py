"""Hook that supplies the deployed context: releases are above this app, and their app registers the reader here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from experiences.learning.lessons.library import Lesson


@dataclass(frozen=True, slots=True)
class DeployedContext:
    """Context of the release of this number for an unknown query: lessons, and items of the playbook."""

    release: int
    lessons: tuple[Lesson, ...]


FindDeployed = Callable[[UUID], DeployedContext | None]

_registered: list[FindDeployed] = []


def deployed_register(find: FindDeployed) -> None:
    """Called once, as the apps are ready. ``find`` returns None where no release serves the agent of that id."""
    _registered[:] = [find]


def deployed_context(agent_id: UUID) -> DeployedContext | None:
    """Raises:
    LookupError: no app has registered any."""
    if not _registered:
        raise LookupError("No app has said where releases are (experiences.playbooks.deployed.deployed_register).")
    return _registered[0](agent_id)
