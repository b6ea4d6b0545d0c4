"""Asking those who may raise a budget: by mail, at most once an hour for a job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job, JobEvent
from agentcore_site.jobs.notifications import job_page
from agentcore_site.lib.errors import Conflict, TooMany
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import who_may
from agentcore_site.tenancy.permissions import require
from budgets.alerts.job_stops import blocked
from budgets.alerts.pages import limit_page
from budgets.job_chain import blocking

ASKED: Final = "raise_asked"  # the event's type
AGAIN_AFTER: Final = timedelta(hours=1)


def asked_at(job: Job) -> Any:
    """The time of the last request for a higher budget of this job; None without one in the last hour."""
    rows = JobEvent.objects.filter(job=job, type=ASKED, at__gt=timezone.now() - AGAIN_AFTER)
    return rows.order_by("-seq").values_list("at", flat=True).first()


@transaction.atomic
def raise_ask(actor: Actor, job: Job, *, link: Callable[[str], str]) -> list[Any]:
    """Mails those who may raise the budget that stopped ``job``, and returns them. ``link`` makes an address of the
    path of the limit's form, or of the job's page where that budget has no page yet.

    Raises:
        Missing, Forbidden: the actor may not resume the job.
        Conflict: there is room again, or none of those who may has a mail address.
        TooMany: they were asked less than an hour ago.
    """
    require(actor, "run.resume", job.organization_id)
    job = Job.objects.select_for_update(no_key=True).get(id=job.id)  # two who ask at once send one mail
    room = blocking(job)
    if room is None:
        raise Conflict("No budget holds this job up now. Resume it.")
    if (last := asked_at(job)) is not None:
        wait = last + AGAIN_AFTER - timezone.now()
        minutes = int(wait.total_seconds() // 60) + 1
        raise TooMany(f"They were asked already. Ask again in {minutes} min.", retry_after=60 * minutes)
    people = [person for person in who_may(job.organization_id, "budget.edit") if person.email]
    if not people:
        raise Conflict("None of those who may raise the budget has a mail address. Ask an admin yourself.")
    name = Actor.of(actor).name
    path = limit_page(room.budget.pk) if room.budget is not None else job_page(job)
    body = f"{name} asks you to raise a budget: the job “{job}” is paused.\n\n{blocked(room)}\n\n{link(path)}\n"
    subject = f"{name} asks for a higher budget"
    mail_queue(job.organization, to=[person.email for person in people], subject=subject, body=body)
    names = ", ".join(person.username for person in people)
    event_add(job, ASKED, message=f"{name} asked {names} for a higher budget."[:300], data={"asked": names})
    record(actor, "budget.raise_asked", job, after={"scope": room.scope, "asked": names})
    return people
