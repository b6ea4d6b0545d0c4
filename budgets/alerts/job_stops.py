"""Jobs that money stopped: the mail to their owner, and when they go on by themselves.

A job that a month's budget stopped goes on once that month is over or that limit was changed; one that used up its own
total waits for a person, who decides whether it is worth more.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job, JobEvent, Reason, Status
from agentcore_site.jobs.notifications import job_page
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.links import link_in_mail
from agentcore_site.lib.money import dollars
from agentcore_site.lib.money_format import money
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from budgets.alerts.pages import limit_page
from budgets.job_chain import BILL, blocking, chain_of, has_room, job_bill, tightest
from budgets.ledger.accounts import month_of
from budgets.models import BudgetLimit, Scope
from budgets.selectors import NAMES, Headroom, Spending

MONTHLY: Final = (Scope.ORGANIZATION, Scope.AGENT)
AT_ONCE: Final = 500  # jobs that one sweep looks at


def stop_notify(job: Job, payer: Job | None = None) -> None:
    """The bill of a job that a budget stopped, as an event and by mail. In the transaction of the stop.

    ``payer``: the job whose budget pays for this one, where that is another.
    """
    if job.status != Status.PAUSED or job.status_reason != Reason.BUDGET_EXCEEDED:
        return
    bill = _bill(job, payer or job)
    event_add(job, BILL, level="warning", message=bill["text"][:300], data=bill)
    owner = job.created_by
    if owner is not None and owner.is_active:
        subject = f"Paused: {job} has no budget left"
        mail_queue(job.organization, to=[owner.email], subject=subject, body=_letter(job, bill))


def jobs_resume() -> int:
    """Puts jobs back into the queue that a month's budget stopped and that have room again. Returns how many."""
    resumed = 0
    paused = Job.objects.filter(status=Status.PAUSED, status_reason=Reason.BUDGET_EXCEEDED)
    began = datetime.combine(month_of(), datetime.min.time(), UTC)
    for job in paused.order_by("updated_at")[:AT_ONCE]:
        bill = JobEvent.objects.filter(job=job, type=BILL).order_by("-seq").first()
        if bill is None or bill.data.get("stopped_by") not in MONTHLY:
            continue
        limits = BudgetLimit.objects.filter(organization_id=job.organization_id, scope__in=MONTHLY)
        if bill.at >= began and not limits.filter(at__gt=bill.at).exists():
            continue
        payer = Job.objects.filter(id=bill.data.get("paid_by")).first()
        if payer is not None and ((room := tightest(chain_of(payer))) is None or has_room(room, payer)):
            resumed += lifecycle.requeue(paused, job, "Its budget has room again.")
    return resumed


def resume_check(job: Job) -> None:
    """Raises:
    Conflict: a budget stopped the job and has no room for it yet: resuming would stop it again at once."""
    if (room := blocking(job)) is not None:
        raise Conflict(blocked(room))


def blocked(room: Headroom) -> str:
    """Why a job can't go on, as a sentence."""
    whose = NAMES[Scope(room.scope)].capitalize()
    left = f"{money(room.debt_micros)} is owed" if room.debt_micros else f"{money(room.left_micros or 0)} is left"
    limit = money(room.limit_micros or 0)
    return f"{whose} budget has no room for the next call: {left} of {limit}. Raise it, then resume."


def _bill(job: Job, payer: Job) -> dict[str, Any]:
    room = tightest(chain_of(payer))
    by_purpose, by_model = job_bill(payer)
    spent_micros = sum(one.cost_micros for one in by_purpose)
    whose = NAMES[Scope(room.scope)] if room is not None else "a"
    parts = ", ".join(f"{one.key or 'other'} {money(one.cost_micros)}" for one in by_purpose)
    text = f"Stopped by {whose} budget. Spent {money(spent_micros)}" + (f": {parts}." if parts else ".")
    return {
        "text": text,
        "stopped_by": room.scope if room is not None else "",
        "paid_by": str(payer.id),
        "budget_id": room.budget.pk if room is not None and room.budget is not None else None,
        "limit_usd": None if room is None or room.limit_micros is None else dollars(room.limit_micros),
        "left_usd": None if room is None or room.left_micros is None else dollars(room.left_micros),
        "spent_usd": dollars(spent_micros),
        "by_purpose": [_line(one) for one in by_purpose],
        "by_model": [_line(one) for one in by_model],
    }


def _line(spending: Spending) -> dict[str, Any]:
    return {
        "name": spending.key,
        "cost_usd": dollars(spending.cost_micros),
        "calls": spending.calls,
        "input_tokens": spending.input_tokens,
        "output_tokens": spending.output_tokens,
    }


def _letter(job: Job, bill: dict[str, Any]) -> str:
    """The owner's letter: its advice and its link are what the owner may do."""
    may_raise = Actor(job.created_by).may("budget.edit", job.organization_id) and bill["budget_id"] is not None
    raising = "Raise the limit here" if may_raise else "Ask an admin to raise the limit"
    what = (
        f"It goes on by itself when the next month begins, or once that limit is raised. {raising}."
        if bill["stopped_by"] in MONTHLY
        else f"{raising}, then resume the job; or leave it as it is and use what it learned."
    )
    link = link_in_mail(limit_page(bill["budget_id"]) if may_raise else job_page(job))
    tables = "".join(
        f"\nBy {name}\n" + "".join(_row(one) for one in bill[f"by_{name}"]) for name in ("purpose", "model")
    )
    return (
        f"The job “{job}” is paused: a budget has no room for its next call.\n{bill['text']}\n\n"
        f"Its checkpoint is saved, and nothing that was paid for is lost. {what}\n{link}\n{tables}"
    )


def _row(one: dict[str, Any]) -> str:
    name = one["name"] or "other"
    tokens = one["input_tokens"] + one["output_tokens"]
    return f"  {name:<24} ${one['cost_usd']:>12,.6f}  {one['calls']:>8,} calls  {tokens:>12,} tokens\n"
