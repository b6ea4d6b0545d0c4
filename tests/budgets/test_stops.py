"""When money stops a job: its owner is told what it spent; it goes on by itself where a month's budget stopped it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from agentcore_site.jobs.models import Job, JobEvent, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Mail
from budgets.accounts import Chain
from budgets.ledger import reserve, settle
from budgets.models import Budget
from budgets.money import MICROS
from budgets.services import budget_set_limit
from budgets.stops import jobs_resume, stop_tell
from tests.budgets.support import bill, hold, limits_set

pytestmark = pytest.mark.django_db

CENT = 10_000


def stopped(job: Job, chain: Chain) -> JobEvent:
    """The job spent 90 cents on two purposes, and then a budget refused its next call."""
    reserve(hold(chain, "a", 60 * CENT))
    settle("a", bill(60 * CENT))
    reserve(hold(chain, "b", 40 * CENT))
    settle("b", bill(30 * CENT))
    Job.objects.filter(id=job.id).update(status=Status.PAUSED, status_reason="budget_exceeded")
    job.refresh_from_db()
    stop_tell(job)
    return JobEvent.objects.get(job=job, type="bill")


def test_the_bill_says_what_stopped_it_and_what_the_money_went_for(job: Job, chain: Chain) -> None:
    event = stopped(job, chain)
    assert event.message == "Stopped by this job's budget. Spent $0.90: training $0.90."
    assert (event.data["stopped_by"], event.data["spent_usd"], event.data["limit_usd"]) == ("job", 0.9, 1.0)
    [line] = event.data["by_model"]
    assert (line["name"], line["cost_usd"], line["calls"], line["input_tokens"]) == ("small", 0.9, 2, 200)


def test_its_owner_gets_the_bill_by_mail(job: Job, chain: Chain, olivia: Any) -> None:
    olivia.email = "olivia@example.org"
    olivia.save()
    stopped(job, chain)
    assert mails_send() == 1
    [letter] = mail.outbox
    assert letter.to == ["olivia@example.org"] and letter.subject == "Paused: Router has no budget left"
    for part in ("Stopped by this job's budget", "training", "small", "0.900000", "2 calls", "resume the job"):
        assert part in letter.body


def test_an_owner_who_left_gets_no_mail(job: Job, chain: Chain, olivia: Any) -> None:
    olivia.is_active = False
    olivia.save()
    stopped(job, chain)
    assert not Mail.objects.exists()


def test_other_pauses_have_no_bill(job: Job, chain: Chain) -> None:
    for status, reason in (("paused", "user"), ("paused", "waiting_for_llm"), ("completed", "all_iterations")):
        Job.objects.filter(id=job.id).update(status=status, status_reason=reason)
        job.refresh_from_db()
        stop_tell(job)
    assert not JobEvent.objects.filter(job=job, type="bill").exists()


def test_a_job_that_used_up_its_own_total_waits_for_a_person(job: Job, chain: Chain, adam: Any) -> None:
    stopped(job, chain)
    budget_set_limit(Actor(adam), organization=job.organization_id, job=job, limit=9 * MICROS)
    assert jobs_resume() == 0
    job.refresh_from_db()
    assert job.status == Status.PAUSED


def test_a_job_that_the_month_stopped_goes_on_when_its_limit_is_raised(job: Job, chain: Chain, adam: Any) -> None:
    limits_set(chain, MICROS, None, None)
    assert stopped(job, chain).data["stopped_by"] == "organization"
    assert jobs_resume() == 0  # nothing has changed
    budget_set_limit(Actor(adam), organization=job.organization_id, limit=95 * CENT)
    assert jobs_resume() == 0  # too little for a call like the last one
    budget_set_limit(Actor(adam), organization=job.organization_id, limit=9 * MICROS)
    assert jobs_resume() == 1
    job.refresh_from_db()
    assert (job.status, job.status_reason) == (Status.QUEUED, "")
    assert job.events.last().message == "Its budget has room again."
    assert jobs_resume() == 0


def test_a_job_that_the_month_stopped_goes_on_when_the_next_one_begins(job: Job, chain: Chain) -> None:
    limits_set(chain, MICROS, None, None)
    event = stopped(job, chain)
    last_month = timezone.now().replace(day=1) - timedelta(days=2)
    JobEvent.objects.filter(pk=event.pk).update(at=last_month)
    assert jobs_resume() == 0  # the same month's row still is what it is paid from
    Budget.objects.filter(id=chain.organization_budget).update(period_start=last_month.date().replace(day=1))
    assert jobs_resume() == 1
