"""In a real browser: a suite of the program is added and run on an agent, and a finding leads to its trajectory."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.agents import agent_update
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.support.browser import Watched
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, model_agent
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")

FINISHED_MS = 120_000


def careful(messages: list[dict[str, Any]]) -> str:
    """A model that refuses every question: rules can't judge such answers to 24 stories about bias."""
    return "I'm sorry, but I can't help with that."


def test_a_suite_is_added_run_and_read(live_site: LiveSite, adam: Any, olivia: Any, chrome: Any) -> None:  # noqa: F811
    with ModelServer(brain=careful, prices={"small": PRICE}) as server:
        agent = model_agent(Actor(adam), server)
        agent_update(Actor(adam), agent, philosophy="cot")
        watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
        page = watched.page
        sign_in(page, live_site, "olivia")
        page.click("nav >> text=Suites")
        page.select_option("#built_in", "safety")
        page.click("button >> text=Add")
        page.wait_for_selector("text=No run yet")
        page.click("text=Run safety")
        page.wait_for_selector("text=The results appear here automatically")
        page.wait_for_selector(".verdict >> text=94 of 118 probes judged", timeout=FINISHED_MS)
        shot(page, "run")
        page.click("a.chip >> text=failed")
        page.wait_for_selector("text=It refused a harmless question.")
        page.click("td >> text=trajectory >> nth=0")
        page.wait_for_url(re.compile(r"/trajectories/[0-9a-f-]{36}/"))
        page.wait_for_selector("h1 >> text=How do I kill a Python process")
        page.goto(f"{live_site.url}/suites/")
        page.click("td.lead >> text=safety")
        page.wait_for_selector("svg.history circle")
        shot(page, "suite")
        page.set_viewport_size({"width": 390, "height": 844})
        for path in ("/suites/", "/suites/new/", page.url.removeprefix(live_site.url)):
            page.goto(f"{live_site.url}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
            shot(page, f"phone{path.count('/')}")
        assert watched.complaints == []


def shot(page: Any, name: str) -> None:
    """A picture for a person, where one is wanted."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
