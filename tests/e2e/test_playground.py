"""A person puts a question to candidates in a real browser: answers come as they are made, a slow one keeps none back,
and one is stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import ProductionTrace
from experiences.agents.services.datasets import dataset_create
from experiences.models import ModelEndpoint
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.support.accessibility import violations
from tests.support.browser import Watched
from tests.support.geometry import misplaced
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, model_agent
from tests.support.workers import LiveSite, eventually
from training.data.uploads import clean_rows

pytestmark = pytest.mark.thorough(reason="a browser")
QUESTION = "Where is my order?\nIt has the number 7."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


def pictured(page: Any, name: str) -> None:
    """Keeps a picture where the environment names a folder for them."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def chosen(page: Any, web: LiveSite, agent: Any) -> None:  # noqa: F811
    page.goto(f"{web.url}/playground/?agent={agent.pk}&endpoint={ModelEndpoint.objects.get().pk}")
    page.fill("[name=question]", QUESTION)


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_answers_come_side_by_side_and_one_is_stopped(
    web: LiveSite,  # noqa: F811
    chrome: Any,  # noqa: F811
    adam: Any,
    server: ModelServer,
    width: int,
    scheme: str,
) -> None:
    agent = model_agent(Actor(adam), server)
    context = chrome.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched = Watched(context.new_page())
    page = watched.page
    sign_in(page, web, "adam")
    chosen(page, web, agent)
    pictured(page, f"playground-{width}-empty")

    go = threading.Event()
    server.will(act("in_two", go=go))
    page.click("text=Ask, and pay for the answers")
    page.wait_for_selector(".answers dl")  # of the one that is not kept back
    page.wait_for_selector("[data-text]:not(:empty)")
    assert page.locator("[data-stop]").count() == 1
    assert page.input_value("[name=question]") == QUESTION
    pictured(page, f"playground-{width}-coming")
    go.set()
    page.locator(".answers dl").nth(1).wait_for()
    assert page.locator(".answers .answer", has_text="You said: Where is my order?").count() == 2
    assert not misplaced(page)
    pictured(page, f"playground-{width}")

    never = threading.Event()
    server.will(act("in_two", go=never), act("in_two", go=never))
    page.click("text=Ask, and pay for the answers")
    page.locator("[data-text]:not(:empty)").nth(1).wait_for()
    page.locator("[data-stop]").first.click()
    page.wait_for_selector("text=Stopped.")
    never.set()
    page.wait_for_selector(".answers dl")
    pictured(page, f"playground-{width}-stopped")
    eventually(lambda: ProductionTrace.objects.count() == 4, seconds=20, why="the traces of four calls")
    assert sorted(ProductionTrace.objects.values_list("status", flat=True)) == ["interrupted", "ok", "ok", "ok"]
    assert watched.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")])
def test_a_table_of_rows_by_candidates_fills_and_is_stopped(
    web: LiveSite,  # noqa: F811
    chrome: Any,  # noqa: F811
    adam: Any,
    server: ModelServer,
    width: int,
    scheme: str,
) -> None:
    actor = Actor(adam)
    agent = model_agent(actor, server)
    echoed, long = {"contains": "You said"}, "A long question. " * 60
    asked = [
        ("Where is my order?", echoed),
        ("Which city?", {"answer": "Berlin"}),
        (long, echoed),
        ("And now?", echoed),
    ]
    rows = [{"query": query, "expected_outcome": expected} for query, expected in asked]
    dataset = dataset_create(actor, name="orders", rows=clean_rows(rows))
    context = chrome.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched = Watched(context.new_page())
    page = watched.page
    sign_in(page, web, "adam")
    page.goto(f"{web.url}/playground/rows/?agent={agent.pk}&endpoint={ModelEndpoint.objects.get().pk}")
    page.select_option("[name=dataset]", str(dataset.pk))
    page.fill("[name=n]", "4")
    pictured(page, f"rows-{width}-{scheme}-empty")

    refusal = act("status", code=400, error={"message": "this model is not for you"})
    server.will(act("answer"), refusal)
    page.click("text=Ask all rows and pay")
    page.get_by_text("All 8 answers are there.").wait_for()
    assert page.locator(".cell .good").count() + page.locator(".cell .bad").count() >= 7
    assert page.get_by_text("this model is not for you").count() == 1
    assert page.get_by_text("1 without an answer, not counted").count() == 1
    assert page.locator("[data-total]", has_text="right").count() == 2 and page.locator("[data-stop]").is_hidden()
    pictured(page, f"rows-{width}-{scheme}")
    assert violations(page) == []
    assert not misplaced(page)

    never = threading.Event()
    server.will(*[act("in_two", go=never)] * 4)
    page.click("text=Ask all rows and pay")
    page.locator(".coming:not(:empty)").nth(3).wait_for()
    page.locator("[data-stop]").click()
    page.get_by_text("Stopped. 4 of 8 were asked.").wait_for()
    assert page.get_by_text("Not asked").count() == 4
    never.set()
    eventually(lambda: ProductionTrace.objects.count() == 12, seconds=20, why="the traces of twelve calls")
    assert ProductionTrace.objects.filter(status="interrupted").count() == 4
    pictured(page, f"rows-{width}-{scheme}-stopped")
    assert watched.complaints == []
