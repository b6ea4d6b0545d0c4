"""Notifications of a job's transitions to people and systems, in the transaction of the transition."""

from __future__ import annotations

from typing import Final

from django.urls import get_script_prefix

from agentcore_site.jobs.kinds import agent_of
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.notices.events import event_record

# The page of a job, by its kind; other kinds use that of training. Paths and not names: reversing a name loads all
# addresses and the code behind them (pages, REST and the admin), and workers notify of each transition.
JOB_PAGES: Final = {
    "evaluation": "evaluations/",
    "evolution": "evolutions/",
    "suite": "suite-runs/",
    "survival": "survival-runs/",
    "external_training": "events/trainings/",
    "retention": "archives/jobs/",
    "encryption": "encryption/jobs/",
    "export": "exports/",
}
TRAINING_PAGE: Final = "jobs/"
# The remedy of a person for a job that can't continue.
HOW: Final[dict[str, str]] = {
    Reason.BUDGET_EXCEEDED: "Raise its budget on the page that this leads to, or ask an admin there; then resume it.",
    Reason.SPENDING_RATE: "It goes on by itself once its organisation may spend again, or raise that limit.",
    Reason.SPENDS_TOO_FAST: "Look at what it spends on, then resume it.",
    Reason.WAITING_FOR_LLM: "It goes on by itself once the model's service answers.",
    Reason.LLM_REFUSED: "Test its model endpoint, correct its address, key or options, then resume it.",
    Reason.DISK_FULL: "It goes on by itself once there is room on the disk.",
    Reason.KEY_AWAY: "It goes on by itself once the encryption key can be had.",
    Reason.STORAGE_AWAY: "It goes on by itself once the object storage answers.",
}
EVENT_TYPE_OF: Final[dict[str, str]] = {
    Status.RUNNING: "job.started",
    Status.COMPLETED: "job.completed",
    Status.FAILED: "job.failed",
    Status.PAUSED: "job.paused",
    Status.CANCELLED: "job.cancelled",
}


def job_page(job: Job) -> str:
    """The path of the page of a job of any kind."""
    return _page(JOB_PAGES.get(job.kind, TRAINING_PAGE), job)


def job_notify(job: Job) -> None:
    """Records the job's present status as an event."""
    reason = job.status_reason
    stopped = job.status in (Status.PAUSED, Status.FAILED)
    how = HOW.get(reason, "Read its error, mend that, then resume it." if reason != Reason.USER else "")
    why = f": {job.get_status_reason_display()}" if reason else ""
    states = {Status.RUNNING: "started", Status.PAUSED: "is paused", Status.CANCELLED: "was cancelled"}
    event_record(
        job.organization_id,
        EVENT_TYPE_OF[job.status],
        text=f"“{job}” {states.get(Status(job.status), job.status)}{why}.",
        data={
            "job_id": str(job.id),
            "kind": job.kind,
            "title": str(job),
            "status": job.status,
            "reason": reason,
            "error": job.error[:300],
            # It stopped before its end without a person's request.
            "degraded": job.status == Status.PAUSED and reason != Reason.USER,
            "how": how if stopped else "",
        },
        path=job_page(job),
        agent_id=agent_of(job),
        owner=job.created_by,
    )


def _page(path: str, job: Job) -> str:
    return f"{get_script_prefix()}{path}{job.id}/"
