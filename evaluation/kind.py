"""Evaluation as the job engine sees it."""

from __future__ import annotations

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job


@kinds.register("evaluation")
class EvaluationKind:
    """Slices of evaluations."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        # Imported here: web processes know the kind, but never load the environments and what they need.
        from evaluation.execution import Slice

        return Slice(job, lease).work()

    @staticmethod
    def stopped(job: Job) -> None:
        """Nothing to add: each part is committed as it is finished."""
