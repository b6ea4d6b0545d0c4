"""R3 in production: how soon feedback is on its trace, how many answers a sweep scores, and what a search costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median
from typing import Any

from django.db import connection
from django.test import override_settings
from django.utils import timezone

from agentcore_site.tenancy.roles import Role
from evaluation.serving.feedback.sweep import sweep
from evaluation.serving.models import ProductionTrace
from tests import factories
from tests.performance.table import Figure, at_least, at_most
from tests.support.callers import Caller

TRACES = 2_000
LISTED = 50_000
ASKED = "Where is my order? It was sent on Monday, and the page says that it is on its way since then. " * 5


@override_settings(ALLOWED_HOSTS=["testserver"])
def suite() -> list[Figure]:
    """2,000 answers with sessions are scored from nothing; then thumbs are given and read back by REST (median of 21);
    then 50,000 answers are listed and searched."""
    member = factories.MembershipFactory(role=Role.OPERATOR)
    agent = factories.AgentFactory(organization=member.organization, created_by=member.user)
    traces = _answers(agent, TRACES, timezone.now() - timedelta(hours=1))
    began = time.perf_counter()
    scored = 0
    while found := sweep()["scored"]:
        scored += found
    rate = scored / (time.perf_counter() - began)
    assert scored == TRACES

    key, took = Caller(member.user), []
    for n in range(21):
        body = {"trace": str(traces[-1 - n].pk), "metric": "thumbs", "value": n % 2}
        took.append(_seconds(lambda: _given(key, body)))  # noqa: B023 - called at once

    _answers(agent, LISTED - TRACES, timezone.now() - timedelta(days=30))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE serving_productiontrace")
    listed = median(_seconds(lambda: key.get("traces", agent=agent.slug)) for _ in range(5))
    searched = median(_seconds(lambda: key.get("traces", search="bicycle")) for _ in range(3))
    return [
        at_most("R3", "feedback given and seen on its trace", median(took), 1, "s", digits=3),
        at_least("R3", f"answers scored, {TRACES:,} in sessions", rate, 300, "/s", digits=0),
        at_most("D10", f"a page of {LISTED:,} traces", listed, 0.5, "s", digits=3),
        at_most("D10", f"a search that finds none of {LISTED:,} traces", searched, 5, "s", digits=2),
    ]


def _answers(agent: Any, n: int, since: Any) -> list[ProductionTrace]:
    rows = [
        ProductionTrace(
            organization=agent.organization,
            agent=agent,
            session=f"session {place // 4}",
            model="small",
            status="ok",
            finish_reason="stop",
            request={"messages": [{"role": "user", "content": f"{place}: {ASKED}"}]},
            response={"role": "assistant", "content": f"{place}: it comes tomorrow. {ASKED}"},
            input_tokens=200 + place % 50,
            output_tokens=100 + place % 30,
            duration_ms=400 + place % 200,
            created_at=since + timedelta(seconds=place / 100),
        )
        for place in range(n)
    ]
    return list(ProductionTrace.objects.bulk_create(rows, batch_size=2000))


def _given(key: Caller, body: dict[str, Any]) -> None:
    given = key.post("feedback", body)
    assert given.status_code == 201, given.content
    assert key.get(f"traces/{body['trace']}").json()["feedback"][0]["value"] == body["value"]


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
