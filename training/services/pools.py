"""The query pools of a run, deterministic: each call returns the same pools."""

from __future__ import annotations

from experiences.agents.selectors import dataset_rows
from training.data.pools import Pools, dataset_pools, environment_pools, shares
from training.models import TrainingRun


def run_pools(run: TrainingRun) -> Pools:
    """The queries of a run on their sides."""
    if run.dataset is not None:
        return dataset_pools(dataset_rows(run.dataset), run.environment_options, run.seed, **shares(run.configuration))
    return environment_pools(run.environment, run.environment_options, run.seed)
