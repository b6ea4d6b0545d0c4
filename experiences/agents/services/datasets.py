"""Writes of datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib import disk
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.models import Dataset, DatasetRow
from experiences.models.trajectories import DatasetOrigin

LONGEST_DOMAIN: Final = 60
LONGEST_NAME: Final = 120


@transaction.atomic
def dataset_create(
    actor: Actor,
    *,  # the fields of the REST request
    name: str,
    rows: Sequence[Mapping[str, Any]],
    domain: str = "",
    origin: DatasetOrigin = DatasetOrigin.SENT,
    origin_detail: str = "",
    follows: Dataset | None = None,
) -> Dataset:
    """Stores cleaned rows (see ``training.config.validation.parse_queries``). The same rows twice are one dataset; one
    that names no domain yet is given the one that comes with them, and one that was archived comes back.

    ``origin``: where the rows come from, and ``origin_detail`` the file's or agent's name. ``follows``: the dataset of
    which this is the next version; its name and domain are taken over where none is given.

    Raises:
        Forbidden, Missing: the actor may not.
        Invalid: the domain is no short text.
        Conflict: the same rows are there already, for another domain; or a version follows that one already.
        Insufficient: the disk is nearly full.
    """
    organization = current_organization(actor)
    require(actor, "dataset.edit", organization)
    disk.require_room()
    if follows is not None:
        _last_version(follows, organization)
        name, domain = name or follows.name, domain or follows.domain
    domain = _clean_domain(domain)
    found = dataset_of_rows(organization, rows)
    if found is not None:
        if follows is not None:
            message = f"These rows are there already, as {found.name}, version {found.version}."
            raise Conflict(message, fields={"file": message})
        return _joined(actor, dataset_restore(actor, found), domain)
    dataset = Dataset.objects.create(
        organization=organization,
        name=(name.strip() or "dataset")[:LONGEST_NAME],
        domain=domain,
        sha256=_digest(rows),
        size=len(rows),
        created_by=Actor.of(actor).user,
        version=1 if follows is None else follows.version + 1,
        follows=follows,
        origin=origin,
        origin_detail=origin_detail[:200],
    )
    DatasetRow.objects.bulk_create(_rows_of(dataset, rows), batch_size=1000)
    after = {"size": dataset.size, "sha256": dataset.sha256, "domain": domain, "version": dataset.version}
    record(actor, "dataset.created", dataset, after=after)
    return dataset


def _rows_of(dataset: Dataset, rows: Sequence[Mapping[str, Any]]) -> Iterator[DatasetRow]:
    for index, row in enumerate(rows):
        expected, metadata = row.get("expected_outcome") or {}, row.get("metadata") or {}
        yield DatasetRow(dataset=dataset, index=index, query=row["query"], expected_outcome=expected, metadata=metadata)


@transaction.atomic
def dataset_update(actor: Actor, dataset: Dataset, *, domain: str | None = None, name: str | None = None) -> Dataset:
    """Renames a dataset, or says what it is about ("": nothing special); None is left as it is. Jobs that were launched
    keep the prompt pack that they were launched with.

    Raises:
        Forbidden, Missing: the actor may not.
        Invalid: the domain or the name is no short text.
    """
    require(actor, "dataset.edit", dataset.organization_id)
    hold_row(dataset)
    given = {"domain": None if domain is None else _clean_domain(domain), "name": _clean_name(name)}
    changed = {key: value for key, value in given.items() if value is not None and value != getattr(dataset, key)}
    if changed:
        before = {key: getattr(dataset, key) for key in changed}
        for key, value in changed.items():
            setattr(dataset, key, value)
        dataset.save(update_fields=list(changed))
        record(actor, "dataset.changed", dataset, before=before, after=changed)
    return dataset


def dataset_archive(actor: Actor, dataset: Dataset) -> Dataset:
    """Takes a dataset out of lists and choices. Jobs that train on it go on, and their pages show it.

    Raises:
        Forbidden, Missing: the actor may not.
    """
    return _archived(actor, dataset, "dataset.archived", timezone.now())


def dataset_restore(actor: Actor, dataset: Dataset) -> Dataset:
    """Raises:
    Forbidden, Missing: the actor may not."""
    return _archived(actor, dataset, "dataset.restored", None)


@transaction.atomic
def _archived(actor: Actor, dataset: Dataset, action: str, moment: datetime | None) -> Dataset:
    require(actor, "dataset.edit", dataset.organization_id)
    hold_row(dataset)
    if (dataset.archived_at is None) != (moment is None):
        dataset.archived_at = moment
        dataset.save(update_fields=["archived_at"])
        record(actor, action, dataset)
    return dataset


def _last_version(dataset: Dataset, organization: Organization) -> None:
    """Raises:
    Missing: it is another organisation's. Conflict: another one follows it."""
    if dataset.organization_id != organization.id:
        raise Missing(f"There is no dataset {dataset.id}.")
    hold_row(dataset)  # of two that come at once one is first
    later = dataset.followed_by.first()
    if later is not None:
        message = f"Version {later.version} follows version {dataset.version} already. Make the next one of that."
        raise Conflict(message, fields={"file": message})


def _clean_name(text: str | None) -> str | None:
    if text is None:
        return None
    name = text.strip()
    fault = unstorable(name) or ("" if 0 < len(name) <= LONGEST_NAME else f"it needs 1 to {LONGEST_NAME} characters")
    if fault:
        message = f"The name can't be kept: {fault}."
        raise Invalid(message, fields={"name": message})
    return name


def dataset_of_rows(organization: Organization, rows: Sequence[Mapping[str, Any]]) -> Dataset | None:
    """The organisation's dataset of exactly these cleaned rows, if there is one."""
    return Dataset.objects.filter(organization=organization, sha256=_digest(rows)).first()


def _joined(actor: Actor, found: Dataset, domain: str) -> Dataset:
    if not domain or domain.lower() == found.domain.lower():
        return found
    if not found.domain:
        return dataset_update(actor, found, domain=domain)
    message = f"These queries are there already as {found.name}, for the domain {found.domain!r}. Change its domain."
    raise Conflict(message, fields={"domain": message})


def _digest(rows: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(orjson.dumps(list(rows), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _clean_domain(text: str) -> str:
    domain = text.strip()
    fault = unstorable(domain) or (
        f"it has more than {LONGEST_DOMAIN} characters" if len(domain) > LONGEST_DOMAIN else ""
    )
    if fault:
        message = f"The domain can't be kept: {fault}."
        raise Invalid(message, fields={"domain": message})
    return domain
