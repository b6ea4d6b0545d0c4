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
from experiences.models import ModelEndpoint
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.support.browser import Watched
from tests.support.geometry import misplaced
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, model_agent
from tests.support.workers import LiveSite, eventually

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
