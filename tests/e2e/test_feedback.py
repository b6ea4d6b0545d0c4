"""In a real browser: thumbs beside a row, stars and a correction on its page, wide and narrow."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.feedback.sweep import sweep
from evaluation.serving.models import Feedback
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.evaluation.serving.test_feedback import answered, reloaded
from tests.factories import AgentFactory, ModelEndpointFactory
from tests.support.browser import Watched
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")

CODE = "Sum them:\n```python\nimport os\ndef total(xs):\n    return sum(x)\n```"


def test_people_rate_an_answer_on_the_page_of_that_answer(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
) -> None:
    agent: Agent = AgentFactory(
        organization=acme, created_by=olivia, name="Support clerk", slug="clerk", runtime="llm", environment="dataset",
        endpoint=ModelEndpointFactory(organization=acme),
    )  # fmt: skip
    release = release_make(Actor(olivia), agent)
    placed = {"release_id": release.pk, "arm": "new", "session": "shop-17", "cost_micros": 1200, "first_token_ms": 80.0}
    trace = answered(agent, **placed)
    coded = answered(agent, CODE, asked="How do I sum a list of prices?", **placed)
    answered(agent, "", status="failed", error="The model is away.", http_status=502)
    sweep()
    before = reloaded(trace).reward

    watched = Watched(chrome.new_page(viewport={"width": 1440, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")
    page.goto(f"{live_site.url}/traces/")
    row = page.locator("tr[data-row]", has_text="4711").last
    row.locator("[aria-label='Thumbs up']").click()
    row.locator("[aria-label='Thumbs up'][aria-pressed=true]").wait_for()
    after = reloaded(trace).reward
    assert before is not None and after is not None and after > before

    page.goto(f"{live_site.url}/traces/{coded.pk}/")
    page.click("[aria-label='4 of 5 stars']")
    page.wait_for_selector("text=4 of 5 stars. ")
    page.fill("#correction", "Use math.fsum.")
    page.click("form:has(#correction) button")
    page.wait_for_selector("#feedback >> text=Use math.fsum.")
    given = Feedback.objects.filter(trace=coded).values_list("metric", "value", "text")
    assert set(given) == {("stars", 4.0, ""), ("correction", None, "Use math.fsum.")}
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("/traces/", f"/traces/{coded.pk}/"):
            page.goto(f"{live_site.url}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    assert watched.complaints == []
