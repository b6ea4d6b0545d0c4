"""Arguments of commands: an agent by name, a file of queries, a dataset. Mistakes come back as sentences."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agentcore_site import env
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from experiences.agents.selectors import dataset_get
from experiences.models import Agent, Dataset
from training.data.uploads import read_rows


def agent_named(slug: str, organization: str | None) -> Agent:
    """Raises:
    CommandError: there is none, several organisations have one, or it has no owner."""
    agents = Agent.objects.filter(slug=slug, archived_at=None).select_related("created_by", "organization")
    if organization:
        agents = agents.filter(organization__slug=organization)
    found = list(agents[:2])
    if not found:
        raise CommandError(f"There is no agent with the slug {slug!r}. `{env.COMMAND} seed_demo` makes one to try.")
    if len(found) > 1:
        raise CommandError(f"Several organisations have an agent {slug!r}: name one with --organization.")
    if found[0].created_by is None:
        raise CommandError(f"The agent {slug!r} has no owner any more: give it one in the admin.")
    return found[0]


def rows_of_file(path: Path) -> list[dict[str, Any]]:
    """Raises:
    CommandError: the file can't be read, or a line of it is wrong."""
    try:
        return read_rows(path.name, path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}.") from error
    except DomainError as error:
        raise CommandError(f"{path}: {error.message}") from error


def dataset_named(actor: Actor, text: str) -> Dataset | None:
    """The dataset with that id; None if the text is no id.

    Raises:
        CommandError: there is no such dataset.
    """
    try:
        uuid.UUID(text)
    except ValueError:
        return None
    try:
        return dataset_get(actor, text)
    except DomainError as error:
        raise CommandError(error.message) from error
