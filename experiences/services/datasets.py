"""Writes of datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.models import Dataset, DatasetRow


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
