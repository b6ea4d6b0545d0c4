"""Budgets, ledgers, breakdowns and prices over REST: as each role, as a stranger, and with nonsense."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import Role
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import Chain, chain_open, month_of
from budgets.models import Budget, BudgetLimit, ModelPrice
from tests.budgets.support import bill, hold
from tests.support.callers import Caller, pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def spent(chain: Chain) -> Chain:
    reserve(hold(chain, "a", 700_000))
    settle("a", bill(600_001))
    reserve(hold(chain, "b", 100_000))
    return chain


@pytest.fixture
def stakeholder(stella: Any) -> Caller:
    return Caller(stella)


@pytest.fixture
def admin(adam: Any) -> Caller:
    return Caller(adam)


def test_a_budget_is_exact_to_a_micro_dollar(spent: Chain, stakeholder: Caller) -> None:
    body = stakeholder.get(f"budgets/{spent.job_budget}").json()
    assert (body["scope"], body["period"], body["period_start"]) == ("job", "total", None)
    assert (body["spent_usd"], body["spent_micros"]) == (0.600001, 600_001)
    assert (body["limit_usd"], body["reserved_micros"], body["left_micros"]) == (1.0, 100_000, 299_999)
    assert body["owner_id"] == body["job_id"] == str(spent.job_id)
    monthly = stakeholder.get(f"budgets/{spent.organization_budget}").json()
    assert monthly["period_start"] == str(month_of()) and monthly["job_id"] is None


def test_the_list_is_filtered(spent: Chain, stakeholder: Caller, agent: Any) -> None:
    def ids(**query: Any) -> set[int]:
        return {one["id"] for page in pages(stakeholder, "budgets", **query) for one in page}

    everything = set(spent.budgets)
    assert ids() == everything and ids(limit=1) == everything
    assert ids(scope="agent") == {spent.agent_budget}
    assert ids(agent=agent.slug) == ids(agent=str(agent.id)) == {spent.agent_budget, spent.job_budget}
    assert ids(job=str(spent.job_id)) == {spent.job_budget}
    assert ids(month=f"{timezone.now():%Y-%m}") == {spent.organization_budget, spent.agent_budget}
    assert ids(month="2020-01") == set()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("budgets", {"scope": "nonsense"}),
        ("budgets", {"month": "nonsense"}),
        ("budgets", {"month": "2026-13"}),
        ("budgets", {"job": "nonsense"}),
        ("budgets", {"nonsense": "1"}),
        ("budgets", {"cursor": "nonsense"}),
        ("budgets", {"scope": "\x00"}),
        ("budgets/breakdown", {"by": "nonsense"}),
        ("budgets/breakdown", {"since": "nonsense"}),
        ("budgets/breakdown", {"until": "9999-12-31"}),
        ("budgets/breakdown", {"since": "2026-02-02", "until": "2026-01-01"}),
        ("budgets/breakdown", {"nonsense": "1"}),
        ("prices", {"nonsense": "1"}),
        ("prices", {"model": "\x00"}),
        ("prices", {"history": "perhaps"}),
    ],
)
def test_an_unknown_parameter_is_refused(path: str, query: dict[str, str], stakeholder: Caller) -> None:
    response = stakeholder.get(path, **query)
    assert response.status_code == 400 and response.json()["detail"]


def test_an_unknown_agent_is_not_there(spent: Chain, stakeholder: Caller) -> None:
    assert stakeholder.get("budgets", agent="nobody").status_code == 404
    assert stakeholder.get("budgets/9999999999999999999999").status_code == 404


def test_the_ledger_comes_in_pages(spent: Chain, dan: Any, stakeholder: Caller) -> None:
    assert stakeholder.get(f"budgets/{spent.job_budget}/ledger").status_code == 403
    caller = Caller(dan)
    entries = [one for page in pages(caller, f"budgets/{spent.job_budget}/ledger", limit=1) for one in page]
    assert [one["kind"] for one in entries] == ["reserve", "settle", "reserve"]
    settled = entries[1]
    assert (settled["spent_usd"], settled["spent_micros"], settled["reserved_micros"]) == (0.600001, 600_001, -700_000)
    assert (settled["model"], settled["input_tokens"], settled["job_id"]) == ("small", 100, str(spent.job_id))
    one = caller.get(f"budgets/{spent.job_budget}/ledger", kind="settle").json()["results"]
    assert [entry["id"] for entry in one] == [settled["id"]]
    assert caller.get(f"budgets/{spent.job_budget}/ledger", model="other").json()["results"] == []
    assert caller.get(f"budgets/{spent.job_budget}/ledger", kind="nonsense").status_code == 400


@pytest.mark.parametrize(("by", "key"), [("model", "small"), ("purpose", "training"), ("job", None), ("day", None)])
def test_the_money_is_broken_down(by: str, key: str | None, spent: Chain, stakeholder: Caller) -> None:
    body = stakeholder.get("budgets/breakdown", by=by).json()
    expected = key or {"job": str(spent.job_id), "day": f"{timezone.now():%Y-%m-%d}"}[by]
    assert [(one["key"], one["cost_micros"], one["calls"]) for one in body["results"]] == [(expected, 600_001, 1)]
    assert (body["total_usd"], body["total_micros"]) == (0.600001, 600_001)
    assert stakeholder.get("budgets/breakdown", by=by, until="2020-01-01").json()["total_micros"] == 0


# -- limits ------------------------------------------------------------------------------------------------------------


def test_an_admin_sets_a_limit(spent: Chain, admin: Caller) -> None:
    changed = admin.patch(f"budgets/{spent.job_budget}", {"limit_usd": 20.5, "note": "why not"})
    assert changed.status_code == 200 and changed.json()["limit_micros"] == 20_500_000
    newest = BudgetLimit.objects.order_by("-id")[0]
    assert (newest.limit_micros, newest.note, newest.actor) == (20_500_000, "why not", "adam")
    assert admin.patch(f"budgets/{spent.job_budget}", {"limit_usd": None}).json()["limit_usd"] is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"limit_usd": "abc"},
        {"limit_usd": -1},
        {"limit_usd": 0.5},
        {"limit_usd": 10**30},
        {"limit_usd": 1e30},
        {"limit_usd": "NaN"},
        {"limit_usd": True},
        {"limit_usd": 0.0000001},
        {"limit_usd": [1]},
        {"limit": 5},
        {"limit_usd": 5, "note": "\x00"},
        {"limit_usd": 5, "note": "x" * 201},
        b"not json",
    ],
)
def test_a_wrong_limit_changes_nothing(body: Any, spent: Chain, admin: Caller) -> None:
    response = admin.patch(f"budgets/{spent.job_budget}", body)
    assert response.status_code == 400 and response.json()["detail"]
    assert Budget.objects.get(id=spent.job_budget).limit_micros == MICROS


def test_a_month_that_is_over_keeps_its_limit(chain: Chain, admin: Caller) -> None:
    old = chain_open(chain.organization_id, month=month_of().replace(year=2020))
    response = admin.patch(f"budgets/{old.organization_budget}", {"limit_usd": 7})
    assert response.status_code == 409 and "is over" in response.json()["detail"]


def test_the_first_limit_is_set_once_for_each_key(acme: Organization, agent: Any, admin: Caller) -> None:
    made = [admin.post("budgets", {"limit_usd": 50}, Idempotency_Key="k") for _ in range(2)]
    assert [one.status_code for one in made] == [201, 201]
    assert BudgetLimit.objects.filter(owner_id=acme.id).count() == 1
    assert admin.post("budgets", {"agent": agent.slug, "limit_usd": 5}).json()["scope"] == "agent"
    assert Budget.objects.get(owner_id=agent.id).limit_micros == 5 * MICROS
    assert admin.post("budgets", {"agent": "nobody", "limit_usd": 5}).status_code == 404


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stella", "dan", "olivia"])
def test_only_admins_write(name: str, spent: Chain, request: pytest.FixtureRequest) -> None:
    caller = Caller(request.getfixturevalue(name))
    assert caller.get("budgets").status_code == 200
    for response in (
        caller.patch(f"budgets/{spent.job_budget}", {"limit_usd": 50}),
        caller.post("budgets", {"limit_usd": 50}),
        caller.post("prices", {"model": "m", "input_usd": 1, "output_usd": 1}),
    ):
        assert response.status_code == 403
    assert Budget.objects.get(id=spent.job_budget).limit_micros == MICROS and not ModelPrice.objects.exists()


def test_a_key_without_the_scope_only_reads(spent: Chain, adam: Any) -> None:
    caller = Caller(adam, scopes=["training:view"])
    assert caller.get(f"budgets/{spent.job_budget}").status_code == 200
    assert caller.patch(f"budgets/{spent.job_budget}", {"limit_usd": 50}).status_code == 403
    blind = Caller(adam, scopes=["training:start"])
    assert blind.get("budgets").status_code == 403


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_a_stranger_finds_nothing(role: str, spent: Chain, charlie: Any, agent: Any) -> None:
    charlie.memberships.update(role=role)
    stranger = Caller(charlie)
    for path in (f"budgets/{spent.job_budget}", f"budgets/{spent.organization_budget}/ledger"):
        assert stranger.get(path).status_code == 404
    assert stranger.patch(f"budgets/{spent.job_budget}", {"limit_usd": 50}).status_code == 404
    assert stranger.get("budgets").json()["results"] == []
    assert stranger.get("budgets", job=str(spent.job_id)).json()["results"] == []
    assert stranger.get("budgets", agent=str(agent.id)).status_code == 404
    assert stranger.get("budgets/breakdown").json()["results"] == []
    assert Budget.objects.get(id=spent.job_budget).limit_micros == MICROS


# -- prices ------------------------------------------------------------------------------------------------------------


def test_prices_in_force_and_their_history(stakeholder: Caller, elsewhere: Organization) -> None:
    for day, price in (("2025-01-01", 9), ("2026-01-01", 5), ("2190-01-01", 1)):
        ModelPrice.objects.create(model="big", valid_from=day, input_micros=price, output_micros=price)
    ModelPrice.objects.create(
        organization=elsewhere, model="big", valid_from="2026-05-05", input_micros=77, output_micros=77
    )
    ModelPrice.objects.create(model="zero", valid_from="2026-01-01", input_micros=0, output_micros=0, free=True)
    now = stakeholder.get("prices").json()["results"]
    assert [(one["model"], one["input_micros"], one["free"]) for one in now] == [("big", 5, False), ("zero", 0, True)]
    every = stakeholder.get("prices", model="big", history="true", ordering="-valid_from").json()["results"]
    assert [one["input_micros"] for one in every] == [1, 5, 9]
    assert [one["model"] for one in stakeholder.get("prices", search="ER").json()["results"]] == ["zero"]
    assert len(pages(stakeholder, "prices", limit=1)) == 2


def test_an_admin_sets_a_price_and_another_admin_declares_the_model_free(admin: Caller, acme: Organization) -> None:
    made = admin.post("prices", {"model": "a/b", "input_usd": 0.15, "cached_input_usd": 0.075, "output_usd": 0.6})
    assert made.status_code == 201
    assert (made.json()["input_micros"], made.json()["cached_input_usd"], made.json()["own"]) == (150_000, 0.075, True)
    free = admin.post("prices", {"model": "mine", "free": True, "price_source": "ours"}).json()
    assert (free["free"], free["input_micros"], free["price_source"]) == (True, 0, "ours")
    assert set(ModelPrice.objects.values_list("organization_id", flat=True)) == {acme.id}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "m"},
        {"model": "m", "input_usd": 1},
        {"model": "m", "input_usd": 0, "output_usd": 0},
        {"model": "m", "input_usd": -1, "output_usd": 1},
        {"model": "m", "input_usd": "abc", "output_usd": 1},
        {"model": "m", "input_usd": 10**30, "output_usd": 1},
        {"model": "m\x00", "input_usd": 1, "output_usd": 1},
        {"model": "m", "input_usd": 1, "output_usd": 1, "valid_from": "nonsense"},
        {"model": "m", "input_usd": 1, "output_usd": 1, "nonsense": 1},
    ],
)
def test_a_wrong_price_is_refused(body: dict[str, Any], admin: Caller) -> None:
    response = admin.post("prices", body)
    assert response.status_code == 400 and response.json()["detail"]
    assert not ModelPrice.objects.exists()


def test_prices_of_long_prompts_and_cache_writes_are_set_and_read(admin: Caller) -> None:
    tier = {"above_tokens": 200_000, "input_usd": 2.5, "output_usd": 15, "cached_input_usd": 0.25,
            "rates": {"cache_write_1h_usd": 5}}  # fmt: skip
    body = {"model": "long", "input_usd": 1.25, "output_usd": 10, "rates": {"cache_write_usd": 1.5}, "tiers": [tier]}
    made = admin.post("prices", body)
    assert made.status_code == 201, made.json()
    found = made.json()
    assert (found["rates"]["cache_write_micros"], found["rates"]["audio_input_usd"]) == (1_500_000, None)
    [shown] = found["tiers"]
    assert (shown["above_tokens"], shown["input_usd"], shown["cached_input_micros"]) == (200_000, 2.5, 250_000)
    assert shown["rates"]["cache_write_1h_usd"] == 5
    kept = admin.post("prices", {"model": "long", "input_usd": 1, "output_usd": 10}).json()
    assert kept["tiers"] == found["tiers"] and kept["rates"] == found["rates"]
    for wrong in ([tier | {"above_tokens": 0}], [tier, tier], [{"above_tokens": 5}], [tier | {"rates": {"x_usd": 1}}]):
        assert admin.post("prices", body | {"tiers": wrong}).status_code == 400, wrong
