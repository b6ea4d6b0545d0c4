"""The playground over rows of a dataset: rows by candidates, each cell paid for once and judged."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import Budget, LedgerEntry, Reservation
from budgets.services import budget_set_limit, playground_set_limit
from evaluation.serving.models import ProductionTrace
from evaluation.serving.playground.row_scores import CellFigures, candidate_total
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset, ModelEndpoint
from tests.evaluation.serving.test_playground import agent, asked, listed, server  # noqa: F401
from tests.evaluation.serving.test_playground import posted as one_question
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.pages import html

pytestmark = pytest.mark.django_db(transaction=True)
VERDICT = '{"reason": "It is curt.", "score": 3}'
ECHOED = {"contains": "You said"}
ROWS = [
    {"query": "Where is my order?", "expected_outcome": ECHOED},
    {"query": "Which city is the capital of Germany?", "expected_outcome": {"answer": "Berlin"}},
    {"query": "May I send it back?", "expected_outcome": ECHOED},
    {"query": "How much is the postage?", "expected_outcome": ECHOED},
]
CELL = r'<td class="cell"[^>]*data-cell data-place="(\d)"\s+data-row="(\d+)" data-at="(\d+)"'
COLUMN = r'<th scope="col" data-place="(\d)" data-candidate="([^"]*)"\s+data-prompt="([^"]*)"'


@pytest.fixture
def dataset(adam: Any, agent: Agent) -> Dataset:  # noqa: F811
    return dataset_create(Actor(adam), name="orders", rows=ROWS)


def posted(client: Client, **fields: Any) -> Any:
    """The page after its form was sent."""
    [token] = re.findall(r'name="run" value="([^"]+)"', html(client.get("/playground/rows/")))
    given = {"run": token, "n": 4, "pick": "first", "seed": 0, "scorer": "auto", "max_tokens": 40, "limit_usd": "0.05"}
    return client.post("/playground/rows/", given | fields)


def cells(page: Any) -> list[dict[str, str]]:
    """The fields that each cell of the page sends, in the order of the table."""
    text = page.content.decode()
    [form] = re.findall(r"<form[^>]*data-cells.*?</form>", text, re.S)
    shared = {name: unescape(value) for name, value in re.findall(r'name="(\w+)"\s+value="([^"]*)"', form)}
    columns = {
        place: {"candidate": unescape(one), "prompt": unescape(own)} for place, one, own in re.findall(COLUMN, text)
    }
    return [
        shared | columns[place] | {"place": place, "row": row, "at": at} for place, row, at in re.findall(CELL, text)
    ]


def answered(client: Client, cell: dict[str, str]) -> dict[str, Any]:
    """The last line of a cell's answer."""
    answer = client.post("/playground/cell/", cell)
    if answer.status_code != 200:
        return {"html": html(answer), "status": answer.status_code}
    return orjson.loads(b"".join(async_to_sync(listed)(answer)).splitlines()[-1])


def test_rows_by_candidates_are_answered_judged_and_summed(
    agent: Agent,  # noqa: F811
    dataset: Dataset,
    adam: Any,
    client: Client,
    server: ModelServer,  # noqa: F811
) -> None:
    client.force_login(adam)
    endpoint = ModelEndpoint.objects.get()
    chosen = {"candidate_1": f"agent:{agent.pk}", "candidate_2": f"model:{endpoint.pk}", "prompt_2": "Be brief."}
    page = posted(client, dataset=str(dataset.pk), **chosen)
    assert page.status_code == 200 and not server.requests and "4 rows of" in html(page)
    found = cells(page)
    assert [(one["place"], one["row"]) for one in found] == [(p, r) for r in "0123" for p in "01"]
    lines = [answered(client, one) for one in found]
    assert [("Right" in line["html"], "Wrong" in line["html"]) for line in lines] == [
        (True, False), (True, False), (False, True), (False, True), *[(True, False)] * 4
    ]  # fmt: skip
    assert all("3 of 4 right" in line["total"] and line["ended"] == 4 for line in lines[-2:])
    assert "75 %, interval 30 % to 95 %" in " ".join(lines[-1]["total"].split())
    assert len(server.requests) == 8 and {one.body["messages"][-1]["content"] for one in server.requests} == {
        one["query"] for one in ROWS
    }  # fmt: skip
    assert (
        sum(one.cost_micros for one in LedgerEntry.objects.filter(kind="settle", purpose="test")) == server.owed.micros
    )
    assert ProductionTrace.objects.count() == 8 and not Reservation.objects.filter(state="held").exists()
    after = AuditEvent.objects.get(action="playground.asked").after
    assert (after["dataset"], after["rows"]) == (str(dataset.pk), 4)
    again = answered(client, found[0])
    assert again["status"] == 409 and "is not paid for twice" in again["html"] and len(server.requests) == 8


def test_an_answer_that_fails_is_named_and_not_counted(
    agent: Agent,  # noqa: F811
    dataset: Dataset,
    adam: Any,
    client: Client,
    server: ModelServer,  # noqa: F811
) -> None:
    client.force_login(adam)
    first, second = cells(posted(client, dataset=str(dataset.pk), n=2, candidate_1=f"agent:{agent.pk}"))
    server.will(act("status", code=400, error={"message": "no access for jo.doe@example.org"}))
    failed, last = answered(client, first), answered(client, second)
    assert "no access for [email]" in failed["html"] and "Nothing judged" in failed["total"]
    assert "0 of 1 right" in last["total"] and "1 without an answer, not counted" in last["total"]


def test_nothing_begins_that_could_cost_more_than_a_budget_has_left(
    agent: Agent,  # noqa: F811
    dataset: Dataset,
    adam: Any,
    client: Client,
    server: ModelServer,  # noqa: F811
) -> None:
    client.force_login(adam)
    chosen = {"dataset": str(dataset.pk), "candidate_1": f"agent:{agent.pk}"}
    budget_set_limit(Actor(adam), organization=agent.organization, limit_micros=100, agent_id=agent.pk)
    refused = posted(client, **chosen)
    assert (
        refused.status_code == 507 and "budget has $0.0001 left" in html(refused) and "data-cells" not in html(refused)
    )
    budget_set_limit(Actor(adam), organization=agent.organization, limit_micros=100_000, agent_id=agent.pk)
    assert posted(client, **chosen).status_code == 200 and not server.requests


def test_a_seed_draws_the_same_rows_and_a_row_is_there_once(agent: Agent, adam: Any, client: Client) -> None:  # noqa: F811
    client.force_login(adam)
    many = dataset_create(
        Actor(adam), name="many", rows=[{"query": f"Say {n}.", "expected_outcome": ECHOED} for n in range(60)]
    )
    chosen = {"dataset": str(many.pk), "candidate_1": f"agent:{agent.pk}", "n": 20, "pick": "random"}
    drawn = [[one["row"] for one in cells(posted(client, **chosen, seed=seed))] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) == 20
    assert posted(client, **chosen | {"n": 21}).status_code == 400


def test_rows_with_a_rubric_ask_for_a_judge_that_is_paid_too(
    agent: Agent,  # noqa: F811
    adam: Any,
    client: Client,
    server: ModelServer,  # noqa: F811
) -> None:
    client.force_login(adam)
    polite = dataset_create(
        Actor(adam), name="polite", rows=[{"query": "Where is it?", "expected_outcome": {"judge": "10: it is polite."}}]
    )
    chosen = {"dataset": str(polite.pk), "candidate_1": f"agent:{agent.pk}"}
    refused = posted(client, **chosen)
    assert refused.status_code == 400 and "judged by a language model. Choose the judge." in html(refused)
    [cell] = cells(posted(client, **chosen, judge=f"model:{ModelEndpoint.objects.get().pk}"))
    server.will(act("answer"), act("answer", message={"role": "assistant", "content": VERDICT}))
    line = answered(client, cell)
    assert "Wrong" in line["html"] and "score 0.3" in line["html"] and "It is curt." in line["html"]
    assert len(server.requests) == 2
    assert sum(one.cost_micros for one in LedgerEntry.objects.filter(kind="settle")) == server.owed.micros


def test_empty_archived_and_faulty_choices_are_said_at_their_field(
    agent: Agent,  # noqa: F811
    dataset: Dataset,
    adam: Any,
    client: Client,
) -> None:
    client.force_login(adam)
    candidate = {"candidate_1": f"agent:{agent.pk}"}
    assert "This field is required" in html(posted(client, **candidate))
    numeric = posted(client, dataset=str(dataset.pk), **candidate, scorer="numeric")
    assert numeric.status_code == 400 and "Row 1 can&#x27;t be judged" in numeric.content.decode()
    dataset.rows.all().delete()
    assert "orders has no rows" in html(posted(client, dataset=str(dataset.pk), **candidate))
    dataset_create(Actor(adam), name="others", rows=ROWS[:2])
    dataset.archived_at = agent.created_at
    dataset.save()
    assert "orders is archived" in html(posted(client, dataset=str(dataset.pk), **candidate))


def test_stakeholders_and_strangers_see_no_row(
    agent: Agent,  # noqa: F811
    dataset: Dataset,
    adam: Any,
    stella: Any,
    charlie: Any,
    client: Client,
    server: ModelServer,  # noqa: F811
) -> None:
    client.force_login(adam)
    [cell] = cells(posted(client, dataset=str(dataset.pk), n=1, candidate_1=f"agent:{agent.pk}"))
    for person, shown, status in ((stella, 403, 403), (charlie, 200, 404)):
        client.force_login(person)
        assert client.get("/playground/rows/").status_code == shown
        assert client.post("/playground/cell/", cell).status_code == status
    assert not server.requests


def test_totals_leave_out_what_has_no_verdict() -> None:
    cells = [
        CellFigures(True, True, 1.0, 10, 1.0),
        CellFigures(True, False, 0.4, 20, 3.0),
        CellFigures(True, None, None, 5, 2.0),
        CellFigures(False, None, None, 0, 9.0),
    ]
    total = candidate_total(cells)
    assert (total.asked, total.judged, total.right, total.unanswered, total.unjudged) == (4, 2, 1, 1, 1)
    assert total.rate == 0.5 and total.score == 0.7 and total.graded and total.seconds == 2.0
    assert 0.09 < total.low < 0.1 and 0.9 < total.high < 0.91 and total.cost_micros == 35
    empty = candidate_total([])
    assert empty.rate is None and empty.seconds is None and (empty.low, empty.high) == (0.0, 1.0)


def test_a_month_of_the_playground_has_a_limit_of_its_own_that_agents_calls_do_not_use(
    agent: Agent,  # noqa: F811
    dataset: Dataset,
    adam: Any,
    dan: Any,
    client: Client,
    server: ModelServer,  # noqa: F811
) -> None:
    client.force_login(adam)
    assert "?scope=playground" in html(client.get("/playground/"))
    set_limit = client.post("/budgets/new/", {"owner": "playground", "limit": "0.004", "note": "tries"})
    own = Budget.objects.get(scope="playground")
    assert set_limit.url == f"/budgets/{own.pk}/" and own.limit_micros == 4_000
    endpoint = ModelEndpoint.objects.get()
    chosen = {"dataset": str(dataset.pk), "candidate_1": f"agent:{agent.pk}", "candidate_2": f"model:{endpoint.pk}"}
    refused = posted(client, **chosen)
    assert refused.status_code == 507 and "playground" in html(refused) and not server.requests
    for cell in cells(posted(client, **chosen, n=1)):
        answered(client, cell)
    own.refresh_from_db()
    assert own.spent_micros == server.owed.micros > 0 and own.reserved_micros == 0
    assert {entry.job_budget_id for entry in LedgerEntry.objects.all()} == {own.pk} and differences() == []
    page = html(client.get("/playground/"))
    assert "of its $0.004" in page and f"/budgets/{own.pk}/" in page
    assert client.get(f"/budgets/{own.pk}/").status_code == 200 and "Playground" in html(client.get("/budgets/"))
    playground_set_limit(Actor(adam), organization=agent.organization, limit_micros=own.spent_micros)
    [card] = asked(client, one_question(client, candidate_1=f"agent:{agent.pk}"))
    assert "The playground's budget does not allow this call" in unescape(card)
    client.force_login(dan)
    assert client.post("/budgets/new/", {"owner": "playground", "limit": "9"}).status_code == 403
