"""Lists as CSV: the rows of the page, all of them, with its filters and order, and nothing that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import re
from datetime import date
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore_site.audit.models import AuditEvent
from agentcore_site.console import tables
from agentcore_site.tenancy.actors import Actor
from budgets.models import ModelPrice
from evaluation.models import EvaluationRun
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle import Bundle
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from experiences.playbooks.services.playbooks import playbook_create
from tests import factories
from tests.console.conftest import SignIn
from tests.support.callers import Caller, body_of
from tests.support.playbooks import delta_waiting
from tests.support.rows import lived_run
from tests.support.suites import suite_run_stored
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

FORMULA = "=HYPERLINK(1)"


def table(client: Any, address: str, **asked: str) -> list[dict[str, str]]:
    response = client.get(address, {**asked, "as": "csv"})
    assert response.status_code == 200 and response["Content-Type"].startswith("text/csv"), address
    assert re.fullmatch(r'attachment; filename="[a-z-]+\.csv"', response["Content-Disposition"])
    return list(csv.DictReader(io.StringIO(body_of(response).decode())))


@pytest.fixture
def rows(run: TrainingRun, evaluation: EvaluationRun, operator: Actor) -> dict[str, str]:
    """A row in every list, by its page."""
    owner, agent = run.organization, run.agent
    factories.ExperienceFactory(agent=agent, summary=FORMULA)
    playbook = playbook_create(operator, agent=agent, initial_sections=[{"category": "learnings", "content": "Ask."}])
    delta_waiting(playbook, content="Ask twice.")
    factories.ModelEndpointFactory(organization=owner)
    dataset_create(operator, name="places", rows=[{"query": "Where?", "expected_outcome": {}, "metadata": {}}])
    ModelPrice.objects.create(
        organization=owner, model="small", input_micros=1, output_micros=1, valid_from=date(2026, 1, 1)
    )
    factories.ToolServerFactory(organization=owner)
    factories.PromptPackFactory(organization=owner)
    bundle = Bundle(runtime="llm", system="You guide.").as_json()
    release = Release.objects.create(organization=owner, agent=agent, number=1, source="agent", bundle=bundle)
    factories.served(release)
    suite = suite_run_stored(operator, release, name="guides", query="Who?")
    factories.TrajectoryExportFactory(organization=owner, by=operator.user, filters={})
    factories.EventCredentialFactory(agent=agent)
    factories.DeadLetterFactory(organization=owner)
    return {"suite": f"/suites/{suite.version.suite_id}/", "series": f"/jobs/{run.pk}/series/"}


PAGES = (
    "/jobs/", "/evaluations/", "/experiences/", "/reviews/", "/agents/", "/checkpoints/", "/playbooks/", "/audit/",
    "/prompt-packs/", "/endpoints/", "/tool-servers/", "/exports/", "/suites/", "/releases/", "/keys/", "/traces/",
    "/budgets/", "/budgets/prices/", "/people/", "/events/", "/events/dead-letters/",
)  # fmt: skip


def test_every_list_is_had_as_csv_with_the_rows_that_its_page_has(
    adam: Any, signed_in: SignIn, rows: dict[str, str]
) -> None:
    client = signed_in(adam)
    factories.UserFactory(username="nobody-of-acme")
    client.post("/keys/", {"name": "ci", "scopes": ["training:view"], "days": "7"})
    for page in (*PAGES, rows["suite"], rows["series"]):
        result = table(client, page)
        if page not in ("/budgets/prices/", "/events/trainings/"):
            assert result, page
        for row in result:
            assert None not in row and None not in row.values(), (page, row)
    shown = client.get("/jobs/").content.decode()
    assert "as=csv" in shown


# Pages whose CSV has the rows of a REST list, and columns besides.
OF_REST = {
    "/jobs/": ("training-jobs", "preset"),
    "/evaluations/": ("evaluations", "agent"),
    "/experiences/": ("experiences", "agent"),
    "/reviews/": ("reviews", "agent"),
    "/agents/": ("agents", ""),
    "/datasets/": ("datasets", ""),
    "/checkpoints/": ("checkpoints", "agent"),
    "/playbooks/": ("playbooks", ""),
    "/audit/": ("audit-events", ""),
    "/prompt-packs/": ("prompt-packs", ""),
    "/endpoints/": ("model-endpoints", ""),
    "/tool-servers/": ("tool-servers", ""),
    "/exports/": ("exports", ""),
    "/suites/": ("suites", ""),
    "suite": ("suite-runs", ""),
    "/releases/": ("releases", ""),
    "/keys/": ("key-spending", ""),
    "/traces/": ("traces", ""),
    "/budgets/": ("budgets", ""),
    "/budgets/prices/": ("prices", ""),
    "/people/": ("members", ""),
    "/events/": ("event-publishers", ""),
    "/events/dead-letters/": ("dead-letters", ""),
}


def test_a_row_is_that_of_rest_and_is_read_without_a_query_of_its_own(
    adam: Any, signed_in: SignIn, rows: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, rest, read = signed_in(adam), Caller(adam), tables.Table.cells

    def counted(*given: Any) -> list[Any]:
        with CaptureQueriesContext(connection) as asked:
            found = [list(cells) for cells in read(*given)]
        assert not asked.captured_queries, asked.captured_queries
        return found

    client.post("/keys/", {"name": "ci", "scopes": ["gateway:call"], "days": "7"})
    monkeypatch.setattr(tables.Table, "cells", counted)
    for page, (address, more) in OF_REST.items():
        assert_as_in_rest(table(client, rows.get(page, page))[:1], rest.get(address), more)


def assert_as_in_rest(found: list[dict[str, str]], answer: Any, more: str) -> None:
    """Each row has the names and values that REST gives this person, and then the columns ``more``."""
    assert answer.status_code == 200, answer.content
    by_id = {str(one["id"]): one for one in answer.json()["results"]}
    for row in found:
        shown = by_id[row["id"]]
        assert [*row] == [*shown, *more.split()]
        line = tables.csv_line(map(tables.cell, shown.values())).decode()
        assert [*row.values()][: len(shown)] == next(csv.reader(io.StringIO(line)))


def test_csv_shows_a_stakeholder_no_more_than_rest(stella: Any, signed_in: SignIn, rows: dict[str, str]) -> None:
    Agent.objects.update(url="https://agent.example.org/run")
    client, rest, refused = signed_in(stella), Caller(stella), set()
    for page, (address, more) in OF_REST.items():
        if client.get(rows.get(page, page), {"as": "csv"}).status_code == 403:
            refused.add(page)
        else:
            assert_as_in_rest(table(client, rows.get(page, page)), rest.get(address), more)
    assert refused == {"/endpoints/", "/tool-servers/", "/traces/", "/audit/", "/people/"}
    assert {row["url"] for row in table(client, "/agents/")} == {""}


def test_csv_has_the_filters_and_the_order_of_the_page(
    console: Any, run: TrainingRun, operator: Actor, agent: Agent
) -> None:
    other = lived_run(operator, factories.AgentFactory(organization=agent.organization, slug="other"))
    assert [one["id"] for one in table(console, "/jobs/", agent="other")] == [str(other.pk)]
    assert [one["id"] for one in table(console, "/jobs/", sort="oldest")] == [str(run.pk), str(other.pk)]
    assert table(console, "/jobs/", status="failed") == []


def test_csv_streams_all_rows_in_order_over_batches(
    console: Any, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ties are there too: many lessons with one moment."""
    monkeypatch.setattr(tables, "BATCH", 7)
    made = {str(factories.ExperienceFactory(agent=agent, summary=f"Lesson {n}.").id) for n in range(40)}
    found = [one["id"] for one in table(console, "/experiences/", sort="rollouts")]
    assert len(found) == 40 and set(found) == made


def test_a_spreadsheet_runs_nothing_of_a_table(console: Any, agent: Agent) -> None:
    factories.ExperienceFactory(agent=agent, summary=FORMULA)
    assert table(console, "/experiences/")[0]["summary"] == f"'{FORMULA}"


def test_csv_is_for_people_who_see_the_page_and_shows_their_rows_alone(
    charlie: Any, olivia: Any, signed_in: SignIn, rows: dict[str, str]
) -> None:
    stranger = signed_in(charlie)
    for page in ("/jobs/", "/experiences/", "/releases/", "/agents/"):
        assert table(stranger, page) == [], page
    assert stranger.get(rows["series"], {"as": "csv"}).status_code == 404
    for page in ("/audit/", "/people/"):
        assert signed_in(olivia).get(page, {"as": "csv"}).status_code == 403


def test_the_download_of_a_table_is_in_the_audit_log(console: Any, run: TrainingRun) -> None:
    table(console, "/jobs/", status="completed")
    event = AuditEvent.objects.get(action="table.exported")
    assert event.actor == "olivia" and event.after == {"table": "jobs", "filters": {"status": "completed"}}
