"""The budgets' pages: who sees and changes what, with words first, from an empty house to ten thousand entries."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job
from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import Role
from budgets.alerts.webhooks import webhook_secret
from budgets.forecasting import Forecast
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import Chain, chain_open, month_of
from budgets.models import Budget, BudgetLimit, BudgetSettings, LedgerEntry, ModelPrice
from budgets.presenters import budget_verdict
from budgets.presenters.budget_verdict import spending_figure, verdict
from budgets.prices.loading import prices_load
from budgets.services import budget_set_limit, price_set
from tests.budgets.support import bill, hold, limits_set
from tests.factories import MembershipFactory
from tests.support.pages import html

pytestmark = pytest.mark.django_db

ROLES = ("olivia", "dan", "adam", "stella")


def at_desk(person: Any) -> Client:
    client = Client(raise_request_exception=True)
    client.force_login(person)
    return client


def text(response: Any) -> str:
    """The text of a page, without its tags."""
    body = re.sub(r"<(style|script|svg).*?</\1>", " ", response.content.decode(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("&#x27;", "'")


@pytest.fixture
def spent(chain: Chain) -> Chain:
    """The job spent $0.60 of its $1 with the model small and holds $0.10 for another call."""
    reserve(hold(chain, "a", 700_000))
    settle("a", bill(600_000))
    reserve(hold(chain, "b", 100_000))
    return chain


def of(chain: Chain, scope: str) -> Budget:
    ids = dict(zip(("organization", "agent", "job"), chain.budgets, strict=True))
    return Budget.objects.select_related("organization", "job").get(id=ids[scope])


def addresses(chain: Chain) -> list[str]:
    return [
        "/budgets/",
        "/budgets/?by=day&since=2026-01-01&until=2030-01-01",
        "/budgets/breakdown/csv/?by=job",
        "/budgets/prices/",
        f"/budgets/of-job/{chain.job_id}/",
        *(f"/budgets/{one}/" for one in chain.budgets),
        *(f"/budgets/{one}/csv/" for one in chain.budgets),
    ]


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROLES)
def test_everybody_of_the_organisation_sees_the_budgets(
    name: str, spent: Chain, request: pytest.FixtureRequest
) -> None:
    client = at_desk(request.getfixturevalue(name))
    for address in addresses(spent):
        lines = re.search(r"/\d+/csv/", address)  # of the ledger, for roles that work with it
        assert client.get(address).status_code == (403 if lines and name == "stella" else 200), address


def test_a_stranger_finds_nothing(spent: Chain, charlie: Any) -> None:
    client = at_desk(charlie)
    for address in addresses(spent):
        response = client.get(address)
        if re.search(r"/\d+/|of-job", address):
            assert response.status_code == 404, address
        else:
            body = html(response)
            assert "Acme" not in body and "Router" not in body and "0.60" not in body, address
    assert client.post(f"/budgets/{spent.job_budget}/", {"limit": "50"}).status_code == 404
    assert client.get("/budgets/9999999999999999999999999/").status_code == 404


@pytest.mark.parametrize("name", ["olivia", "dan", "stella"])
def test_only_admins_change_anything(name: str, spent: Chain, request: pytest.FixtureRequest) -> None:
    client = at_desk(request.getfixturevalue(name))
    before = BudgetLimit.objects.count(), ModelPrice.objects.count(), BudgetSettings.objects.count()
    for address, sent in (
        (f"/budgets/{spent.job_budget}/", {"limit": "50"}),
        ("/budgets/new/", {"limit": "50"}),
        ("/budgets/prices/set/", {"model": "small", "input": "1", "output": "1"}),
        ("/budgets/settings/", {"webhook_url": ""}),
        ("/budgets/settings/secret/", {}),
    ):
        assert client.post(address, sent).status_code == 403, address
    for address in ("/budgets/new/", "/budgets/settings/", "/budgets/prices/set/"):
        assert client.get(address).status_code == 403, address
    assert (BudgetLimit.objects.count(), ModelPrice.objects.count(), BudgetSettings.objects.count()) == before
    page = html(client.get(f"/budgets/{spent.job_budget}/"))
    assert "Set the limit" not in page
    assert "Set a limit" not in html(client.get("/budgets/"))


# -- the overview ------------------------------------------------------------------------------------------------------


def test_an_empty_house_teaches_the_next_step(adam: Any, stella: Any) -> None:
    page = at_desk(adam).get("/budgets/")
    assert "Nothing was spent this month, and no limit is set." in text(page)
    assert "Set the first limit" in text(page)
    assert "An admin of your organisation can set a limit" in text(at_desk(stella).get("/budgets/"))
    assert "Set the first price" in text(at_desk(adam).get("/budgets/prices/"))
    assert "Set the first price" not in text(at_desk(stella).get("/budgets/prices/"))


def test_the_verdict_comes_in_words_first(spent: Chain, stella: Any) -> None:
    page = text(at_desk(stella).get("/budgets/"))
    assert "$0.60 of $10.00 spent this month (6 %)" in page
    assert "at this pace" not in page and "Forecast for the month" not in page  # of one day there is no pace
    assert page.index("$0.60 of $10.00") < page.index("All")


def test_every_page_has_the_pill(spent: Chain, stella: Any, charlie: Any) -> None:
    page = html(at_desk(stella).get("/jobs/"))
    assert "$0.60 of $10.00" in page and 'href="/budgets/"' in page
    assert "$0.60" not in html(at_desk(charlie).get("/jobs/"))


def test_the_list_is_searched_filtered_and_paged(chain: Chain, acme: Organization, olivia: Any, stella: Any) -> None:
    for n in range(30):
        job = Job.objects.create(organization=acme, kind="training", title=f"Batch {n:02d}", created_by=olivia)
        chain_open(acme.id, agent_id=chain.agent_id, job_id=job.id)
    client = at_desk(stella)
    assert "33 budgets" in text(client.get("/budgets/"))
    assert "1 budget" in text(client.get("/budgets/?q=Batch 07"))
    assert "1 budget" in text(client.get("/budgets/?scope=organization"))
    assert "No budget matches" in text(client.get("/budgets/?q=nothing-like-it"))
    seen: list[str] = []
    address: str | None = "/budgets/?sort=newest&scope=job"
    while address:
        page = html(client.get(address))
        seen += re.findall(r'class="lead fill"><a href="/budgets/(\d+)/"', page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        address = "/budgets/" + following[1].replace("&amp;", "&") if following else None
    assert len(seen) == len(set(seen)) == 31


def test_each_tab_breaks_the_money_down(spent: Chain, stella: Any) -> None:
    client = at_desk(stella)
    for by, word in {
        "model": "small",
        "job": "Router",
        "purpose": "training",
        "day": f"{timezone.now():%-d %b %Y}",
    }.items():
        part = html(client.get(f"/budgets/?by={by}")).split('id="breakdown"')[1]
        assert f">{word}</a>" in part and "$0.60" in part, by
        assert f"/budgets/breakdown/csv/?by={by}&amp;since={month_of()}" in part
    csv = client.get("/budgets/breakdown/csv/?by=model").content.decode()
    assert csv.splitlines()[1].startswith("small,600000,1,100,20,10")


def test_a_range_leaves_other_days_out(spent: Chain, stella: Any) -> None:
    client = at_desk(stella)
    page = text(client.get("/budgets/?since=2020-01-01&until=2020-01-31"))
    assert "No spending in this period" in page
    assert len(client.get("/budgets/breakdown/csv/?since=2020-01-01&until=2020-01-31").content.splitlines()) == 1


def test_a_wrong_range_is_said_and_the_month_is_shown(spent: Chain, stella: Any) -> None:
    page = at_desk(stella).get("/budgets/?since=2026-02-02&until=2026-01-01")
    assert "The first day is after the last. The whole month is shown." in text(page)
    assert "$0.60" in html(page).split('id="breakdown"')[1]


def test_a_person_of_two_organisations_opens_budgets_of_both(
    spent: Chain, charlie: Any, elsewhere: Organization, acme: Organization
) -> None:
    """Charlie's first organisation is elsewhere; acme's budget is hers too, with its own ledger."""
    MembershipFactory(organization=acme, user=charlie, role=Role.ADMIN)
    client = at_desk(charlie)
    assert "2 calls" in text(client.get(f"/budgets/{spent.job_budget}/"))
    assert b"".join(client.get(f"/budgets/{spent.organization_budget}/csv/")).count(b"\n") == 4
    assert client.post(f"/budgets/{spent.job_budget}/", {"limit": "3"}).status_code == 302
    assert of(spent, "job").limit_micros == 3 * MICROS
    assert "0.60" not in text(client.get("/budgets/"))


def test_a_limit_that_moved_since_the_page_was_opened_is_not_overwritten(spent: Chain, adam: Any) -> None:
    client, page = at_desk(adam), f"/budgets/{spent.job_budget}/"
    shown = re.search(r'name="shown" value="([^"]*)"', html(client.get(page)))
    assert shown is not None
    sent = {"limit": "80", "note": "", "shown": shown[1]}
    assert client.post(page, sent | {"limit": "90"}).status_code == 302
    refused = client.post(page, sent)
    assert refused.status_code == 409 and "it is $90.00 now" in text(refused)
    assert 'name="shown" value="90.00"' in html(refused)  # a person who has read that may go on
    assert Budget.objects.get(id=spent.job_budget).limit_micros == 90_000_000


def test_the_page_of_prices_says_of_which_day_they_are(adam: Any) -> None:
    load = {"m": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1e-05}}
    today = datetime.now(UTC).date()
    prices_load(json.dumps(load).encode(), name="some.json", valid_from=today - timedelta(days=300))
    assert "more than six months ago" in text(at_desk(adam).get("/budgets/prices/"))
    prices_load(json.dumps(load | {"n": load["m"]}).encode(), name="some.json", valid_from=today)
    page = text(at_desk(adam).get("/budgets/prices/"))
    assert f"are from {today:%-d %b %Y}" in page and "six months" not in page and "LiteLLM: some.json" in page


def test_a_past_month_is_shown_as_past(spent: Chain, adam: Any, stella: Any) -> None:
    old = chain_open(spent.organization_id, month=date(2025, 3, 1))
    reserve(hold(old, "old", 5))
    settle("old", bill(5))
    page = text(at_desk(stella).get("/budgets/?month=2025-03"))
    assert "spent in March 2025; no limit is set." in page and "March 2025" in page
    budget = Budget.objects.get(id=old.organization_budget)
    response = at_desk(adam).post(f"/budgets/{budget.id}/", {"limit": "7"})
    assert response.status_code == 409 and "March 2025 is over" in text(response)


def test_nonsense_in_the_address_is_no_accident(spent: Chain, stella: Any) -> None:
    client = at_desk(stella)
    for query in (
        "scope=nonsense",
        "by=nonsense",
        "sort=nonsense",
        "cursor=nonsense",
        "cursor=WzEsMl0",
        "cursor=WyJcdTAwMDAiLDFd",
        "month=nonsense",
        "month=2026-99",
        "month=99999-01",
        "since=nonsense",
        "since=0001-01-01",
        "until=9999-12-31",
        "since=2026-02-02&until=2026-01-01",
        "panel=nonsense",
    ):
        for address in ("/budgets/", "/budgets/prices/", f"/budgets/{spent.job_budget}/", "/budgets/breakdown/csv/"):
            expected = {200} if query.startswith("cursor") else {200, 400}  # a broken cursor shows the first page
            assert client.get(f"{address}?{query}").status_code in expected, (address, query)


def test_a_nul_in_the_address_is_no_accident(spent: Chain, stella: Any) -> None:
    client = at_desk(stella)
    for name in ("q", "scope", "by", "month", "since", "model", "kind", "purpose", "panel", "cursor"):
        for address in ("/budgets/", "/budgets/prices/", f"/budgets/{spent.job_budget}/"):
            assert client.get(f"{address}?{name}=a%00b").status_code in {200, 400}, (address, name)


# -- one budget --------------------------------------------------------------------------------------------------------


def test_a_budget_shows_what_is_spent_held_and_left(spent: Chain, dan: Any) -> None:
    page = text(at_desk(dan).get(f"/budgets/{spent.job_budget}/"))
    assert "$0.60 of $1.00 spent in all (60 %)." in page
    assert re.search(r"On hold \$0\.10", page) and re.search(r"Remaining \$0\.30", page)
    assert "2 calls" in page and "Router" in page
    assert 'data-shape="lines"' in html(at_desk(dan).get(f"/budgets/{spent.job_budget}/"))


def test_the_curve_ends_at_the_spent_amount(chain: Chain) -> None:
    reserve(hold(chain, "a", 900_000))
    settle("a", bill(1_250_000))
    for scope in ("organization", "agent", "job"):
        drawn = spending_figure(of(chain, scope))
        assert drawn is not None
        assert [row[1] for row in drawn.rows if row[1] is not None][-1] == 1.25
    lonely = chain_open(chain.organization_id, month=date(2024, 2, 1))
    old = Budget.objects.get(id=lonely.organization_budget)
    assert spending_figure(old) is None
    old.spent_micros = 5
    days = spending_figure(old)
    assert days is not None and len(days.rows) == 29 and days.rows[-1] == [date(2024, 2, 29), 0.000005]


def test_a_pace_that_leads_over_the_limit_is_a_warning(spent: Chain) -> None:
    shown = verdict(of(spent, "organization"), Forecast(600_000, 12 * MICROS, 9 * MICROS, 15 * MICROS, 5))
    assert shown.tone == "warn" and "(90 % range $9.00 to $15.00), more than the limit." in shown.text
    calm = verdict(of(spent, "organization"), Forecast(600_000, 2 * MICROS, 2 * MICROS, 2 * MICROS, 5))
    assert calm.tone == "" and "at this pace $2.00 by" in calm.text
    early = verdict(of(spent, "organization"), Forecast(600_000, 600_000, None, None, 0))
    assert early.text == "$0.60 of $10.00 spent this month (6 %)."


def test_a_budget_that_owes_says_what_stops(chain: Chain) -> None:
    reserve(hold(chain, "a", 900_000))
    settle("a", bill(1_250_000))
    shown = verdict(of(chain, "job"))
    assert shown.tone == "bad"
    assert shown.text == (
        "$1.25 of $1.00 spent in all (125 %). $0.25 of it is owed: nothing more is paid for until the limit is raised."
    )


def test_the_ledger_is_filtered_and_leads_to_the_job(spent: Chain, dan: Any) -> None:
    client = at_desk(dan)
    page = html(client.get(f"/budgets/{spent.organization_budget}/?kind=settle"))
    assert "1 entry" in page and f'href="/jobs/{spent.job_id}/"' in page
    assert "No entry matches" in text(client.get(f"/budgets/{spent.job_budget}/?model=other"))
    assert "2 calls" in text(client.get(f"/budgets/{spent.job_budget}/?model=small&kind=nonsense"))


def test_another_budget_s_entries_are_not_in_the_ledger(spent: Chain, dan: Any) -> None:
    lonely = chain_open(spent.organization_id)
    reserve(hold(lonely, "lonely", 1))
    client = at_desk(dan)
    assert "4 entries" in text(client.get(f"/budgets/{spent.organization_budget}/?lines=entries"))
    assert "3 entries" in text(client.get(f"/budgets/{spent.agent_budget}/?lines=entries"))
    assert "3 entries" in text(client.get(f"/budgets/{spent.job_budget}/?lines=entries"))


def test_the_ledger_comes_as_csv_and_is_logged(spent: Chain, dan: Any) -> None:
    response = at_desk(dan).get(f"/budgets/{spent.job_budget}/csv/?kind=settle")
    assert response.streaming and response["Content-Disposition"].endswith('.csv"')
    lines = b"".join(response).decode().splitlines()
    assert len(lines) == 2 and ",settle," in lines[1] and ",600000," in lines[1]
    assert AuditEvent.objects.filter(action="ledger.exported", actor="dan").count() == 1


def test_a_viewer_reads_totals_and_no_lines(spent: Chain, stella: Any) -> None:
    client = at_desk(stella)
    page = html(client.get(f"/budgets/{spent.job_budget}/"))
    assert "spent" in page and 'id="ledger"' not in page and "<tr data-row>" not in page
    assert client.get(f"/budgets/{spent.job_budget}/csv/").status_code == 403
    assert not AuditEvent.objects.filter(action="ledger.exported").exists()


def test_ten_thousand_entries_open_in_a_few_queries(spent: Chain, dan: Any, django_assert_max_num_queries: Any) -> None:
    tags = {
        "organization_id": spent.organization_id,
        "agent_id": spent.agent_id,
        "job_id": spent.job_id,
        "organization_budget_id": spent.organization_budget,
        "agent_budget_id": spent.agent_budget,
        "job_budget_id": spent.job_budget,
        "purpose": "training",
        "model": "small",
    }
    at = timezone.now()
    LedgerEntry.objects.bulk_create(
        (LedgerEntry(at=at, kind="settle", spent_delta_micros=1, cost_micros=1, **tags) for _ in range(10_000)),
        batch_size=2_000,
    )
    client = at_desk(dan)
    with django_assert_max_num_queries(15):
        page = client.get(f"/budgets/{spent.job_budget}/")
    assert "more than 10,000 calls" in text(page)
    assert len(re.findall(r"<tr data-row>", html(page))) == 25
    with django_assert_max_num_queries(22):
        client.get("/budgets/")
    assert b"".join(client.get(f"/budgets/{spent.job_budget}/csv/")).count(b"\n") == 10_004


# -- limits ------------------------------------------------------------------------------------------------------------


def test_an_admin_sets_a_limit_and_the_history_has_the_change(spent: Chain, adam: Any) -> None:
    client = at_desk(adam)
    response = client.post(f"/budgets/{spent.job_budget}/", {"limit": "$1,020.50", "note": "more to learn"})
    assert response.status_code == 302
    assert of(spent, "job").limit_micros == 1_020_500_000
    page = text(client.get(response["Location"]))
    assert "The limit is $1,020.50 now." in page
    assert re.search(r"adam .*\$1,020\.50 more to learn", page)
    assert AuditEvent.objects.filter(action="budget.changed", actor="adam").exists()
    client.post(f"/budgets/{spent.job_budget}/", {"limit": ""})
    assert of(spent, "job").limit_micros is None


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("abc", "Give dollars as a number"),
        ("-1", "be negative"),
        ("0.5", "Choose at least $0.70"),
        ("1" + "0" * 30, "At most $1,000,000,000.00"),
        ("1e999999", "At most"),
        ("NaN", "Give dollars as a number"),
        ("0,50", "with a point"),
        ("1.0000001", "6 decimal places"),
        ("1\x000", "Give dollars as a number"),
    ],
)
def test_a_wrong_limit_is_kept_and_explained(typed: str, problem: str, spent: Chain, adam: Any) -> None:
    response = at_desk(adam).post(f"/budgets/{spent.job_budget}/", {"limit": typed, "note": "kept note"})
    assert response.status_code == 400
    assert problem in text(response)
    assert 'value="kept note"' in html(response)
    assert f'value="{typed}"' in html(response) or "\x00" in typed
    assert of(spent, "job").limit_micros == MICROS


def test_an_empty_form_takes_no_limit_away(spent: Chain, adam: Any) -> None:
    assert at_desk(adam).post(f"/budgets/{spent.job_budget}/", {}).status_code == 400
    assert of(spent, "job").limit_micros == MICROS


def test_the_label_of_the_button_names_its_action(spent: Chain, adam: Any, stella: Any) -> None:
    client = at_desk(adam)
    address = f"/budgets/{spent.job_budget}/limit/"
    part = text(client.get(address, {"limit": "20"}))
    assert "Set the limit to $20.00" in part and "$19.30 would be left in all." in part
    assert "Remove the limit" in text(client.get(address, {"limit": ""}))
    short = client.get(address, {"limit": "0.1"})
    assert "choose at least that" in text(short) and "disabled" in html(short)
    assert 'class="wrong"' in html(client.get(address, {"limit": "abc"}))
    assert at_desk(stella).get(address, {"limit": "20"}).status_code == 403
    assert of(spent, "job").limit_micros == MICROS


def test_the_first_limit_is_set_where_nothing_was_spent(adam: Any, acme: Organization, agent: Any) -> None:
    client = at_desk(adam)
    made = client.post("/budgets/new/", {"owner": "", "limit": "50"})
    assert made.status_code == 302
    assert Budget.objects.get(owner_id=acme.id).limit_micros == 50 * MICROS
    client.post("/budgets/new/", {"owner": str(agent.id), "limit": "5"})
    assert Budget.objects.get(owner_id=agent.id).limit_micros == 5 * MICROS
    for wrong in ({"limit": "abc"}, {"owner": str(uuid4()), "limit": "5"}, {}):
        assert client.post("/budgets/new/", wrong).status_code == 400, wrong
    assert "$0.00 of $50.00 spent this month" in text(client.get("/budgets/"))


# -- prices ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def priced(acme: Organization) -> None:
    for model, day, price in (("big", "2025-01-01", 9), ("big", "2026-01-01", 5), ("big", "2190-01-01", 1)):
        ModelPrice.objects.create(model=model, valid_from=day, input_micros=price * MICROS, output_micros=2_000_001)
    ModelPrice.objects.create(
        model="org/small", valid_from="2026-01-01", input_micros=150_000, output_micros=600_000, source="list"
    )


def test_the_table_shows_what_is_in_force(priced: None, stella: Any, adam: Any, acme: Organization) -> None:
    page = text(at_desk(stella).get("/budgets/prices/"))
    assert (
        "2 models" in page and "$2.000001" in page and "$5.00" in page and "$9.00" not in page and "$1.00" not in page
    )
    price_set(adam, organization=acme, model="big", input_micros=3 * MICROS, output_micros=4 * MICROS)
    page = text(at_desk(stella).get("/budgets/prices/?q=big"))
    assert "1 model" in page and "$3.00" in page and "your own" in page and "$5.00" not in page


def test_a_price_of_another_organisation_is_not_shown(priced: None, elsewhere: Organization, stella: Any) -> None:
    ModelPrice.objects.create(
        organization=elsewhere, model="secret-deal", valid_from="2026-01-01", input_micros=1, output_micros=1
    )
    ModelPrice.objects.create(
        organization=elsewhere, model="big", valid_from="2026-02-01", input_micros=77, output_micros=1
    )
    client = at_desk(stella)
    page = text(client.get("/budgets/prices/?panel=big"))
    assert "secret-deal" not in page and "0.000077" not in page and "$5.00" in page
    assert "its calls are refused" in text(client.get("/budgets/prices/?panel=secret-deal"))


def test_one_model_s_prices_over_time(priced: None, stella: Any) -> None:
    panel = html(at_desk(stella).get("/budgets/prices/?panel=big")).split('id="panel"')[1]
    assert panel.index("1 Jan 2190") < panel.index("1 Jan 2026") < panel.index("1 Jan 2025")
    assert "not yet" in panel and "Set your own price" not in panel


def test_an_admin_sets_a_price_or_declares_a_model_free(adam: Any, acme: Organization) -> None:
    client = at_desk(adam)
    sent = {"model": "a/b c", "input": "0.15", "cached_input": "0.075", "output": "0.6"}
    assert client.post("/budgets/prices/set/", sent).status_code == 302
    price = ModelPrice.objects.get(model="a/b c")
    assert (price.input_micros, price.cached_input_micros, price.output_micros, price.organization) == (
        150_000,
        75_000,
        600_000,
        acme,
    )
    assert client.post("/budgets/prices/set/", {"model": "mine", "free": "on"}).status_code == 302
    assert ModelPrice.objects.get(model="mine").free
    assert 'value="0.15"' in html(client.get("/budgets/prices/set/?model=a/b c"))


TIERS = [
    {
        "above_tokens": 200_000,
        "input_micros": 6_000_000,
        "output_micros": 22_500_000,
        "rates": {"cached_input_micros": 600_000, "cache_write_micros": 7_500_000},
    }
]


def test_the_form_takes_tiers_by_length_and_cache_writes(adam: Any) -> None:
    client, sent = at_desk(adam), {"model": "long", "input": "3", "output": "15", "cache_write_micros": "3.75"}
    address = "/budgets/prices/set/?model=long"
    sent["tiers"] = "200,000: prompt 6, answer $22.50, cached 0.60, cache write 7.50\n"
    assert client.post(address, sent).status_code == 302
    price = ModelPrice.objects.get()
    assert (price.rates, price.tiers) == ({"cache_write_micros": 3_750_000}, TIERS)
    page = client.get(address)  # what it shows is what it takes
    form = page.context["form"]
    shown = {name: form[name].value() or "" for name in form.fields}
    assert 'value="3.75"' in html(page) and "200000: prompt 6.00, answer 22.50" in html(page)
    assert client.post(address, shown | {"valid_from": ""}).status_code == 302
    assert ModelPrice.objects.get().tiers == TIERS
    # A form that began with no price has not shown tiers, and takes none away.
    assert client.post("/budgets/prices/set/", {"model": "long", "input": "4", "output": "15"}).status_code == 302
    assert (ModelPrice.objects.get().tiers, ModelPrice.objects.get().input_micros) == (TIERS, 4_000_000)
    assert client.post(address, {"model": "long", "input": "4", "output": "15", "tiers": ""}).status_code == 302
    assert ModelPrice.objects.get().tiers == [] and ModelPrice.objects.get().rates == {}


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ("200000", "Line 1"),
        ("long: prompt 6, answer 22", "Line 1 is not like"),
        ("200000: prompt 6", "Line 1 is not like"),
        ("200000: prompt 6, answer 2, answer 3", "each price once"),
        ("200000: prompt 6, answer 22, gold 1", "by one of the names"),
        ("200000: prompt 6, answer x", "Give dollars as a number"),
        ("200000: prompt 6, answer 22\n\n200000: prompt 7, answer 23", "each above another number"),
        ("0: prompt 6, answer 22", "from 1"),
    ],
)
def test_a_wrong_tier_is_refused_with_its_line(tiers: str, words: str, adam: Any) -> None:
    sent = {"model": "long", "input": "3", "output": "15", "tiers": tiers}
    response = at_desk(adam).post("/budgets/prices/set/", sent)
    assert response.status_code == 400 and words in text(response)
    assert not ModelPrice.objects.exists()


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"model": ""},
        {"model": "m"},
        {"model": "m", "input": "1"},
        {"model": "m", "input": "0", "output": "0"},
        {"model": "m", "input": "abc", "output": "1"},
        {"model": "m", "input": "-1", "output": "1"},
        {"model": "m", "input": "1" + "0" * 30, "output": "1"},
        {"model": "m\x00", "input": "1", "output": "1"},
        {"model": "m" * 300, "input": "1", "output": "1"},
        {"model": "m", "input": "1", "output": "1", "valid_from": "nonsense"},
    ],
)
def test_a_wrong_price_is_refused_with_its_reason(sent: dict[str, str], adam: Any) -> None:
    response = at_desk(adam).post("/budgets/prices/set/", sent)
    assert response.status_code == 400 and ("wrong" in html(response) or "problem" in text(response).lower())
    assert not ModelPrice.objects.exists()


# -- alerts ------------------------------------------------------------------------------------------------------------


def test_an_admin_says_where_alerts_go(adam: Any, acme: Organization) -> None:
    client = at_desk(adam)
    assert client.post("/budgets/settings/", {"webhook_url": "https://hooks.example.com/x"}).status_code == 302
    row = BudgetSettings.objects.get(organization=acme)
    assert row.webhook_url == "https://hooks.example.com/x" and not row.email_admins
    refused = client.post("/budgets/settings/", {"webhook_url": "ftp://nope", "email_admins": "on"})
    assert refused.status_code == 400 and 'value="ftp://nope"' in html(refused)
    assert client.post("/budgets/settings/", {}).status_code == 400
    row.refresh_from_db()
    assert row.webhook_url == "https://hooks.example.com/x"


def test_the_secret_is_shown_once(adam: Any, acme: Organization) -> None:
    client = at_desk(adam)
    client.post("/budgets/settings/", {"webhook_url": "https://hooks.example.com/x", "email_admins": "on"})
    shown = client.post("/budgets/settings/secret/")
    row = BudgetSettings.objects.get(organization=acme)
    secret = webhook_secret(acme.id, row.secret_version)
    assert row.secret_version == 2 and secret in shown.content.decode() and "no-store" in shown["Cache-Control"]
    assert row.webhook_url == "https://hooks.example.com/x" and row.email_admins
    assert secret not in client.get("/budgets/settings/").content.decode()
    assert client.get("/budgets/settings/secret/").status_code == 405


def test_alerts_of_the_month_are_listed(chain: Chain, adam: Any, stella: Any) -> None:
    reserve(hold(chain, "a", 800_000))
    settle("a", bill(800_000))
    page = text(at_desk(stella).get("/budgets/"))
    assert "Alerts of" in page and "The budget of job Router is 80 % spent: $0.80 of $1.00" in page
    assert "75 % of $1.00" in text(at_desk(adam).get("/budgets/settings/"))


# -- the chain of a job ------------------------------------------------------------------------------------------------


def stopping(client: Client, job_id: Any) -> list[bool]:
    """Of each budget above a job, from the outermost one: whether its row is marked as the one that stopped the job."""
    page = html(client.get(f"/budgets/of-job/{job_id}/"))
    return ['class="status bad"' in row for row in re.findall(r"<tr.*?</tr>", page, flags=re.S)[1:4]]


def test_a_paused_job_says_which_budget_stopped_it(spent: Chain, stella: Any, adam: Any, acme: Organization) -> None:
    reserve(hold(spent, "c", 280_000))
    Job.objects.filter(id=spent.job_id).update(status="paused", status_reason="budget_exceeded")
    client = at_desk(stella)
    page = client.get(f"/budgets/of-job/{spent.job_id}/")
    assert stopping(client, spent.job_id) == [False, False, True] and text(page).count("stopped the job") == 1
    assert "The job pauses until there is room." in text(page) and "Raise it" not in text(page)
    assert re.search(r"Breakdown of \$0\.\d+.*Purpose.*training.*Model.*small", text(page), re.S)
    assert "Raise it" in text(at_desk(adam).get(f"/budgets/of-job/{spent.job_id}/"))
    job = Job.objects.get(id=spent.job_id)
    budget_set_limit(adam, organization=acme, agent_id=spent.agent_id, job=job, limit_micros=4 * MICROS)
    assert "resume the job" in text(client.get(f"/budgets/of-job/{spent.job_id}/"))
    assert stopping(client, spent.job_id) == [False, False, False]


def test_the_outermost_budget_can_be_the_one_that_stopped(spent: Chain, stella: Any) -> None:
    limits_set(spent, 700_000, 5 * MICROS, 1 * MICROS)
    Job.objects.filter(id=spent.job_id).update(status="paused", status_reason="budget_exceeded")
    assert stopping(at_desk(stella), spent.job_id) == [True, False, False]


def test_a_running_job_was_stopped_by_none(spent: Chain, stella: Any) -> None:
    assert stopping(at_desk(stella), spent.job_id) == [False, False, False]


def test_the_admin_of_another_house_sees_no_chain(spent: Chain, charlie: Any) -> None:
    charlie.memberships.update(role=Role.ADMIN)
    client = at_desk(charlie)
    assert client.get(f"/budgets/of-job/{spent.job_id}/").status_code == 404
    assert client.get(f"/budgets/{spent.organization_budget}/limit/?limit=1").status_code == 404


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_the_limit_is_on_the_chart_unless_the_limit_would_flatten_the_curve(spent: Chain) -> None:
    budget = of(spent, "job")
    for limit_micros, drawn in ((None, False), (MICROS, True), (100 * MICROS, False)):
        budget.limit_micros = limit_micros
        figure = spending_figure(budget)
        assert figure is not None and ("Limit" in [column.title for column in figure.columns]) == drawn
        assert ("$100.00" in figure.note) == (limit_micros == 100 * MICROS)


def test_a_forecast_leads_from_the_spent_amount_to_the_end_of_the_month(
    spent: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = of(spent, "organization")
    first = datetime(budget.period_start.year, budget.period_start.month, 1, tzinfo=UTC)
    monkeypatch.setattr(budget_verdict, "now", lambda: first + timedelta(days=9))
    figure = spending_figure(budget, Forecast(600_000, 3 * MICROS, 2 * MICROS, 4 * MICROS, 5))
    assert figure is not None
    assert [column.draw for column in figure.columns] == ["", "", "pace", "low", "high"]
    assert figure.rows[-2][1:] == [0.6, 0.6, 0.6, 0.6] and figure.rows[-1][1:] == [None, 3.0, 2.0, 4.0]
    assert all(row[2:] == [None, None, None] for row in figure.rows[:-2]) and len(figure.rows) == 11
    assert (figure.rows[-1][0] + timedelta(days=1)).day == 1
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    few = spending_figure(budget, Forecast(600_000, 600_000, None, None, 0))
    assert few is not None and len(few.columns) == 2


def test_a_picture_has_no_style_that_the_policy_forbids(spent: Chain, stella: Any) -> None:
    page = html(at_desk(stella).get("/budgets/"))
    assert "style=" not in page and "<script>" not in page
    assert datetime.now(UTC).strftime("1 %b") in page
