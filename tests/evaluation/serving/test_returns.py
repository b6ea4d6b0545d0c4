"""Return on learning by month: the loop's arithmetic over the ledger and measured releases, with its interval."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Organization
from budgets.models import LedgerEntry
from evaluation.serving.models import Deployment, Release
from evaluation.serving.monitoring.guardrails import CanarySession, Monitor
from evaluation.serving.returns.arithmetic import Amount, ReleaseMonth, month_return
from evaluation.serving.returns.selectors import months_back, returns_of
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.pages import html


def test_a_months_return_is_its_savings_and_gains_for_each_dollar_of_cost() -> None:
    saving = ReleaseMonth(3, 1_000, Amount.of(0.002, 0.001, 0.003), Amount.of(0.1, 0.05, 0.15))
    unknown = ReleaseMonth(2, 500, None, None)
    found = month_return([saving, unknown], cost=4.0, serving=9.0)
    assert (found.queries, found.saved.value, found.gained) == (1_500, 2.0, Amount())
    assert found.multiple == Amount(0.5, 0.25, 0.75)
    worth = month_return([saving], cost=4.0, serving=9.0, value_of_answer=0.1)
    assert worth.gained.value == pytest.approx(10.0) and worth.multiple is not None
    assert worth.multiple.value == pytest.approx(3.0) and worth.multiple.low == pytest.approx(1.5)
    assert month_return([saving], cost=0.0, serving=1.0).multiple is None
    assert not month_return([unknown], cost=1.0, serving=1.0).measured


def test_a_saving_without_an_interval_has_none_in_the_return_either() -> None:
    few = ReleaseMonth(1, 10, Amount.of(0.5, float("-inf"), float("inf")), None)
    found = month_return([few], cost=1.0, serving=0.0)
    assert found.multiple == Amount(5.0, None, None)


def test_months_are_counted_backwards_over_a_year() -> None:
    first = timezone.now().date().replace(year=2026, month=2, day=1)
    assert [str(one) for one in months_back(3, first)] == ["2026-02-01", "2026-01-01", "2025-12-01"]


@pytest.mark.django_db
def test_page_rest_and_summary_show_the_return_of_an_agent(
    acme: Organization, agent: Agent, stella: Any, charlie: Any
) -> None:
    release = Release.objects.create(organization=acme, agent=agent, number=3, source="agent", bundle={})
    trace = factories.served(release)
    for _ in range(9):
        trace.pk, trace._state.adding = uuid7(), True
        trace.save()
    monitor = Monitor()
    for n in range(200):
        monitor.add(
            CanarySession(new=n % 2 == 0, share=0.5, requests=1, cost=(0.01 if n % 2 == 0 else 0.03) + n * 1e-6)
        )
    Deployment.objects.filter(release=release).update(monitor=monitor.as_json())
    common = {"organization_id": acme.pk, "agent_id": agent.pk, "at": timezone.now(), "kind": "settle", "model": "m"}
    LedgerEntry.objects.bulk_create(
        LedgerEntry(**common, purpose=purpose, spent_delta_micros=spent_micros)
        for purpose, spent_micros in (("training", 60_000), ("evaluation", 40_000), ("production", 700_000))
    )
    [(_, month)] = returns_of([agent.pk], months=2)[agent.pk].items()
    assert (month.cost, month.serving, month.queries) == (0.1, 0.7, 10)
    assert month.saved.value == pytest.approx(0.2, abs=0.01) and month.multiple is not None
    assert month.saved.low is not None and 0 < month.saved.low < month.saved.value < month.saved.high  # type: ignore[operator]
    api = Caller(stella)
    [row] = api.get(f"agents/{agent.slug}/returns", months=1).json()["months"]
    assert row["multiple"]["value"] == pytest.approx(month.multiple.value) and row["cost_usd"] == 0.1
    assert api.get(f"agents/{agent.slug}/returns", months=0).status_code == 400
    assert Caller(charlie).get(f"agents/{agent.pk}/returns").status_code == 404
    console = Client()
    console.force_login(stella)
    shown = html(console.get(f"/agents/{agent.pk}/return/?value=nonsense"))
    assert "an amount of dollars from 0" in shown and 'value="nonsense"' in shown  # it is kept, and named
    assert "$0.70" in shown and "not measured" not in shown and "times the queries" in shown
    summary = html(console.get("/summary/"))
    assert "times what learning cost, between" in summary and "0.0 % of 10 answers to users failed" in summary
    trace.pk, trace.status, trace._state.adding = uuid7(), "failed", True
    trace.save()
    assert "9.1 % of 11 answers to users failed" in html(console.get("/summary/"))
    assert "9.1 % failed" in html(console.get(f"/agents/{agent.pk}/"))
