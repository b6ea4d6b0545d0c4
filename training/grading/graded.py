"""Graded sets: the rollouts of a job, with the data that they answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Missing
from agentcore_site.lib.registry import Registry
from agentcore_site.tenancy.actors import Actor
from experiences.models import TrajectoryRecord
from experiences.rollouts.options import own_options
from training.models import TrainingRun
from training.selectors.runs import runs_visible

SCORER: Final = 60  # characters of a scorer's name


@dataclass(frozen=True, slots=True)
class GradedSet:
    """``data_digest``: SHA-256 of the data; samples of one digest and scorer are counted together."""

    job_id: UUID
    run: TrainingRun
    data_digest: str

    @property
    def whose(self) -> str:
        return "job" if self.job_id == self.run.job_id else "evaluation"


GradedOf = Callable[[Actor, UUID], GradedSet | None]
graded_jobs: Final[Registry[GradedOf]] = Registry("kind of graded job", entry_point_group="agentcore.graded_jobs")


@graded_jobs.register("training")
def _of_training(actor: Actor, job_id: UUID) -> GradedSet | None:
    run = runs_visible(actor).filter(job_id=job_id).first()
    return None if run is None else GradedSet(job_id, run, data_digest(run))


def graded_set(actor: Actor, job_id: UUID) -> GradedSet:
    """Raises:
    Missing: no such job is visible to the actor, or its rollouts are not graded."""
    for _, find in graded_jobs.items():
        if (found := find(actor, job_id)) is not None:
            return found
    job_get(actor, job_id)
    raise Missing("This job has no graded rollouts.")


def data_digest(run: TrainingRun) -> str:
    """SHA-256 of a run's dataset, or of the environment and options that make its queries."""
    if run.dataset is not None:
        return run.dataset.sha256
    return digest_of([run.environment, own_options(run.environment_options)])


def digest_of(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()


def scorer_named(evidence: Mapping[str, Any], run: TrainingRun) -> str:
    """The scorer of a rollout; of environments that name none, the environment."""
    return str(evidence.get("scorer") or run.environment)[:SCORER]


def graded_digest(row: TrajectoryRecord, scorer: str) -> str:
    """SHA-256 of exactly what was graded, and how."""
    evidence = row.evidence if isinstance(row.evidence, dict) else {}
    return digest_of([row.query, evidence.get("expected"), evidence.get("answer"), scorer, row.success])
