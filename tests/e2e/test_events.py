"""In a real browser: a publisher is made, and what came from elsewhere is read; wide and narrow, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from evaluation.events.training import training_request
from tests import factories
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_suites import shot
from tests.support.browser import Watched
from tests.support.workers import LiveSite, eventually

pytestmark = pytest.mark.thorough(reason="a browser")

REQUEST = {
    "training_job_id": "nightly-42",
    "training_config": {"algorithm": "ppo", "base_model": "qwen2.5-32b-instruct"},
    "metadata": {"max_cost_usd": 12.5},
}


def test_publishers_dead_letters_and_requested_trainings(
    live_site: LiveSite,
    acme: Any,
    adam: Any,
    agent: Any,
    chrome: Any,  # noqa: F811
) -> None:
    for reason, detail in (("schema", "turns: [] should be non-empty"), ("unreadable", "It is not JSON.")):
        factories.DeadLetterFactory(organization=acme, reason=reason, detail=detail)
    made = training_request(Actor(adam), REQUEST)
    eventually(lambda: made.job.events.filter(type="handed_over").exists())
    training = f"/events/trainings/{made.job_id}/"
    for scheme, width in (("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)):
        watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = watched.page
        sign_in(page, live_site, "adam")
        page.goto(f"{live_site.url}/events/")
        page.click("text=New publisher")
        page.fill("[name=name]", f"researcher {scheme} {width}")
        page.click("text=Create publisher")
        page.wait_for_selector("text=The password is shown only once.")
        shown = {
            "events": "Revoke",
            "events/dead-letters": "Does not match its schema",
            "events/trainings": "nightly-42",
        }
        shown[training.strip("/")] = "of $12.50"
        for path, words in shown.items():
            if path != "events":
                page.goto(f"{live_site.url}/{path}/")
            page.wait_for_selector(f"text={words}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            shot(page, f"{path.split('/')[1] if '/' in path else path}-{len(path)}-{scheme}-{width}")
        assert watched.complaints == []
