"""The playground: one question to several candidates, paid for once, within a limit, and traced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from budgets.models import LedgerEntry, Reservation
from budgets.services import budget_set_limit
from evaluation.serving.models import ProductionTrace, Release
from evaluation.serving.playground.candidates import Candidate, candidate_model
from evaluation.serving.releases.services import release_make
from experiences.agents.services.endpoints import endpoint_archive
from experiences.learning.lessons.library import Lesson
from experiences.models import Agent, Dataset, DatasetRow, Experience, ModelEndpoint
from tests.evaluation.serving.test_promotion import shipped
from tests.factories import ExperienceFactory
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import PRICE, model_agent

pytestmark = pytest.mark.django_db(transaction=True)
QUESTION = "Where is my order?"
CARD = r"<form[^>]*data-ask.*?</form>"
LESSON = "When an order is late, say when it comes."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def agent(adam: Any, server: ModelServer) -> Agent:
    made = model_agent(Actor(adam), server)
    ExperienceFactory(agent=made, summary=LESSON)
    return made


def posted(client: Client, **fields: Any) -> Any:
    """The page after its form was sent."""
    page = html(client.get("/playground/"))
    [token] = re.findall(r'name="run" value="([^"]+)"', page)
    given = {"run": token, "question": QUESTION, "max_tokens": 50, "limit_usd": "0.5"} | fields
    return client.post("/playground/", given)


async def listed(answer: Any) -> list[bytes]:
    return [one async for one in answer.streaming_content]


def asked(client: Client, page: Any) -> list[str]:
    """The parts that the page's cards ask for."""
    forms = re.findall(CARD, page.content.decode(), re.S)
    found = []
    for one in forms:
        fields = re.findall(r'name="(\w+)"\s+value="([^"]*)"', one)
        answer = client.post("/playground/answer/", {name: unescape(value) for name, value in fields})
        if answer.status_code == 409:
            found.append(html(answer))
            continue
        lines = [orjson.loads(line) for line in b"".join(async_to_sync(listed)(answer)).splitlines()]
        assert "html" in lines[-1] and not any("html" in line for line in lines[:-1])
        assert (texts := "".join(line["text"] for line in lines[:-1])) == "" or texts in unescape(lines[-1]["html"])
        found.append(lines[-1]["html"])
    return found


def test_two_candidates_answer_side_by_side_and_are_paid_by_their_budgets(
    agent: Agent, adam: Any, client: Client, server: ModelServer
) -> None:
    endpoint = ModelEndpoint.objects.get()
    client.force_login(adam)
    page = posted(client, candidate_1=f"agent:{agent.pk}", candidate_2=f"model:{endpoint.pk}", prompt_2="Be brief.")
    assert page.status_code == 200 and not server.requests  # no call before a card asks for its answer
    first, second = asked(client, page)
    assert f"You said: {QUESTION}" in first and f"You said: {QUESTION}" in second
    assert "Cost" in first and "1024" not in first and "in, " in second and "stop" in second
    own, plain = (one.body for one in server.requests)
    assert LESSON in own["messages"][0]["content"] and own["max_tokens"] == 40  # the agent's own limit is lower
    assert plain["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}
    ] and plain["max_tokens"] == 50  # fmt: skip
    traces = list(ProductionTrace.objects.order_by("id"))
    assert [(one.key, one.arm, one.agent_id, one.release_id, one.asked) for one in traces] == [
        ("playground", "", None, None, QUESTION)
    ] * 2  # fmt: skip
    assert sum(one.cost_micros for one in traces) == server.owed.micros > 0
    settled = LedgerEntry.objects.filter(kind="settle", purpose="test")
    assert sum(one.cost_micros for one in settled) == server.owed.micros
    assert set(settled.values_list("agent_id", flat=True)) == {agent.pk, None}
    assert not Reservation.objects.filter(state="held").exists()
    assert AuditEvent.objects.get(action="playground.asked").after["candidates"] == [
        f"agent:{agent.pk}", f"model:{endpoint.pk}"
    ]  # fmt: skip


def test_a_page_that_is_loaded_again_pays_nothing(agent: Agent, adam: Any, client: Client, server: ModelServer) -> None:
    client.force_login(adam)
    page = posted(client, candidate_1=f"agent:{agent.pk}", candidate_2=f"agent:{agent.pk}", prompt_2="Be brief.")
    asked(client, page)
    assert len(server.requests) == 2
    again = asked(client, page)
    assert len(server.requests) == 2 and all("is not paid for twice" in one for one in again)


def test_no_answer_begins_that_could_pass_its_limit_or_a_budget(
    agent: Agent, adam: Any, client: Client, server: ModelServer
) -> None:
    client.force_login(adam)
    chosen = {"candidate_1": f"agent:{agent.pk}", "candidate_2": f"model:{ModelEndpoint.objects.get().pk}"}
    limited = asked(client, posted(client, **chosen, limit_usd="0.0001"))
    assert all("its limit is $0.0001" in one for one in limited) and not server.requests
    budget_set_limit(Actor(adam), organization=agent.organization, limit_micros=1, agent_id=agent.pk)
    over, other = asked(client, posted(client, **chosen))
    assert "budget does not allow this call" in over and "You said" in other
    assert len(server.requests) == 1


def test_words_of_a_service_that_refuses_are_shown_without_personal_data(
    agent: Agent, adam: Any, client: Client, server: ModelServer
) -> None:
    client.force_login(adam)
    server.will(act("status", code=400, error={"message": "no access for jo.doe@example.org"}))
    chosen = {"candidate_1": f"agent:{agent.pk}", "candidate_2": f"model:{ModelEndpoint.objects.get().pk}"}
    first, second = asked(client, posted(client, **chosen))
    assert "no access for [email]" in first and "You said" in second


def test_what_was_typed_stays_and_what_is_wrong_is_said(agent: Agent, adam: Any, client: Client) -> None:
    client.force_login(adam)
    endpoint = ModelEndpoint.objects.get()
    none = posted(client, candidate_2=f"agent:{agent.pk}", system="As before.")
    assert none.status_code == 400 and "This field is required" in html(none)
    assert QUESTION in html(none) and "As before." in html(none)
    assert posted(client, candidate_1=f"agent:{agent.pk}").status_code == 200, "one candidate is enough"
    Agent.objects.update(endpoint=None)
    endpoint_archive(Actor(adam), endpoint)
    gone = posted(client, candidate_1=f"model:{endpoint.pk}", candidate_2=f"agent:{agent.pk}")
    assert gone.status_code == 400 and "is archived or names no model" in html(gone)
    old = posted(client, candidate_1=f"agent:{agent.pk}", candidate_2=f"agent:{agent.pk}", run="forged")
    assert old.status_code == 400


def test_an_agent_that_may_not_be_recorded_leaves_figures_only(agent: Agent, adam: Any, client: Client) -> None:
    client.force_login(adam)
    agent.collects = False
    agent.save()
    asked(client, posted(client, candidate_1=f"agent:{agent.pk}", candidate_2=f"agent:{agent.pk}"))
    assert {(str(one.request), str(one.response)) for one in ProductionTrace.objects.all()} == {("{}", "{}")}


def test_links_fill_in_the_form_and_a_release_answers_as_it_was_made(
    agent: Agent, adam: Any, client: Client, server: ModelServer
) -> None:
    client.force_login(adam)
    release: Release = release_make(Actor(adam), agent)
    agent.system_prompt = "Something else."
    agent.save()
    page = html(client.get(f"/playground/?agent={agent.pk}&release={release.pk}"))
    assert re.search(f'value="agent:{agent.pk}" selected', page)
    assert re.search(f'value="release:{release.pk}" selected', page)
    asked(client, posted(client, candidate_1=f"agent:{agent.pk}", candidate_2=f"release:{release.pk}"))
    now, then = (one.body["messages"][0]["content"] for one in server.requests)
    assert "Something else." in now and "Something else." not in then and LESSON in then


def test_a_checkpoint_answers_with_the_lessons_that_it_ships(
    agent: Agent, adam: Any, charlie: Any, client: Client, server: ModelServer
) -> None:
    own = "Name the carrier of each parcel."
    checkpoint = shipped(Actor(adam), agent, Lesson("x0000000009", own))
    chosen = f"checkpoint:{checkpoint.pk}"
    client.force_login(adam)
    page = html(client.get(f"/playground/?checkpoint={checkpoint.pk}"))
    assert re.search(f'value="{chosen}" selected', page) and f"{agent.name}, {checkpoint.label}" in page
    [card] = asked(client, posted(client, candidate_1=chosen))
    assert f"You said: {QUESTION}" in card
    system = server.requests[-1].body["messages"][0]["content"]
    assert own in system and LESSON not in system
    assert ProductionTrace.objects.get().status == "ok"
    with pytest.raises(Missing):
        candidate_model(Actor(charlie), Candidate(chosen))


def test_an_organisation_without_a_model_learns_what_to_do(adam: Any, client: Client) -> None:
    client.force_login(adam)
    assert "/endpoints/new/" in html(client.get("/playground/"))


def test_stakeholders_and_strangers_ask_nothing(
    agent: Agent, adam: Any, stella: Any, charlie: Any, client: Client, server: ModelServer
) -> None:
    client.force_login(adam)
    page = posted(client, candidate_1=f"agent:{agent.pk}", candidate_2=f"agent:{agent.pk}")
    fields = dict(re.findall(r'name="(\w+)"\s+value="([^"]*)"', re.findall(CARD, page.content.decode(), re.S)[-1]))
    for person, shown, status in ((stella, 403, 403), (charlie, 200, 404)):
        client.force_login(person)
        assert client.get("/playground/").status_code == shown
        assert client.post("/playground/answer/", fields).status_code == status
    assert not server.requests


def test_what_a_run_shows_is_kept_as_row_lesson_and_prompt(agent: Agent, adam: Any, client: Client) -> None:
    client.force_login(adam)
    chosen = {"candidate_1": f"agent:{agent.pk}", "candidate_2": f"agent:{agent.pk}", "prompt_2": "Be brief."}
    page = html(posted(client, **chosen))
    assert all(words in page for words in ("Save as row", "Propose a lesson", f"Make it the prompt of {agent.name}"))

    first = client.post("/playground/row/", {"question": QUESTION, "answer": "On Monday.", "dataset": ""})
    one = Dataset.objects.get()
    assert first.status_code == 200 and (one.size, one.version, one.origin) == (1, 1, "playground")
    client.post("/playground/row/", {"question": "And now?", "answer": "Today.", "dataset": str(one.pk)})
    rows = DatasetRow.objects.filter(dataset__follows=one).order_by("index")
    assert [(row.query, row.expected_outcome["answer"]) for row in rows] == [
        (QUESTION, "On Monday."), ("And now?", "Today.")
    ]  # fmt: skip
    again = client.post("/playground/row/", {"question": "Third?", "answer": "No.", "dataset": str(one.pk)})
    assert again.status_code == 409  # a version follows it already

    lesson = {"agent": str(agent.pk), "lesson": "Say the day of delivery when a customer asks for an order."}
    assert client.post("/playground/lesson/", lesson).status_code == 200
    assert Experience.objects.get(summary=lesson["lesson"]).status == "quarantined"
    assert client.post("/playground/lesson/", lesson).status_code == 409
    assert client.post("/playground/lesson/", lesson | {"lesson": " "}).status_code == 400

    prompt = {"agent": str(agent.pk), "prompt": "Be brief."}
    assert client.post("/playground/prompt/", prompt).status_code == 200
    agent.refresh_from_db()
    assert agent.system_prompt == "Be brief."
    assert client.post("/playground/prompt/", prompt | {"prompt": ""}).status_code == 400
