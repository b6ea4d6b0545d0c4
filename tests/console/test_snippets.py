"""Requests to copy: what a page shows as curl, Python and JSON-RPC does what the page's button does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.test import Client

from agentcore_site.jobs.models import Job, Priority
from agentcore_site.jobs.services import job_cancel
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset, TrajectoryExport
from tests.support.callers import Caller
from tests.support.curl import sent, shown
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

ROWS = [{"query": f"What is {n} + {n}?", "expected_outcome": {"answer": str(2 * n)}} for n in range(40)]
# A title that a shell would run and a page would break on, if they were not quoted.
TITLE = 'It\'s "$(reboot)" `date` </pre><b>'


@pytest.fixture
def dataset(operator: Actor) -> Dataset:
    return dataset_create(operator, name="sums", rows=ROWS)


@pytest.fixture
def key(olivia: Any) -> str:
    return Caller(olivia).headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def typed(agent: Agent, dataset: Dataset) -> dict[str, str]:
    return {
        "agent": str(agent.pk),
        "source": "dataset",
        "dataset": str(dataset.pk),
        "preset": "recommended",
        "n_iterations": "7",
        "learning_rate": "0.005",
        "early_stopping.enabled": "false",
        "priority": str(int(Priority.HIGH)),
        "not_before": "2999-01-01T22:00",
        "title": TITLE,
    }


def said(job_id: Any) -> tuple[Any, ...]:
    """The launch's answer about its job."""
    run = TrainingRun.objects.select_related("job").get(job_id=job_id)
    job = run.job
    return run.agent_id, run.dataset_id, run.preset, run.config, job.priority, job.not_before, job.title


def cancelled(operator: Actor, job_id: Any) -> None:
    job_cancel(operator, Job.objects.get(id=job_id))


def test_the_snippet_of_the_launch_form_starts_the_same_job_as_the_form(
    typed: dict[str, str], key: str, operator: Actor, olivia: Any
) -> None:
    console = Client()
    console.force_login(olivia)
    page = console.post("/launch/plan/", typed).content.decode()
    assert key not in page and "<b>" not in page
    by_form = console.post("/launch/", typed)["Location"].split("/")[2]
    cancelled(operator, by_form)
    by_curl = sent(Client(), shown(page, "launch-call-curl"), key)
    assert by_curl.status_code == 201, by_curl.content
    cancelled(operator, by_curl.json()["job_id"])
    by_rpc = sent(Client(), shown(page, "launch-call-json-rpc"), key).json()
    wanted = said(by_form)
    assert said(by_curl.json()["job_id"]) == wanted == said(by_rpc["result"]["training_job_id"])
    assert wanted[4:] == (Priority.HIGH, datetime(2999, 1, 1, 22, tzinfo=UTC), TITLE)


def test_the_python_of_the_launch_form_sends_the_same(
    typed: dict[str, str], key: str, olivia: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    console = Client()
    console.force_login(olivia)
    page = console.post("/launch/plan/", typed).content.decode()
    posted: list[Any] = []

    def post(url: str, **given: Any) -> Any:  # the network ends here: what would have gone out is sent to the site
        posted.append((url, given))
        answer = Caller().client.post(
            url.removeprefix("http://testserver"), given["json"], "application/json", headers=given["headers"]
        )
        return SimpleNamespace(raise_for_status=lambda: None, json=answer.json, status_code=answer.status_code)

    monkeypatch.setattr(httpx, "post", post)
    monkeypatch.setenv("AGENTCORE_KEY", key)
    exec(compile(shown(page, "launch-call-python"), "snippet", "exec"), {})
    assert "queued" in capsys.readouterr().out and len(posted) == 1
    assert Job.objects.get(title=TITLE).priority == Priority.HIGH


def test_without_javascript_the_form_shows_its_present_request(agent: Agent, olivia: Any) -> None:
    console = Client()
    console.force_login(olivia)
    text = shown(console.get(f"/launch/?agent={agent.pk}&preset=recommended").content.decode(), "launch-call-curl")
    assert agent.slug in text and "$AGENTCORE_KEY" in text


def test_a_jobs_page_shows_the_commands_to_follow_and_restart_the_job(
    run: TrainingRun, key: str, operator: Actor, olivia: Any
) -> None:
    console = Client()
    console.force_login(olivia)
    page = console.get(f"/jobs/{run.pk}/").content.decode()
    assert sent(Client(), shown(page, "watch-curl"), key).json()["job_id"] == str(run.pk)
    assert sent(Client(), shown(page, "watch-json-rpc"), key).json()["result"]["job_id"] == str(run.pk)
    again = sent(Client(), shown(page, "again-curl"), key)
    assert again.status_code == 201, again.content
    other = TrainingRun.objects.get(job_id=again.json()["job_id"])
    for name in ("agent_id", "dataset_id", "preset", "config", "environment", "environment_options"):
        assert getattr(other, name) == getattr(run, name), name


def test_the_export_page_shows_its_download_and_its_job(run: TrainingRun, key: str, olivia: Any) -> None:
    olivia.memberships.update(can_export=True)
    console = Client()
    console.force_login(olivia)
    page = console.get(f"/exports/new/?job={run.pk}&success=true").content.decode()
    lines = b"".join(sent(Client(), shown(page, "stream-curl"), key)).decode().splitlines()
    assert lines and all(json.loads(line)["success"] for line in lines)
    found = sent(Client(), shown(page, "stream-json-rpc"), key).json()["result"]
    assert found["exported_count"] == len(lines)
    queued = sent(Client(), shown(page, "queue-curl"), key)
    assert queued.status_code == 201, queued.content
    assert TrajectoryExport.objects.get().filters == {"job": str(run.pk), "success": "true"}
