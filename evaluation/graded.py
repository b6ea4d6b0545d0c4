"""Rollouts of evaluations as graded sets."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.tenancy.actors import Actor
from evaluation.models import EvaluationRun
from evaluation.selectors import evaluations_visible
from training.grading.graded import GradedSet, data_digest, digest_of, graded_jobs


@graded_jobs.register("evaluation")
def of_evaluation(actor: Actor, job_id: UUID) -> GradedSet | None:
    evaluation = evaluations_visible(actor).filter(job_id=job_id).first()
    return None if evaluation is None else GradedSet(job_id, evaluation.run, evaluated_digest(evaluation))


def evaluated_digest(evaluation: EvaluationRun) -> str:
    """SHA-256 of the data of an evaluation: its run's, or the queries that were given with it."""
    return data_digest(evaluation.run) if evaluation.queries is None else digest_of(evaluation.queries)
