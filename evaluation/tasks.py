"""The sweep that finds finished runs without their final evaluation."""

from __future__ import annotations

from celery import shared_task

from agentcore_site.jobs.models import Status
from evaluation.services import evaluation_of_finished_run
from training.models import TrainingRun


@shared_task(name="evaluation.sweep")
def sweep() -> int:
    """Starts the evaluations that the signal missed. Returns their number."""
    runs = TrainingRun.objects.filter(job__status=Status.COMPLETED, agent__collects=True, verdict={})
    missed = runs.exclude(evaluations__final=True).order_by("-job__finished_at")
    return sum(
        evaluation_of_finished_run(run_id) is not None for run_id in missed.values_list("job_id", flat=True)[:100]
    )
