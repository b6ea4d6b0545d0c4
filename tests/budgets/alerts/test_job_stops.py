"""A job that money stops reports its spending to its owner. A job that a month's budget stopped goes on by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, JobEvent, Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.lib.errors import Conflict, Forbidden, Missing, TooMany
from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Mail
from budgets.alerts.job_stops import jobs_resume, stop_notify
from budgets.alerts.raise_requests import raise_ask
from budgets.job_chain import job_spent_micros
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import Chain, chain_open, month_over
from budgets.models import Budget
from budgets.services import budget_set_limit
from experiences.models import Agent
from tests.budgets.support import bill, hold, limits_set
from tests.budgets.test_pages import at_desk
from tests.support.pages import html
from tests.support.rows import queued_run

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
    stop_notify(job)
    return JobEvent.objects.get(job=job, type="bill")


def test_the_bill_says_what_stopped_the_job_and_what_the_money_went_for(job: Job, chain: Chain) -> None:
    event = stopped(job, chain)
    assert event.message == "Stopped by this job's budget. Spent $0.90: training $0.90."
    assert (event.data["stopped_by"], event.data["spent_usd"], event.data["limit_usd"]) == ("job", 0.9, 1.0)
    assert job_spent_micros(job.id) == 90 * CENT and job_spent_micros(uuid4()) == 0
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


@pytest.mark.parametrize("may_raise", [True, False])
def test_the_bill_advises_and_links_what_its_reader_may_do(
    job: Job, chain: Chain, olivia: Any, adam: Any, settings: Any, may_raise: bool
) -> None:
    settings.PUBLIC_URL = "https://agentcore.example.org"
    Job.objects.filter(id=job.id).update(created_by=adam if may_raise else olivia)
    job.refresh_from_db()
    stopped(job, chain)
    [letter] = Mail.objects.all()
    page = f"/budgets/{Budget.objects.get(scope='job').pk}/#limit" if may_raise else f"/jobs/{job.pk}/"
    assert f"\nhttps://agentcore.example.org{page}\n" in letter.body
    assert ("Ask an admin" in letter.body, "Raise the limit here" in letter.body) == (not may_raise, may_raise)


def test_an_owner_who_left_gets_no_mail(job: Job, chain: Chain, olivia: Any) -> None:
    olivia.is_active = False
    olivia.save()
    stopped(job, chain)
    assert not Mail.objects.exists()


def test_other_pauses_have_no_bill(job: Job, chain: Chain) -> None:
    for status, reason in (("paused", "user"), ("paused", "waiting_for_llm"), ("completed", "all_iterations")):
        Job.objects.filter(id=job.id).update(status=status, status_reason=reason)
        job.refresh_from_db()
        stop_notify(job)
    assert not JobEvent.objects.filter(job=job, type="bill").exists()


def test_a_job_that_used_up_its_own_total_waits_for_a_person(job: Job, chain: Chain, adam: Any) -> None:
    stopped(job, chain)
    budget_set_limit(Actor(adam), organization=job.organization_id, job=job, limit_micros=9 * MICROS)
    assert jobs_resume() == 0
    job.refresh_from_db()
    assert job.status == Status.PAUSED


def test_a_job_that_the_month_stopped_goes_on_when_its_limit_is_raised(job: Job, chain: Chain, adam: Any) -> None:
    limits_set(chain, MICROS, None, None)
    assert stopped(job, chain).data["stopped_by"] == "organization"
    assert jobs_resume() == 0  # nothing has changed
    budget_set_limit(Actor(adam), organization=job.organization_id, limit_micros=95 * CENT)
    assert jobs_resume() == 0  # too little for a call like the last one
    budget_set_limit(Actor(adam), organization=job.organization_id, limit_micros=9 * MICROS)
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
    months = Budget.objects.filter(id=chain.organization_budget)
    assert not month_over(months.get())
    months.update(period_start=last_month.date().replace(day=1))
    assert month_over(months.get()) and not month_over(Budget.objects.get(job=job))
    assert jobs_resume() == 1


# -- what a person can do about it -------------------------------------------------------------------------------------


def test_resuming_a_job_without_room_is_refused_with_the_reason(job: Job, chain: Chain, olivia: Any, adam: Any) -> None:
    stopped(job, chain)
    with pytest.raises(Conflict, match=r"This job's budget has no room for the next call: \$0.10 is left of \$1.00"):
        job_resume(Actor(olivia), job)
    job.refresh_from_db()
    assert job.status == Status.PAUSED
    budget_set_limit(Actor(adam), organization=job.organization_id, job=job, limit_micros=2 * MICROS)
    assert job_resume(Actor(olivia), job).status == Status.QUEUED


def test_a_raise_that_is_too_small_for_the_next_call_is_no_room(job: Job, chain: Chain, olivia: Any, adam: Any) -> None:
    stopped(job, chain)
    budget_set_limit(Actor(adam), organization=job.organization_id, job=job, limit_micros=MICROS + 20 * CENT)
    with pytest.raises(Conflict, match="no room"):  # the last call held 40 cents
        job_resume(Actor(olivia), job)


def test_a_job_that_was_refused_its_first_call_can_go_on_once_there_is_room(job: Job, chain: Chain, adam: Any) -> None:
    limits_set(chain, None, None, 0)
    Job.objects.filter(id=job.id).update(status=Status.PAUSED, status_reason="budget_exceeded")
    job.refresh_from_db()
    stop_notify(job)
    with pytest.raises(Conflict):
        job_resume(Actor(adam), job)
    budget_set_limit(Actor(adam), organization=job.organization_id, job=job, limit_micros=MICROS)
    assert job_resume(Actor(adam), job).status == Status.QUEUED


def test_a_job_can_go_on_once_no_budget_limits_the_job(job: Job, chain: Chain, olivia: Any) -> None:
    stopped(job, chain)
    limits_set(chain, None, None, None)
    assert job_resume(Actor(olivia), job).status == Status.QUEUED


def test_people_who_may_raise_the_budget_are_asked_by_mail_once_an_hour(
    job: Job, chain: Chain, olivia: Any, adam: Any, dan: Any, charlie: Any
) -> None:
    stopped(job, chain)
    Mail.objects.all().delete()
    adam.email = "adam@example.org"
    adam.save()
    assert raise_ask(Actor(olivia), job, link="https://here{}".format) == [adam]
    [letter] = Mail.objects.all()
    assert letter.recipients == ["adam@example.org"] and letter.subject == "olivia asks for a higher budget"
    assert "$0.10 is left of $1.00" in letter.body
    assert f"https://here/budgets/{Budget.objects.get(scope='job').pk}/#limit\n" in letter.body
    assert AuditEvent.objects.filter(action="budget.raise_asked").count() == 1
    with pytest.raises(TooMany, match="Ask again in 60 min"):
        raise_ask(Actor(olivia), job, link=str)
    assert Mail.objects.count() == 1
    JobEvent.objects.filter(type="raise_asked").update(at=timezone.now() - timedelta(minutes=61))
    raise_ask(Actor(olivia), job, link=str)
    with pytest.raises(Forbidden):
        raise_ask(Actor(dan), job, link=str)
    with pytest.raises(Missing):
        raise_ask(Actor(charlie), job, link=str)


def test_a_raise_is_not_requested_with_room_left_or_without_an_address(
    job: Job, chain: Chain, olivia: Any, adam: Any
) -> None:
    with pytest.raises(Conflict, match="Resume it"):
        raise_ask(Actor(olivia), job, link=str)
    stopped(job, chain)
    adam.email = ""
    adam.save()
    with pytest.raises(Conflict, match="mail address"):
        raise_ask(Actor(olivia), job, link=str)


def test_the_page_offers_what_the_person_can_do(
    acme: Any, olivia: Any, adam: Any, agent: Agent, operator: Actor
) -> None:
    run = queued_run(operator, agent)
    limits_set(chain_open(acme.id, agent_id=agent.id, job_id=run.job_id), None, None, 0)
    Job.objects.filter(id=run.job_id).update(status=Status.PAUSED, status_reason="budget_exceeded")
    run.job.refresh_from_db()
    stop_notify(run.job)
    address, budget = f"/jobs/{run.pk}/", Budget.objects.get(job_id=run.job_id)
    hers, his = (html(at_desk(one).get(address)) for one in (olivia, adam))
    for page in (hers, his):
        assert 'id="resume" class="button" type="button" disabled' in page and "no room for the next call" in page
    assert "Ask adam" in hers and "Raise the budget" not in hers
    assert f'href="/budgets/{budget.pk}/#limit"' in his and "Ask adam" not in his
    pressed = at_desk(olivia).post(f"{address}resume/", headers={"HX-Request": "true"})
    assert pressed.status_code == 409 and "no room for the next call" in html(pressed)
    result = html(at_desk(olivia).post(f"/budgets/of-job/{run.pk}/ask/", follow=True))
    assert "A mail is on its way to adam" in result and 'id="ask"' not in result and "Budget requested" in result
    budget_set_limit(Actor(adam), organization=acme, job=run.job, agent_id=agent.id, limit_micros=MICROS)
    assert 'id="resume" class="button primary"' in html(at_desk(olivia).get(address))
