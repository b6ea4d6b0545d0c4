"""Writes of agents and datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from agentcore_site.audit.services import record
from agentcore_site.errors import Conflict, Invalid
from agentcore_site.registry import UnknownName
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.environments import environments
from experiences.models import Agent, Dataset, DatasetRow
from experiences.options import own_options

EDITABLE = ("name", "slug", "description", "philosophy", "runtime", "environment", "environment_options")


@transaction.atomic
def agent_create(actor: Any, *, name: str, slug: str = "", **values: Any) -> Agent:
    """Makes an agent in the actor's organisation.

    Raises:
        Invalid: a field is wrong (``fields`` says which).
        Conflict: the slug is taken.
    """
    organization = current_organization(actor)
    require(actor, "agent.edit", organization)
    agent = Agent(
        organization=organization,
        name=name.strip(),
        slug=(slug or slugify(name)).strip(),
        created_by=Actor.of(actor).user,
        **_known(values),
    )
    _save(agent)
    record(actor, "agent.created", agent, after={"slug": agent.slug})
    return agent


@transaction.atomic
def agent_update(actor: Any, agent: Agent, **values: Any) -> Agent:
    """Changes an agent; what is not given stays.

    Raises:
        Invalid, Conflict: as for ``agent_create``.
    """
    require(actor, "agent.edit", agent.organization_id)
    before = {name: getattr(agent, name) for name in values if name in EDITABLE}
    for name, value in _known(values).items():
        setattr(agent, name, value)
    _save(agent)
    record(actor, "agent.changed", agent, before=before, after={name: getattr(agent, name) for name in before})
    return agent


@transaction.atomic
def agent_archive(actor: Any, agent: Agent) -> Agent:
    """Hides an agent; its runs and evaluations stay."""
    require(actor, "agent.edit", agent.organization_id)
    if agent.archived_at is None:
        agent.archived_at = timezone.now()
        agent.save(update_fields=["archived_at"])
        record(actor, "agent.archived", agent)
    return agent


@transaction.atomic
def dataset_create(actor: Any, *, name: str, rows: Sequence[Mapping[str, Any]]) -> Dataset:
    """Stores cleaned rows (see ``training.validation.parse_queries``). The same rows twice are one dataset.

    Raises:
        Forbidden, Missing: the actor may not.
    """
    organization = current_organization(actor)
    require(actor, "dataset.edit", organization)
    digest = hashlib.sha256(orjson.dumps(list(rows), option=orjson.OPT_SORT_KEYS)).hexdigest()
    found = Dataset.objects.filter(organization=organization, sha256=digest).first()
    if found is not None:
        return found
    dataset = Dataset.objects.create(
        organization=organization,
        name=(name.strip() or "dataset")[:120],
        sha256=digest,
        size=len(rows),
        created_by=Actor.of(actor).user,
    )
    DatasetRow.objects.bulk_create(
        (
            DatasetRow(
                dataset=dataset,
                index=index,
                query=row["query"],
                expected_outcome=row.get("expected_outcome") or {},
                metadata=row.get("metadata") or {},
            )
            for index, row in enumerate(rows)
        ),
        batch_size=1000,
    )
    record(actor, "dataset.created", dataset, after={"size": dataset.size, "sha256": digest})
    return dataset


def environment_check(name: str, options: Mapping[str, Any]) -> None:
    """Raises:
    Invalid: there is no such environment, or it refuses the options."""
    try:
        environments.get(name)(own_options(options))
    except (UnknownName, ValueError) as error:
        message = str(error)
        raise Invalid(message, fields={"environment": message}) from error


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(values) - set(EDITABLE)
    if unknown:
        message = f"Unknown field {sorted(unknown)[0]!r}. Fields: {', '.join(EDITABLE)}."
        raise Invalid(message, fields={sorted(unknown)[0]: message})
    return dict(values)


def _save(agent: Agent) -> None:
    if agent.environment != "dataset":
        environment_check(agent.environment, agent.environment_options)
    try:
        agent.full_clean(exclude=["organization", "created_by"], validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        fields = {name: " ".join(messages) for name, messages in error.message_dict.items()}
        raise Invalid(" ".join(f"{name}: {text}" for name, text in fields.items()), fields=fields) from error
    try:
        with transaction.atomic():
            agent.save()
    except IntegrityError as error:
        message = f"There is already an agent with the slug {agent.slug!r}. Choose another."
        raise Conflict(message, fields={"slug": message}) from error
