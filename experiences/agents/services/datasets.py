"""Writes of datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib import disk
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.models import Dataset, DatasetRow

LONGEST_DOMAIN: Final = 60


@transaction.atomic
def dataset_create(actor: Any, *, name: str, rows: Sequence[Mapping[str, Any]], domain: str = "") -> Dataset:
    """Stores cleaned rows (see ``training.config.validation.parse_queries``). The same rows twice are one dataset; one
    that names no domain yet is given the one that comes with them.

    Raises:
        Forbidden, Missing: the actor may not.
        Invalid: the domain is no short text.
        Conflict: the same rows are there already, for another domain.
        Insufficient: the disk is nearly full.
    """
    organization = current_organization(actor)
    require(actor, "dataset.edit", organization)
    disk.require_room()
    domain = _clean_domain(domain)
    found = dataset_of_rows(organization, rows)
    if found is not None:
        return _joined(actor, found, domain)
    dataset = Dataset.objects.create(
        organization=organization,
        name=(name.strip() or "dataset")[:120],
        domain=domain,
        sha256=_digest(rows),
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
    after = {"size": dataset.size, "sha256": dataset.sha256, "domain": domain}
    record(actor, "dataset.created", dataset, after=after)
    return dataset


@transaction.atomic
def dataset_update(actor: Any, dataset: Dataset, *, domain: str) -> Dataset:
    """Says what a dataset is about, or that it is about nothing special (""). Jobs that were launched keep the prompt
    pack that they were launched with.

    Raises:
        Forbidden, Missing: the actor may not.
        Invalid: the domain is no short text.
    """
    require(actor, "dataset.edit", dataset.organization_id)
    hold_row(dataset)
    before, dataset.domain = dataset.domain, _clean_domain(domain)
    if dataset.domain != before:
        dataset.save(update_fields=["domain"])
        record(actor, "dataset.changed", dataset, before={"domain": before}, after={"domain": dataset.domain})
    return dataset


def dataset_of_rows(organization: Organization, rows: Sequence[Mapping[str, Any]]) -> Dataset | None:
    """The organisation's dataset of exactly these cleaned rows, if there is one."""
    return Dataset.objects.filter(organization=organization, sha256=_digest(rows)).first()


def _joined(actor: Any, found: Dataset, domain: str) -> Dataset:
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
