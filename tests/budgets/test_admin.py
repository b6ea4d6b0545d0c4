"""The admin: limits and prices are edited through the services, the books are only shown."""

from __future__ import annotations

import re
from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Organization
from budgets.alerts.webhooks import webhook_secret
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import BudgetOwner, Chain, chain_open, owners
from budgets.models import Budget, BudgetLimit, BudgetSettings, LedgerEntry, ModelPrice, Reservation, Scope
from budgets.presenters import limit_effects
from budgets.services import limit_change, price_set
from tests import factories
from tests.budgets.rows import a_row_of_each
from tests.budgets.support import balances, bill, hold
from tests.support.pages import html

pytestmark = pytest.mark.django_db

DOLLAR = 1_000_000


GARBLED = ("-inf", "nan", "x", "1e999999", "a\x00b", "9" * 40)


def address(model: Any, name: str, *args: Any) -> str:
    return reverse(f"admin:budgets_{model._meta.model_name}_{name}", args=args)


@pytest.fixture
def house(adam: Any) -> Client:
    """A superuser."""
    client = Client()
    client.force_login(adam)
    return client


@pytest.fixture
def boss(acme: Organization) -> Client:
    """An admin of acme who is staff, and no superuser."""
    user = factories.UserFactory(username="boss", is_staff=True)
    factories.MembershipFactory(organization=acme, user=user, role="admin")
    client = Client()
    client.force_login(user)
    return client


def typed(client: Client, page: str, **changes: str) -> dict[str, str]:
    """The form that a browser would send from this page after these changes: the shown values are sent too."""
    form = client.get(page).content.decode()
    sent = {}
    for tag in re.findall(r"<input[^>]*>", form):
        result = dict(re.findall(r'([a-z-]+)="([^"]*)"', tag))
        if result.get("name", "").endswith(("limit_usd", "note")):
            sent[result["name"]] = result.get("value", "")
    return sent | changes


@pytest.mark.parametrize("who", ["house", "boss"])
def test_a_month_that_is_over_is_only_shown(who: str, request: pytest.FixtureRequest, acme: Organization) -> None:
    client = request.getfixturevalue(who)
    old = chain_open(acme.id, month=date(2025, 3, 1)).organization_budget
    new = chain_open(acme.id).organization_budget
    limit_change(None, BudgetOwner(acme.id, Scope.ORGANIZATION, acme.id), 7 * DOLLAR)
    page = address(Budget, "change", old)
    assert 'name="limit_usd"' not in client.get(page).content.decode()
    assert client.post(page, {"limit_usd": "1", "initial-limit_usd": "2"}).status_code == 403
    assert Budget.objects.get(id=new).limit_micros == 7 * DOLLAR and BudgetLimit.objects.count() == 1


def test_a_save_without_another_limit_undoes_no_raise(house: Client, chain: Chain, job: Job) -> None:
    page = address(Budget, "change", chain.job_budget)
    stale = typed(house, page, note="only a note")
    limit_change(None, owners(job.organization_id, chain.agent_id, job.id)[-1], 9 * DOLLAR)
    house.post(page, stale)
    assert Budget.objects.get(id=chain.job_budget).limit_micros == 9 * DOLLAR
    refused = house.post(page, stale | {"limit_usd": "2"}, follow=True).content.decode()
    assert "it is $9.00 now" in refused and "set it again" in refused
    assert Budget.objects.get(id=chain.job_budget).limit_micros == 9 * DOLLAR and BudgetLimit.objects.count() == 1


def test_an_admin_chooses_among_the_agents_there_are(
    boss: Client, acme: Organization, agent: Any, charlie: Any
) -> None:
    theirs = factories.AgentFactory(organization=charlie.memberships.get().organization, name="Foreigner")
    shown = boss.get(address(Budget, "add")).content.decode()
    assert agent.name in shown and "Foreigner" not in shown
    for wrong in (str(theirs.id), str(uuid4()), "x"):
        form = {"organization": str(acme.id), "agent": wrong, "limit_usd": "1"}
        assert boss.post(address(Budget, "add"), form).status_code == 200
    assert not Budget.objects.exists()


def test_a_price_shows_the_person_who_changed_the_price(house: Client, adam: Any) -> None:
    price = price_set(adam, model="m", input_micros=2 * DOLLAR, output_micros=DOLLAR, valid_from=date(2026, 1, 1))
    page = address(ModelPrice, "change", price.id)
    sent = {"model": "m", "valid_from": "2026-01-01", "input_usd": "3", "output_usd": "1", "source": ""}
    assert house.post(page, sent).status_code == 302
    shown = house.get(page).content.decode()
    assert "adam" in shown and "input $2.00 → $3.00" in shown


@pytest.mark.parametrize("who", ["house", "boss"])
def test_a_limit_is_set_and_changed_with_its_history(
    who: str, request: pytest.FixtureRequest, acme: Organization, agent: Any
) -> None:
    client = request.getfixturevalue(who)
    form = {"organization": str(acme.id), "agent": str(agent.id), "limit_usd": "12.50", "note": "pilot"}
    assert client.post(address(Budget, "add"), form).status_code == 302
    budget = Budget.objects.get()
    assert (budget.scope, budget.owner_id, budget.limit_micros) == ("agent", agent.id, 12_500_000)
    page = address(Budget, "change", budget.id)
    assert client.post(page, typed(client, page, limit_usd="", note="enough")).status_code == 302
    budget.refresh_from_db()
    assert (budget.limit_micros, budget.owner_id) == (None, agent.id)
    shown = client.get(page).content.decode()
    assert "$12.50 → not limited" in shown and "enough" in shown
    assert BudgetLimit.objects.count() == 2
    assert AuditEvent.objects.filter(action="budget.changed", door="admin").count() == 2


@pytest.mark.parametrize("who", ["house", "boss"])
def test_a_jobs_limit_is_raised_there(who: str, request: pytest.FixtureRequest, chain: Chain, job: Job) -> None:
    page = address(Budget, "change", chain.job_budget)
    client = request.getfixturevalue(who)
    assert client.post(page, typed(client, page, limit_usd="2")).status_code == 302
    budget = Budget.objects.get(id=chain.job_budget)
    assert (budget.limit_micros, budget.job_id) == (2 * DOLLAR, job.id)


def test_a_refusal_of_the_service_is_shown_and_changes_nothing(boss: Client, chain: Chain) -> None:
    reserve(hold(chain, "a", 600_000))
    page = address(Budget, "change", chain.job_budget)
    answer = boss.post(page, typed(boss, page, limit_usd="0.5"), follow=True)
    assert "$0.60 is on hold" in answer.content.decode()
    assert Budget.objects.get(id=chain.job_budget).limit_micros == DOLLAR
    assert not BudgetLimit.objects.exists()


def test_an_admin_reaches_no_budget_of_another_organisation(boss: Client, elsewhere: Organization, job: Job) -> None:
    from budgets.ledger.accounts import chain_open

    foreign = chain_open(elsewhere.id).organization_budget
    assert boss.get(address(Budget, "change", foreign)).status_code == 302
    boss.post(address(Budget, "change", foreign), {"limit_usd": "1"})
    boss.post(address(Budget, "add"), {"organization": str(elsewhere.id), "limit_usd": "1"})
    assert not BudgetLimit.objects.exists()
    assert "Elsewhere" not in boss.get(address(Budget, "changelist")).content.decode()


def test_prices_are_edited_in_dollars(house: Client, boss: Client, acme: Organization) -> None:
    form = {
        "organization": str(acme.id), "model": "m", "valid_from": "2026-01-01", "input_usd": "2.5", "cached_usd": "",
        "output_usd": "10", "call_usd": "", "source": "contract",
    }  # fmt: skip
    assert boss.post(address(ModelPrice, "add"), form).status_code == 302
    price = ModelPrice.objects.get()
    assert (price.input_micros, price.cached_input_micros, price.output_micros, price.per_call_micros) == (
        2_500_000,
        None,
        10_000_000,
        0,
    )
    page = address(ModelPrice, "change", price.id)
    assert "2.5" in boss.get(page).content.decode()
    assert boss.post(page, form | {"input_usd": "3"}).status_code == 302
    event = AuditEvent.objects.get(action="price.changed")
    assert (event.before["input"], event.after["input"]) == (2_500_000, 3_000_000)
    for_all = form | {"organization": "", "model": "all"}
    refused = boss.post(address(ModelPrice, "add"), for_all, follow=True)
    assert "Only a superuser" in refused.content.decode()
    assert not ModelPrice.objects.filter(organization=None).exists()
    assert house.post(address(ModelPrice, "add"), for_all).status_code == 302
    shared = ModelPrice.objects.get(organization=None)
    assert boss.post(address(ModelPrice, "change", shared.id), for_all | {"input_usd": "0.1"}).status_code == 403
    assert "all" in boss.get(address(ModelPrice, "changelist")).content.decode()


def test_the_same_price_twice_is_a_message_and_no_error(house: Client, acme: Organization) -> None:
    form = {"organization": "", "model": "m", "valid_from": "2026-01-01", "input_usd": "1", "output_usd": "1"}
    assert house.post(address(ModelPrice, "add"), form).status_code == 302
    assert house.post(address(ModelPrice, "add"), form, follow=True).status_code == 200
    assert ModelPrice.objects.count() == 1
    nothing = form | {"model": "n", "input_usd": "", "output_usd": ""}
    assert "declare the model free" in house.post(address(ModelPrice, "add"), nothing, follow=True).content.decode()


def test_alerts_are_sent_where_the_settings_say(boss: Client, acme: Organization) -> None:
    form = {"organization": str(acme.id), "webhook_url": "https://example.com/hook", "secret_version": "1"}
    made = boss.post(address(BudgetSettings, "add"), form)
    row = BudgetSettings.objects.get()
    assert webhook_secret(acme.id, 1) in made.content.decode() and "no-store" in made["Cache-Control"]
    assert (row.webhook_url, row.email_admins) == ("https://example.com/hook", False)
    page = address(BudgetSettings, "change", acme.id)
    kept = boss.post(page, {"webhook_url": "", "secret_version": "1", "email_admins": "on"}, follow=True)
    assert webhook_secret(acme.id, 1) not in boss.get(page).content.decode() + kept.content.decode()
    renewed = boss.post(page, {"webhook_url": "", "secret_version": "2", "email_admins": "on"})
    assert webhook_secret(acme.id, 2) in renewed.content.decode() and "no-store" in renewed["Cache-Control"]
    assert webhook_secret(acme.id, 2) not in boss.get(page).content.decode()
    row.refresh_from_db()
    assert (row.webhook_url, row.email_admins, row.secret_version) == ("", True, 2)


def test_the_books_are_only_shown(house: Client, chain: Chain, job: Job) -> None:
    for row in a_row_of_each(job, chain):
        assert house.get(address(row, "changelist")).status_code == 200
        assert house.get(address(row, "changelist"), {"q": str(job.id)}).status_code == 200
        assert house.get(address(row, "change", row.pk)).status_code == 200
    before = balances(chain)
    for model in (LedgerEntry, Reservation):
        row = model.objects.first()
        assert row is not None
        assert house.get(address(model, "add")).status_code == 403
        assert house.post(address(model, "change", row.pk), {"spent_delta_micros": 0}).status_code == 403
        assert house.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert balances(chain) == before


def test_a_search_finds_the_entries_of_a_job(house: Client, chain: Chain, job: Job) -> None:
    reserve(hold(chain, "needle", 10))
    settle("needle", bill(10))
    for term, found in ((str(job.id), True), ("00000000-0000-0000-0000-000000000000", False), ("%_'", False)):
        page = house.get(address(Reservation, "changelist"), {"q": term}).content.decode()
        assert ("needle" in page) == found


def test_budgets_are_listed_and_found_by_the_names_of_their_owners(house: Client, chain: Chain, agent: Any) -> None:
    url = reverse("admin:budgets_budget_changelist")
    page = house.get(url).content.decode()
    assert all(f">{name}<" in page for name in ("Router", agent.name, "Acme Research"))
    response = house.get(url, {"q": agent.name}).content.decode()
    assert f">{agent.name}<" in response and ">Router<" not in response
    assert ">Router<" in house.get(url, {"q": "route"}).content.decode()


@pytest.mark.parametrize("sent", GARBLED)
def test_a_limit_that_the_page_never_showed_is_an_error_of_the_form(
    boss: Client, acme: Organization, sent: str
) -> None:
    page = address(Budget, "change", limit_change(None, owners(acme.id)[0], 5 * DOLLAR).id)
    for limit in ("7", sent):
        answer = boss.post(page, {"limit_usd": limit, "initial-limit_usd": sent, "note": "why"})
        assert answer.status_code == 200 and "Load the page again" in answer.content.decode()
    assert Budget.objects.get(scope=Scope.ORGANIZATION).limit_micros == 5 * DOLLAR


# -- spending against the limit, and the effect of another limit ----------------------------------------------------


def shown(client: Client, budget: int, **query: str) -> Any:
    return client.get(address(Budget, "change", budget), query)


def test_a_budget_shows_its_spending_against_its_limit(boss: Client, chain: Chain) -> None:
    page = shown(boss, chain.job_budget)
    assert "Nothing was spent yet" in page.content.decode() and page.context["figure"] is None
    limit_change(None, owners(chain.organization_id)[0], 1_500_000)
    reserve(hold(chain, "a", 600_000))
    settle("a", bill(250_000))
    for budget, limit in ((chain.organization_budget, 1.5), (chain.job_budget, 1.0)):
        page = shown(boss, budget)
        figure = page.context["figure"]
        assert [column.title for column in figure.columns][1:] == ["Spent in all", "Limit"]
        assert [row[1:] for row in figure.rows if row[1] is not None][-1] == [0.25, limit]
        text = html(page)
        assert 'data-shape="lines"' in text and "js/figures" in text and f'data-value="{limit}"' in text


def test_the_effect_of_another_limit_is_read_from_the_ledger(boss: Client, chain: Chain) -> None:
    for key, micros in (("a", 300_000), ("b", 300_000), ("c", 100_000)):
        reserve(hold(chain, key, micros))
        settle(key, bill(micros))
    page = shown(boss, chain.organization_budget, would_limit="0.45")
    now, *before = page.context["effects"]["months"]
    assert (now.replay.made.calls, now.replay.made.cost_micros) == (3, 700_000)
    assert (now.replay.refused.calls, now.replay.refused.cost_micros) == (1, 300_000)  # the third fits again
    assert "1 of 3 calls, $0.30 of $0.70. The first was refused on" in html(page)
    assert len(before) == 2 and all(one.text == "No call was made." for one in before)
    [(group, count)] = now.groups
    assert count.calls == 1 and group in html(page)
    fits = shown(boss, chain.organization_budget, would_limit="$1").context["effects"]["months"][0]
    assert fits.text == "Nothing: all 3 calls for $0.70 fit."
    [job] = shown(boss, chain.job_budget, would_limit="0").context["effects"]["months"]
    assert job.title == "In all" and job.replay.refused.calls == 3


def test_a_limit_that_would_change_nothing_real_is_only_replayed(boss: Client, chain: Chain) -> None:
    reserve(hold(chain, "a", 300_000))
    before = balances(chain)
    shown(boss, chain.organization_budget, would_limit="0.1")
    assert balances(chain) == before and not BudgetLimit.objects.exists()


@pytest.mark.parametrize("typed_limit", ["x", "-1", "0,50", "nan", "9" * 40])
def test_a_limit_that_is_no_amount_is_an_error_beside_its_field(boss: Client, chain: Chain, typed_limit: str) -> None:
    page = shown(boss, chain.organization_budget, would_limit=typed_limit)
    assert page.status_code == 200 and page.context["effects"]["problem"]
    assert 'aria-describedby="would-problem"' in html(page) and "months" not in page.context["effects"]


def test_a_ledger_too_long_for_a_page_is_said_to_be_so(
    boss: Client, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_effects, "MOST_ENTRIES", 1)
    reserve(hold(chain, "a", 300_000))
    settle("a", bill(300_000))
    assert "More than 1 entries" in html(shown(boss, chain.organization_budget, would_limit="0.1"))


def test_the_budgets_page_takes_as_many_statements_for_many_calls(boss: Client, chain: Chain) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as found:
            shown(boss, chain.organization_budget, would_limit="0.1")
        return len(found)

    reserve(hold(chain, "a", 1_000))
    few = asked()
    for n in range(5):
        reserve(hold(chain, f"b{n}", 1_000))
    assert asked() == few
