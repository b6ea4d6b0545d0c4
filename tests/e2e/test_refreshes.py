"""In a real browser: what is read again, or offered late, takes nothing from the person who works with it."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.deployments.rules import DeploymentRule, Stage
from evaluation.serving.deployments.services import deployment_start, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.releases.services import release_make
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.factories import AgentFactory, ExperienceFactory
from tests.support.browser import Watched
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, model_agent
from tests.support.rows import lived_run
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")

FOCUSED = "document.activeElement.textContent.trim()"
UNFOLD = """(one) => {
    for (let fold = one.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}"""


def test_a_live_deployment_keeps_the_focus(
    web: LiveSite,  # noqa: F811
    adam: Any,
    chrome: Any,  # noqa: F811
) -> None:
    actor = Actor(adam)
    with ModelServer(prices={"small": PRICE}) as server:
        agent = model_agent(actor, server)
        serving_change(actor, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
        deployment_start(actor, release_make(actor, agent), strategy="immediate")
        ExperienceFactory(agent=agent, summary="Say when an order comes.")
        rule = DeploymentRule((Stage(0.5, 0, 99_999),), feedback_minutes=60)
        live = deployment_start(actor, release_make(actor, agent), strategy="canary", rule=rule)
        watched = Watched(chrome.new_page())
        page = watched.page
        sign_in(page, web, "adam")
        page.goto(f"{web.url}/deployments/{live.pk}/")
        page.focus("text=Continue now")
        for _ in range(2):
            page.evaluate("document.querySelector('#deployment').dataset.before = ''")
            page.wait_for_selector("#deployment:not([data-before])")  # it was read again
            page.wait_for_timeout(200)
            assert page.evaluate(FOCUSED) == "Continue now"
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUSED) == "Roll back"
    assert watched.complaints == []


def test_a_name_that_comes_late_replaces_all_that_was_typed(
    web: LiveSite,  # noqa: F811
    operator: Actor,
    acme: Any,
    olivia: Any,
    dan: Any,
    chrome: Any,  # noqa: F811
) -> None:
    run = lived_run(operator, AgentFactory(organization=acme, created_by=olivia))
    page = chrome.new_page()
    sign_in(page, web, "olivia")
    page.goto(f"{web.url}/jobs/{run.pk}/")
    field = page.locator("[data-mentions]").last
    field.evaluate(UNFOLD)
    field.press_sequentially("Look, @d")
    page.wait_for_selector("#mentions")
    page.route("**/*q=da*", lambda route: None)  # the next lists never come
    field.press_sequentially("an")
    field.press("Enter")
    assert field.input_value() == "Look, @dan "
