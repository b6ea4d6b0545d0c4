"""In a real browser: a form shows the fields that its kind has a use for, and marks those that are needed; verdicts are
whole, on a telephone too."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.deployments.forms import USED_BY
from evaluation.serving.releases.services import release_make
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.factories import AgentFactory, ModelEndpointFactory
from tests.support.browser import Watched
from tests.support.rows import lived_run
from tests.support.workers import LiveSite
from training.models import TrainingRun

pytestmark = pytest.mark.thorough(reason="a browser")

VERDICT = "Better than the untrained baseline by 40.0 points (95 % interval 20.0 to 60.0): can't be seen otherwise."


@pytest.fixture
def run(transactional_db: None, operator: Any, acme: Any, olivia: Any) -> TrainingRun:
    run = lived_run(operator, AgentFactory(organization=acme, created_by=olivia))
    TrainingRun.objects.filter(pk=run.pk).update(verdict={"verdict": VERDICT, "improvement": 0.4})
    return run


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_forms_show_what_their_kind_needs_and_a_verdict_is_whole(
    web: LiveSite,  # noqa: F811
    run: TrainingRun,
    adam: Any,
    chrome: Any,  # noqa: F811
    scheme: str,
    width: int,
) -> None:
    watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
    page = watched.page
    sign_in(page, web, "adam")
    page.goto(f"{web.url}/agents/new/")
    for runtime, shown in (("action", []), ("llm", ["endpoint"]), ("http", ["endpoint", "url", "authorization"])):
        page.select_option("[name=runtime]", runtime)
        for field in ("endpoint", "url", "authorization"):
            assert page.is_visible(f"[name={field}]") is (field in shown), (runtime, field)
    mark = "getComputedStyle(document.querySelector('label[for=id_{}]'), '::after').content"
    assert "required" in page.evaluate(mark.format("name")) and page.evaluate(mark.format("slug")) == "none"
    page.goto(f"{web.url}/endpoints/new/")
    for kind, fields in (("openai", 0), ("portkey", 3)):
        page.select_option("[name=kind]", kind)
        names = ("gateway_key", "virtual_key", "gateway_config")
        assert sum(page.is_visible(f"[name={one}]") for one in names) == fields, kind
    endpoint = ModelEndpointFactory(organization=run.organization)
    frozen = AgentFactory(organization=run.organization, runtime="llm", environment="dataset", endpoint=endpoint)
    release = release_make(Actor(adam), frozen)
    page.goto(f"{web.url}/releases/{release.pk}/deploy/")
    for strategy, fields in (
        ("immediate", set()),
        ("blue_green", {"watch_minutes"}),
        ("shadow", {"shares", "budget_usd"}),
        ("canary", {"shares", "minutes", "sessions", "feedback_minutes", "margin", "patience_hours", "when_over"}),
    ):
        page.select_option("[name=strategy]", strategy)
        assert {one for one in USED_BY if page.is_visible(f"[name={one}]")} == fields, strategy
        assert page.is_visible("[name=note]")
    page.goto(f"{web.url}/jobs/")
    cell = page.locator("td[data-label=Verdict] .cut")
    assert cell.inner_text() == VERDICT and cell.evaluate("one => one.scrollHeight <= one.clientHeight + 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert watched.complaints == []
    # What was filled in wrong is shown, though another strategy was chosen since.
    page.goto(f"{web.url}/releases/{release.pk}/deploy/")
    page.select_option("[name=strategy]", "canary")
    page.fill("[name=shares]", "ten")
    page.select_option("[name=strategy]", "immediate")
    page.click("button.primary:has-text('Deploy')")
    assert page.is_visible("[name=shares]") and page.is_visible("text=Give percentages")
    assert page.is_hidden("[name=minutes]")
