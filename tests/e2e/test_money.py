"""In a real browser: a launch that would be refused is repaired with one click, and a stopped job asks for money."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Mail
from budgets.alerts.job_stops import stop_notify
from budgets.services import budget_set_limit
from experiences.models import Agent, Dataset
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.support.browser import Watched
from tests.support.workers import LiveSite
from tests.training.services.test_admission import CONFIG, reader, rows  # noqa: F401
from training.services.runs import run_start

pytestmark = pytest.mark.thorough(reason="a browser")


def test_a_refused_plan_is_repaired_and_a_stopped_job_asks(
    live_site: LiveSite,
    acme: Any,
    adam: Any,
    olivia: Any,
    reader: Agent,  # noqa: F811
    rows: Dataset,  # noqa: F811
    chrome: Any,  # noqa: F811
) -> None:
    adam.email = "adam@example.org"
    adam.save()
    run = run_start(olivia, agent=reader, dataset=rows, config=CONFIG)
    budget_set_limit(Actor(adam), organization=acme, job=run.job, agent_id=reader.id, limit_micros=0)
    Job.objects.filter(id=run.job_id).update(status=Status.PAUSED, status_reason="budget_exceeded", lease_until=None)
    run.job.refresh_from_db()
    stop_notify(run.job)
    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")
    page.goto(f"{live_site.url}/jobs/{run.pk}/")
    assert page.is_disabled("#resume")
    page.click("text=Ask adam")
    page.wait_for_selector("text=A mail is on its way to adam")
    assert Mail.objects.filter(subject="olivia asks for a higher budget").count() == 1
    Job.objects.filter(id=run.job_id).update(status=Status.CANCELLED)

    budget_set_limit(Actor(adam), organization=acme, limit_micros=200_000)
    page.goto(f"{live_site.url}/launch/?agent={reader.pk}&dataset={rows.pk}&source=dataset")
    page.click("text=Advanced settings")
    page.fill("[name=n_iterations]", "500")
    page.wait_for_selector("#plan button.primary[disabled]")
    page.click("#plan >> text=Set iterations to")
    page.wait_for_selector("#plan button.primary:not([disabled])")
    assert 0 < int(page.input_value("[name=n_iterations]")) < 500
    assert watched.complaints == []
