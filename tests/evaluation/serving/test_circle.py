"""The circle, whole: users ask a released agent, what they think trains the next one, which goes out by canary; a worse
release is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.serving.loop import demo
from evaluation.serving.models import Deployment, Feedback, ProductionTrace
from tests.factories import AgentFactory
from tests.support.workers import LiveSite

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.thorough(reason="the whole circle of a demo")]


@pytest.mark.slow(reason="a server, workers and users: two jobs and two canaries")
def test_an_agent_gets_better_by_its_production_and_a_worse_release_is_taken_back(
    live_site: LiveSite, acme: Any, olivia: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "QUESTIONS", 160)
    monkeypatch.setattr(demo, "LEARNS", {**demo.LEARNS, "n_iterations": 120})
    agent = AgentFactory(organization=acme, created_by=olivia, slug="helper")
    said: list[str] = []
    result: dict[str, Any] = demo.circle(agent, live_site.url, said.append)
    assert result["promoted"] and result["rolled_back"], said
    assert result["gain_points"] > 30 and result["failed_requests"] == 0
    assert "earns less" in result["reason"] and result["requests_to_rollback"] < 60
    assert list(Deployment.objects.order_by("created_at").values_list("state", flat=True)) == [
        "done", "done", "rolled_back"
    ]  # fmt: skip
    assert ProductionTrace.objects.count() == result["traces"] <= Feedback.objects.count()
