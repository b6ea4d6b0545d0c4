"""Reports of spending: by purpose, the forecast of the month, and CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.lib.money_format import money
from agentcore_site.lib.spreadsheets import csv_line
from agentcore_site.tenancy.actors import Actor
from budgets.exports import breakdown_csv, ledger_csv, ledger_export_start
from budgets.forecasting import Forecast, forecast
from budgets.ledger import Hold, charge_expired, reserve, settle
from budgets.ledger.accounts import Chain, chain_open
from budgets.meter_port import Bill
from budgets.models import Budget, LedgerEntry
from budgets.pricing import Usage
from budgets.selectors import Spending, breakdown, budget_forecast, daily
from tests.budgets.support import bill, expire, hold, limits_set
from tests.support.owner import as_owner

pytestmark = pytest.mark.django_db


def spend(chain: Chain, key: str, amount: int, *, model: str = "small", day: date | None = None, **extra: Any) -> None:
    """A call of ``amount`` micro-dollars; as if it had been on ``day``."""
    reserve(Hold(key, chain, amount, extra.get("purpose", "training"), model))
    settle(key, Bill(amount, Usage(100, 20, cached_tokens=10, estimated=extra.get("estimated", False)), "table"))
    if day is not None:
        with as_owner(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE budgets_ledgerentry DISABLE TRIGGER append_only")
            newest = LedgerEntry.objects.order_by("-id").values_list("id", flat=True)[:2]
            LedgerEntry.objects.filter(id__in=list(newest)).update(
                at=datetime(day.year, day.month, day.day, 23, 59, tzinfo=UTC)
            )
            cursor.execute("ALTER TABLE budgets_ledgerentry ENABLE TRIGGER append_only")


def test_report_breaks_down_by_model_agent_job_and_purpose(chain: Chain, stella: Any, charlie: Any, agent: Any) -> None:
    spend(chain, "a", 300)
    spend(chain, "b", 500, model="big", estimated=True)
    spend(chain, "c", 250)
    spend(chain_open(chain.organization_id), "d", 20, model="big", purpose="test")
    assert breakdown(stella, by="model") == [
        Spending("small", 550, 2, 200, 40, 20, 0),
        Spending("big", 520, 2, 200, 40, 20, 1),
    ]
    assert [(one.key, one.cost_micros) for one in breakdown(stella, by="agent")] == [(agent.id, 1050), (None, 20)]
    assert [(one.key, one.cost_micros) for one in breakdown(stella, by="job")] == [(chain.job_id, 1050), (None, 20)]
    assert [(one.key, one.cost_micros) for one in breakdown(stella, by="purpose")] == [("training", 1050), ("test", 20)]
    assert [one.cost_micros for one in breakdown(stella, by="model", job_id=chain.job_id)] == [550, 500]
    assert breakdown(charlie, by="model") == []
    with pytest.raises(Invalid):
        breakdown(stella, by="month; DROP TABLE")


def test_the_sums_agree_with_the_budgets_for_any_outcome_of_the_calls(chain: Chain, stella: Any) -> None:
    limits_set(chain, None, None, 1_000)
    spend(chain, "a", 300)
    reserve(hold(chain, "b", 500))
    expire()
    charge_expired()
    settle("b", bill(100))  # refunded
    reserve(hold(chain, "c", 600))
    settle("c", bill(900))  # 300 more than held, of which the job owes
    reserve(hold(chain_open(chain.organization_id), "d", 50))
    expire()
    charge_expired()
    row = Budget.objects.get(id=chain.organization_budget)
    [one] = breakdown(stella, by="model")
    assert one.cost_micros == row.spent_micros + row.debt_micros == 300 + 100 + 900 + 50
    assert one.calls == 4
    job = Budget.objects.get(id=chain.job_budget)
    assert job.debt_micros > 0
    assert [one.cost_micros for one in breakdown(stella, by="job")] == [job.spent_micros + job.debt_micros, 50]


def test_report_breaks_down_by_day_within_a_range(chain: Chain, stella: Any) -> None:
    for day, amount in ((1, 10), (1, 20), (3, 40), (7, 80)):
        spend(chain, f"{day}-{amount}", amount, day=date(2024, 5, day))
    days = breakdown(stella, by="day", since=date(2024, 5, 1), until=date(2024, 5, 3))
    assert [(one.key, one.cost_micros, one.calls) for one in days] == [
        (date(2024, 5, 1), 30, 2),
        (date(2024, 5, 3), 40, 1),
    ]
    budget = Budget.objects.get(id=chain.agent_budget)
    assert daily(budget, date(2024, 5, 3), date(2024, 5, 7)) == [
        (date(2024, 5, 3), 40),
        (date(2024, 5, 4), 0),
        (date(2024, 5, 5), 0),
        (date(2024, 5, 6), 0),
        (date(2024, 5, 7), 80),
    ]


# -- forecast ----------------------------------------------------------------------------------------------------------


def test_a_steady_pace_is_forecast_exactly() -> None:
    assert forecast(700, [100] * 7, 10) == Forecast(700, 1700, 1700, 1700, 7)


def test_the_interval_is_that_of_the_formula() -> None:
    # Mean 200, s^2 = 100, n = 3, m = 4; with two degrees of freedom t is 2.920.
    half = 2.920 * (4 * 100 + 16 * 100 / 3) ** 0.5
    result = forecast(1_000, [190, 200, 210], 4)
    assert (result.middle_micros, result.low_micros, result.high_micros) == (
        1_800,
        round(1_800 - half),
        round(1_800 + half),
    )


def test_a_forecast_is_never_below_the_spending_and_marks_sparse_data() -> None:
    wild = forecast(1_000, [0, 0, 900], 1)
    assert wild.low_micros == 1_000 and wild.high_micros is not None
    for few in ([], [10], [10, 10]):
        assert forecast(5, few, 10) == Forecast(5, 5, None, None, 0)
    three = forecast(5, [10] * 3, 2.5)
    assert (three.middle_micros, three.days) == (30, 3) and three.exceeds(29) and not three.exceeds(30)
    assert not three.exceeds(None)


def test_forecast_averages_seven_days_only() -> None:
    assert forecast(0, [10**6, *[1] * 7], 1).middle_micros == 1


def test_a_month_is_forecast_from_its_last_whole_days(acme: Any) -> None:
    chain = chain_open(acme.id, month=date(2024, 5, 1))
    for day in range(4, 11):
        spend(chain, str(day), 100, day=date(2024, 5, day))
    budget = Budget.objects.get(id=chain.organization_budget)
    result = budget_forecast(budget, now=lambda: datetime(2024, 5, 11, 12, tzinfo=UTC))
    assert (result.spent_micros, result.middle_micros, result.days) == (700, 700 + 2_050, 7)  # 20.5 days are left
    after = budget_forecast(budget, now=lambda: datetime(2024, 6, 2, tzinfo=UTC))
    assert (after.middle_micros, after.low_micros) == (700, None)


def test_days_before_the_first_call_are_no_pace(acme: Any) -> None:
    chain = chain_open(acme.id, month=date(2024, 5, 1))
    for day in (8, 9, 10):
        spend(chain, str(day), 100, day=date(2024, 5, day))
    budget = Budget.objects.get(id=chain.organization_budget)
    assert budget_forecast(budget, now=lambda: datetime(2024, 5, 11, tzinfo=UTC)).middle_micros == 300 + 21 * 100


@pytest.mark.parametrize("days", [(10,), (9, 10), (9, 10, 11)])
def test_nothing_is_forecast_before_three_whole_days_of_spending(acme: Any, days: tuple[int, ...]) -> None:
    """The third day is not over yet, at half past eleven at night."""
    chain = chain_open(acme.id, month=date(2024, 5, 1))
    for day in days:
        spend(chain, str(day), 450_000, day=date(2024, 5, day))
    budget = Budget.objects.get(id=chain.organization_budget)
    result = budget_forecast(budget, now=lambda: datetime(2024, 5, 11, 23, 30, tzinfo=UTC))
    spent = 450_000 * len(days)
    assert result == Forecast(spent, spent, None, None, 0) and not result.exceeds(spent)


def test_a_total_has_no_month(chain: Chain) -> None:
    with pytest.raises(Invalid):
        budget_forecast(Budget.objects.get(id=chain.job_budget))


@pytest.mark.parametrize(
    "text",
    [
        "=1",
        "+1",
        "-1",
        "@x",
        "\t=1",
        "\r1",
        "\n=1",
        " =1",
        " \n @x",
        "＝1",
        "＋1",
        "－1",
        "＠x",
        "\u3000＝1",
        "\ufeff=1",
        "\x00-1",
    ],
)
def test_a_cell_that_a_spreadsheet_would_run_is_text(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_line([text, "a=1", -1, None]).decode(), newline=""))
    assert row == [f"'{text}", "a=1", "-1", ""]


# -- CSV ---------------------------------------------------------------------------------------------------------------


async def joined(export: Any) -> bytes:
    return b"".join([part async for part in ledger_csv(export)])


def test_the_ledger_leaves_as_csv_and_the_export_is_logged(chain: Chain, dan: Any) -> None:
    spend(chain, "a", 300, model="=cmd|' /C calc'!A0")
    spend(chain, "b", 500)
    export = ledger_export_start(Actor(dan), since=date.today() - timedelta(days=1))
    rows = list(csv.DictReader(io.StringIO(async_to_sync(joined)(export).decode())))
    assert [row["kind"] for row in rows] == ["reserve", "settle"] * 2
    assert rows[1]["model"].startswith("'=cmd")
    assert rows[3] | {"cost_micros": "500", "input_tokens": "100", "job_id": str(chain.job_id)} == rows[3]
    assert AuditEvent.objects.get(action="ledger.exported").actor == "dan"


def test_an_export_goes_on_batch_by_batch(chain: Chain, dan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("budgets.exports.BATCH", 3)
    for n in range(5):
        spend(chain, str(n), 10)
    lines = async_to_sync(joined)(ledger_export_start(Actor(dan))).decode().splitlines()
    ids = [int(line.split(",")[0]) for line in lines[1:]]
    assert len(ids) == 10 and ids == sorted(set(ids))


def test_an_export_holds_only_what_its_reader_may_see(chain: Chain, job: Job, charlie: Any, dan: Any) -> None:
    spend(chain, "a", 300)
    spend(chain_open(chain.organization_id), "b", 300)
    with pytest.raises(Missing):
        ledger_export_start(Actor(charlie), job=job)
    assert async_to_sync(joined)(ledger_export_start(Actor(charlie))).count(b"\n") == 1
    assert async_to_sync(joined)(ledger_export_start(Actor(dan), job=job)).count(b"\n") == 3
    with pytest.raises((Missing, Forbidden)):
        ledger_export_start(Actor(dan, scopes=frozenset({"training:start"})))


def test_sums_leave_as_csv(chain: Chain, stella: Any) -> None:
    spend(chain, "a", 300)
    assert breakdown_csv("model", breakdown(stella, by="model")).decode().splitlines() == [
        "model,cost_micros,calls,input_tokens,output_tokens,cached_tokens,estimated_calls",
        "small,300,1,100,20,10,0",
    ]
    assert csv_line(["@x", 'a"b', None, 1]) == b"""'@x,"a""b",,1\r\n"""


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (500_000, "$0.50"),
        (123, "$0.000123"),
        (1_234_567_890_000, "$1,234,567.89"),
        (-1_500_000, "−$1.50"),
    ],
)
def test_money_reads_like_money(amount: int, text: str) -> None:
    assert money(amount) == text
