"""The job of a training elsewhere: it follows the service's reports, and does no work itself."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models.functions import Now

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import CancelledElsewhere, Lease, MustFail
from agentcore_site.jobs.models import ENDED, Job, Reason, Status
from agentcore_site.lib.money_format import money
from budgets.meter_port import BudgetRefused
from evaluation.events.models import EventKind, OutboxEvent, TrainingRequest
from evaluation.events.spending import budget_hold, cost_book
from experiences.agents.resuming import resume_check

POLL_INTERVAL: Final = timedelta(minutes=1)  # a report wakes the job sooner
HANDED_OVER: Final = "handed_over"  # the type of the event
REASONS: Final = {"CONVERGENCE": Reason.DIVERGED}


@kinds.register("external_training")
class ExternalTrainingKind:
    """Applies the latest report, then waits for the next."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        lease.check()
        row = TrainingRequest.objects.get(job=job)
        if not job.events.filter(type=HANDED_OVER).exists():
            _hand_over(row, lease)
        report = row.report
        status = report.get("status")
        try:
            left_micros = cost_book(row, ended=status in ENDED)
        except BudgetRefused as refused:
            raise MustFail(Reason.BUDGET_EXCEEDED, str(refused)) from refused
        done = float((report.get("progress") or {}).get("percent_complete") or 0.0) / 100
        with lease.fenced(progress=min(1.0, max(0.0, done)), not_before=Now() + POLL_INTERVAL):
            last = job.events.filter(type="reported").order_by("-seq").first()
            moment = "" if row.reported_at is None else row.reported_at.isoformat()
            if report and (last is None or last.data.get("reported_at") != moment):
                event_add(job, "reported", message=_words(report), data=_figures(report) | {"reported_at": moment})
        if status == Status.COMPLETED:
            return Progressed(finished=True)
        if status == Status.CANCELLED:
            raise CancelledElsewhere
        if status == Status.FAILED:
            error = report.get("error") or {}
            reason = REASONS.get(error.get("code", ""), Reason.ERROR)
            raise MustFail(reason, f"{error.get('code') or 'It failed'}: {error.get('message') or 'no reason given'}")
        if left_micros <= 0:
            cost = money(row.cost_micros)
            raise MustFail(Reason.BUDGET_EXCEEDED, f"It has cost {cost}, which is all that its budget allows.")
        return Progressed(finished=False)

    @staticmethod
    def stopped(job: Job) -> None:
        """Releases the remaining hold, and notifies the service that its work is no longer wanted, unless the service
        ended it."""
        row = TrainingRequest.objects.filter(job=job).first()
        if row is None or not job.ended:
            return
        transaction.on_commit(partial(cost_book, row, ended=True))
        if row.report.get("status") in ENDED or not job.events.filter(type=HANDED_OVER).exists():
            return
        OutboxEvent.objects.create(
            message_id=uuid4(),
            organization_id=row.organization_id,
            kind=EventKind.STATUS,
            key=row.pk,
            data={"status": job.status, "reason": job.status_reason},
        )

    @staticmethod
    def resume_check(job: Job) -> None:
        """Allowed while its agent is not archived."""
        resume_check(job, ExternalTrainingKind.agent_of(job))

    @staticmethod
    def agent_of(job: Job) -> UUID | None:
        return TrainingRequest.objects.filter(job=job).values_list("agent_id", flat=True).first()


def _hand_over(row: TrainingRequest, lease: Lease) -> None:
    """Hands the request to the service once its budget is held.

    Raises:
        MustFail: the budget has no room any more. The training can be requested again.
    """
    try:
        budget_hold(row)
    except BudgetRefused as error:
        raise MustFail(Reason.BUDGET_EXCEEDED, str(error)) from error
    with lease.fenced():
        OutboxEvent.objects.create(
            message_id=uuid4(), organization_id=row.organization_id, kind=EventKind.REQUEST, key=row.pk
        )
        event_add(row.job, HANDED_OVER, message="The request was handed over.")


def _words(report: dict[str, Any]) -> str:
    progress = report.get("progress") or {}
    where = ""
    if "current_step" in progress:
        where = f", step {progress['current_step']:,} of {progress.get('total_steps', 0):,}"
    return f"The training service says {report['status']}{where}."


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    names = ("status", "progress", "metrics", "evaluation_results", "artifacts", "resource_usage")
    return {name: report[name] for name in names if report.get(name) is not None}
