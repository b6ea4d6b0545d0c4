"""The checks of a dataset, worked out once: its rows never change."""

from __future__ import annotations

from typing import Final

from django.core.cache import cache

from experiences.agents.selectors import dataset_rows
from experiences.models import Dataset
from training.data.checks import DatasetChecks, check_rows

KEPT_SECONDS: Final = 7 * 86_400
VERSION: Final = 1  # of the checks: findings of another version are computed again


def checks_of(dataset: Dataset) -> DatasetChecks:
    """For a dataset that the actor may see."""
    found: DatasetChecks | None = cache.get(key := f"dataset-checks-{VERSION}-{dataset.sha256}")
    if found is None:
        found = check_rows(dataset_rows(dataset))
        cache.set(key, found, KEPT_SECONDS)
    return found
