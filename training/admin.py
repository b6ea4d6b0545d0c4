"""Admin of training runs, iterations and checkpoints: what the work wrote, to be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin

from agentcore_site.identity.administration import LongTableAdmin, ReadOnlyAdmin, list_page, service_action
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.services import job_cancel, job_pause, job_resume
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from training.models import (
    Epoch,
    GraderJudgement,
    GraderSample,
    Iteration,
    JobComment,
    JobPin,
    PolicyCheckpoint,
    TrainingRun,
)
from training.presenters.epochs import outcome


def on_job(move: Callable[[Any, Job], Job]) -> Callable[[Actor, TrainingRun], Job]:
    """A move of a job as a move of the run that it carries."""
    return lambda actor, run: move(actor, run.job)


@admin.register(TrainingRun)
class TrainingRunAdmin(ReadOnlyAdmin):
    list_display = [
        "__str__",
        "agent",
        "status",
        "iteration",
        "total_iterations",
        "trajectories",
        "spent",
        "preset",
        "environment",
    ]
    list_filter = ["job__status", "preset", "environment", "organization"]
    list_select_related = ["job", "agent"]
    search_fields = ["agent__name", "agent__slug", "job__title"]
    actions = ["pause", "resume", "cancel"]
    show_full_result_count = False

    @admin.display(description="status", ordering="job__status")
    def status(self, run: TrainingRun) -> str:
        return str(run.job.get_status_display())

    @admin.display(description="spent", ordering="cost_micros")
    def spent(self, run: TrainingRun) -> str:
        return f"${dollars(run.spent_micros):.2f} of ${dollars(run.limit_micros):.2f}"

    pause = service_action("Pause the selected runs", "Asked to pause", on_job(job_pause))
    resume = service_action("Resume the selected runs", "Resumed", on_job(job_resume))
    cancel = service_action("Cancel the selected runs", "Asked to cancel", on_job(job_cancel))


list_page(Iteration, "run number trajectories rollout_ms update_ms created_at", LongTableAdmin, ordering=["-id"])


@admin.register(Epoch)
class EpochAdmin(LongTableAdmin):
    list_display = ["run", "number", "iterations", "outcome", "started_at", "updated_at"]
    ordering = ["-id"]

    @admin.display(description="gate")
    def outcome(self, epoch: Epoch) -> str:
        return "" if epoch.gate is None else outcome(epoch.gate)


list_page(
    PolicyCheckpoint,
    "label agent iteration validation_score validation_low size tags created_at",
    list_select_related=["agent", "run"],
    search_fields=["agent__name", "agent__slug", "sha256"],
    exclude=["data"],
    deferred=("data",),
)
list_page(JobComment, "run author created_at", LongTableAdmin)
list_page(JobPin, "run person created_at", LongTableAdmin)
list_page(GraderSample, "created_at scorer run population seed", list_select_related=["run__agent"])
list_page(
    GraderJudgement,
    "sample place graded right skipped judged_at",
    LongTableAdmin,
    list_select_related=["sample"],
    ordering=["-id"],
)
