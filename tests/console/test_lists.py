"""Lists: search, filters, order, pages by cursor, and what they say when there is nothing."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from agentcore_site.console.pages import Sort, chosen_sort, listing
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, TrajectoryRecord
from tests.console.conftest import SignIn
from tests.factories import AgentFactory
from tests.support.pages import html
from tests.support.queries import queries_of
from tests.support.rows import lived_run, queued_run
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


def titles(client: Client, address: str) -> list[str]:
    """The names of a list's rows, as they are."""
    return names_in(html(client.get(address)))


def names_in(shown: str) -> list[str]:
    return re.findall(
        r'<tr data-row>\s*(?:<td class="picker".*?</td>\s*)?<td class="lead[^"]*"><a[^>]*>([^<]+)</a>', shown
    )


def jobs(operator: Actor, agent: Agent, names: list[str]) -> list[TrainingRun]:
    """One run of an agent of its own for each name: an agent has one active job at a time."""
    made = []
    for name in names:
        own = AgentFactory(organization=agent.organization, environment_options=agent.environment_options)
        made.append(queued_run(operator, own, title=name))
    return made


def test_empty_lists_teach_the_next_step(console: Client, stella: Any, signed_in: SignIn) -> None:
    assert "Launch the first one" in html(console.get("/jobs/"))
    assert "Create the first one" in html(console.get("/agents/"))
    assert "Get started" in html(console.get("/"))
    for address in ("/trajectories/", "/evaluations/", "/checkpoints/"):
        assert "yet" in html(console.get(address))
    for address in ("/jobs/", "/agents/", "/"):
        assert 'class="button primary"' not in html(signed_in(stella).get(address))


def test_a_filter_that_hides_all_rows_says_so_and_offers_them_again(console: Client, run: TrainingRun) -> None:
    shown = html(console.get("/jobs/?status=failed"))
    assert "No job matches" in shown and "Show all jobs" in shown
    assert "No trajectory matches" in html(console.get("/trajectories/?q=no+such+query"))
    assert "No agent matches" in html(console.get("/agents/?q=nobody"))


def test_jobs_are_found_by_title_agent_and_the_end_of_their_id(console: Client, operator: Actor, agent: Agent) -> None:
    first, second = jobs(operator, agent, ["Morning run", "Evening run"])
    assert titles(console, "/jobs/?q=morning") == ["Morning run"]
    assert titles(console, f"/jobs/?q={second.agent.slug}") == ["Evening run"]
    assert titles(console, f"/jobs/?q={str(first.pk)[-6:].upper()}") == ["Morning run"]
    assert titles(console, "/jobs/?status=queued&sort=oldest") == ["Morning run", "Evening run"]
    assert titles(console, "/jobs/?status=running") == []


def test_jobs_are_ordered_by_what_was_proven(console: Client, operator: Actor, agent: Agent) -> None:
    runs = jobs(operator, agent, ["unproven", "small", "large"])
    for run, gain in zip(runs[1:], (0.05, 0.4), strict=True):
        TrainingRun.objects.filter(pk=run.pk).update(verdict={"verdict": "Better.", "improvement": gain})
    assert titles(console, "/jobs/?sort=gain") == ["large", "small", "unproven"]


def test_pages_by_cursor_show_every_row_once_while_others_arrive(
    console: Client, operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listing.__kwdefaults__, "size", 2)
    jobs(operator, agent, ["a", "b", "c", "d", "e"])
    address, seen = "/jobs/?sort=newest", []
    for page in range(3):
        shown = html(console.get(address))
        seen += names_in(shown)
        if page == 0:
            jobs(operator, agent, ["late"])  # must not push rows of page one onto page two
        link = re.search(r'rel="next" href="([^"]+)"', shown)
        address = "/jobs/" + link.group(1).replace("&amp;", "&") if link else ""
    assert seen == ["e", "d", "c", "b", "a"] and address == ""


@pytest.mark.parametrize("cursor", ["x", "W10", "WyJub3QgYSBkYXRlIiwgIm5vdCBhbiBpZCJd", "💥"])
def test_a_broken_cursor_shows_the_first_page(console: Client, run: TrainingRun, cursor: str) -> None:
    assert titles(console, f"/jobs/?cursor={cursor}") == [run.job.title]


def test_trajectories_are_filtered_and_ordered(console: Client, run: TrainingRun) -> None:
    def n(query: str) -> int:
        return len(titles(console, f"/trajectories/?{query}"))

    assert (n("outcome=success"), n("outcome=failure"), n("outcome=error")) == (12, 12, 0)
    assert (n("iteration=1"), n("iteration=nonsense"), n("purpose=evaluation")) == (12, 24, 0)
    assert n("q=question+2") == 8
    assert n(f"agent={run.agent_id}") == 24 and n("agent=nobody") == 0
    best = html(console.get("/trajectories/?sort=best"))
    assert best.index("+1.10") < best.index("−0.100")


def test_the_overview_names_what_needs_a_person(console: Client, operator: Actor, agent: Agent) -> None:
    paused, failed = jobs(operator, agent, ["Out of money", "Broken"])
    Job.objects.filter(id=paused.pk).update(status="paused", status_reason="budget_exceeded")
    Job.objects.filter(id=failed.pk).update(
        status="failed", status_reason="error", error="ValueError: no", finished_at=paused.job.created_at
    )
    shown = html(console.get("/"))
    assert "2 jobs need you" in shown
    assert "The budget is used up" in shown and "ValueError: no" in shown


def test_agents_are_ordered_by_their_last_proven_gain(console: Client, operator: Actor, agent: Agent) -> None:
    small, large = jobs(operator, agent, ["small", "large"])
    for run, gain in ((small, 0.02), (large, 0.3)):
        verdict = {"verdict": "Better.", "improvement": gain, "low": 0.01, "high": 0.5}
        TrainingRun.objects.filter(pk=run.pk).update(verdict=verdict)
    shown = html(console.get("/"))
    section = shown[shown.index("Agents by last proven gain") :]
    assert section.index("+30.0 points") < section.index("+2.0 points")


@pytest.mark.parametrize(
    "unmeasured", [{"verdict": "Nothing was changed."}, {"verdict": "No query.", "improvement": None}]
)
def test_a_run_that_measured_no_difference_leaves_the_earlier_proof(
    unmeasured: dict[str, Any], console: Client, operator: Actor, agent: Agent
) -> None:
    early, late = jobs(operator, agent, ["early", "late"])
    proof = {"verdict": "Better.", "improvement": 0.3, "baseline_success_rate": 0.25, "success_rate": 0.55}
    TrainingRun.objects.filter(pk=early.pk).update(verdict=proof)
    TrainingRun.objects.filter(pk=late.pk).update(verdict=unmeasured)
    overview, agents = html(console.get("/")), html(console.get("/agents/"))
    assert "+30.0 points" in overview and "Better." in overview and "25.0 % → 55.0 %" in agents
    assert "– points" not in overview + agents


def test_search_finds_agents_jobs_and_evaluations(console: Client, evaluation: Any, run: TrainingRun) -> None:
    shown = html(console.get(f"/search/?q={run.agent.slug}"))
    assert f"/jobs/{run.pk}/" in shown and f"/agents/{run.agent_id}/" in shown
    assert f"/evaluations/{evaluation.pk}/" in html(console.get(f"/search/?q={str(evaluation.pk)[-6:]}"))
    assert "No match" in html(console.get("/search/?q=zzz"))


def test_the_palette_finds_pages_and_actions_that_the_person_may_use(
    console: Client, operator: Actor, stella: Any, signed_in: SignIn
) -> None:
    made = dataset_create(
        operator, name="Capitals", rows=[{"query": "France?", "expected_outcome": {"answer": "Paris"}}]
    )
    shown = html(console.get("/search/palette/"))
    assert 'href="/launch/"' in shown and 'href="/jobs/"' in shown and f"/datasets/{made.pk}/" not in shown
    page = html(console.get("/search/palette/?q=capit"))
    assert f"/datasets/{made.pk}/" in page and 'href="/launch/"' not in page
    # What Enter opens is what was typed, where there is such a name, and not what holds it.
    for typed, first in (("jobs", "/jobs/"), ("launch", "/launch/"), ("compare", "/jobs/compare/")):
        assert (
            re.findall(r'role="option"[^>]* href="([^"]+)"', html(console.get(f"/search/palette/?q={typed}")))[0]
            == first
        )
    reader = signed_in(stella)
    assert 'href="/launch/"' not in html(reader.get("/search/palette/"))
    assert "/datasets/new/" not in html(reader.get("/search/palette/?q=dataset"))


def test_a_list_of_many_jobs_costs_as_many_queries_as_a_list_of_one(
    console: Client, operator: Actor, agent: Agent
) -> None:
    lived_run(operator, agent, iterations=1, queries=1, rollouts=2)
    few = {address: queries_of(console, address) for address in ("/jobs/", "/agents/", "/trajectories/")}
    jobs(operator, agent, ["a", "b", "c"])
    lived_run(operator, AgentFactory(organization=agent.organization, environment_options=agent.environment_options))
    assert (Job.objects.count(), TrajectoryRecord.objects.count()) == (5, 26)
    assert {address: queries_of(console, address) for address in few} == few


def test_a_row_opens_beside_the_list(console: Client, run: TrainingRun, evaluation: Any) -> None:
    row = TrajectoryRecord.objects.filter(job_id=run.pk).first()
    assert row is not None
    for address, key, words in (
        ("/jobs/", run.pk, "Open the job"),
        ("/trajectories/", row.pk, "Open the trajectory"),
        (f"/jobs/{run.pk}/?tab=trajectories", row.pk, "Its group"),
        ("/evaluations/", evaluation.pk, "Open the report"),
    ):
        assert words not in html(console.get(address))
        shown = html(console.get(f"{address}{'&' if '?' in address else '?'}panel={key}"))
        assert words in shown and f'data-panel="{key}"' in shown and "<tr data-row" in shown, address


def test_nothing_of_others_opens_beside_a_list(charlie: Any, signed_in: SignIn, run: TrainingRun) -> None:
    row = TrajectoryRecord.objects.filter(job_id=run.pk).first()
    assert row is not None
    client = signed_in(charlie)
    assert client.get(f"/jobs/?panel={run.pk}").status_code == 404
    assert client.get(f"/trajectories/?panel={row.pk}").status_code == 404
    assert client.get("/jobs/?panel=nonsense").status_code == 404


def forged(value: Any) -> str:
    """A cursor that no page gave out: a value to sort by, and a key as rows have it."""
    return "cursor=" + base64.urlsafe_b64encode(json.dumps([value, str(UUID(int=1))]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "place", ["/agents/", "/jobs/", "/trajectories/", "/evaluations/", "/checkpoints/", "/endpoints/"]
)
def test_an_invalid_query_string_is_no_server_error(console: Client, run: TrainingRun, place: str) -> None:
    for query in (
        "q=%00",
        "cursor=WzEsMl0",
        "cursor=WyJcdTAwMDAiLCJ4Il0",
        "cursor=%FF%00",
        "sort=%00&tag=a%00",
        *map(
            forged,
            ("1290-10-20T22:14:55-18:18", "0001-01-01T00:00:00+14:00", "x" * 4_000, 2**62, 1e308, True),
        ),
    ):
        assert console.get(f"{place}?{query}").status_code in {200, 400}, query


def test_a_form_with_a_null_byte_is_refused_in_words(console: Client, run: TrainingRun) -> None:
    checkpoint = run.checkpoints.first()
    assert checkpoint is not None
    refused = console.post(f"/checkpoints/{checkpoint.pk}/tags/", {"tags": "a\x00b"})
    assert refused.status_code == 400 and "NUL" in html(refused)


# -- order by the heads of columns -------------------------------------------------------------------------------------

SORTER = re.compile(r'<th[^>]*?(?: aria-sort="(\w+)")?>\s*<a class="sorter" href="([^"]+)">\s*([^<]+?)\s*<')


def heads(client: Client, address: str) -> dict[str, tuple[str, str]]:
    """The heads that order a list, by their words: how the list is ordered by each now, and where it leads."""
    path = address.partition("?")[0]
    page = SORTER.findall(html(client.get(address)))
    return {title: (order, path + link.replace("&amp;", "&")) for order, link, title in page}


def test_the_head_of_a_column_orders_the_list_and_reverses_the_order(
    console: Client, operator: Actor, agent: Agent
) -> None:
    runs = jobs(operator, agent, ["dear one", "cheap one", "dear two"])
    for run, cost in zip(runs, (300, 100, 200), strict=True):
        TrainingRun.objects.filter(pk=run.pk).update(cost_micros=cost)
    shown = heads(console, "/jobs/?status=queued&cursor=x")
    assert shown["Started"][0] == "descending" and shown["Cost"] == ("", "/jobs/?status=queued&sort=cost")
    by_cost = shown["Cost"][1]
    assert titles(console, by_cost) == ["dear one", "dear two", "cheap one"]
    order, turned = heads(console, by_cost)["Cost"]
    assert order == "descending" and titles(console, turned) == ["cheap one", "dear two", "dear one"]
    assert heads(console, turned)["Cost"] == ("ascending", by_cost)
    assert '<option value="-cost" selected' in html(console.get(turned))
    # Two orders of one column are each other's reverse, so that an address has one name.
    assert shown["Started"][1] == "/jobs/?status=queued&sort=oldest"


@pytest.mark.parametrize(
    "address", ["/jobs/", "/trajectories/", "/evaluations/", "/checkpoints/", "/agents/", "/audit/", "/budgets/"]
)
def test_every_head_that_is_a_link_orders_its_list(signed_in: SignIn, adam: Any, evaluation: Any, address: str) -> None:
    client = signed_in(adam)
    result = heads(client, address)
    assert result
    for title, (order, link) in result.items():
        turned = heads(client, link)[title][0]
        assert turned in {"ascending", "descending"} - {order}, (title, link)


def test_a_former_key_of_an_order_is_read_in_both_directions(console: Client, run: TrainingRun) -> None:
    newest, cost = Sort("newest", "newest", "at"), Sort("cost", "highest cost", "cost_micros", former="dearest")
    for key, order in (("dearest", cost), ("-dearest", cost.reversed), ("", newest), ("-", newest), ("x", newest)):
        assert chosen_sort((newest, cost), key) == order, key
    # The page shows the order by its present key.
    former = "/trajectories/?sort=dearest"
    assert heads(console, former) == heads(console, "/trajectories/?sort=cost")
    assert '<option value="cost" selected' in html(console.get(former))


def test_a_list_of_one_order_offers_no_choice_of_orders(console: Client, operator: Actor) -> None:
    made = dataset_create(operator, name="one", rows=[{"query": "1?", "expected_outcome": {"answer": "1"}}])
    assert '<select name="sort"' not in html(console.get(f"/datasets/{made.pk}/"))
    assert '<select name="sort"' in html(console.get("/datasets/"))
