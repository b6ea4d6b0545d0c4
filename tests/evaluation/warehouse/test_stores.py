"""PostgreSQL's roll-ups, chdb in process and ClickHouse over HTTP say the same, and nothing is stored twice."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from budgets.models import Budget
from evaluation.warehouse import loading
from evaluation.warehouse.clickhouse.client import ClickHouseStore
from evaluation.warehouse.clickhouse.transports import WarehouseRefused, WarehouseUnavailable
from evaluation.warehouse.dashboards import DASHBOARDS, DashboardQuestion
from evaluation.warehouse.loading import fill, warehouse_setup
from evaluation.warehouse.models import HourlyMeasure, RowChange
from evaluation.warehouse.rollups import RollupStore, roll_up
from evaluation.warehouse.selectors import BEGINNING, _charts
from experiences.models import Agent, TrajectoryRecord
from tests import factories
from tests.evaluation.warehouse.rows import BEGAN, lived
from tests.support.rows import lived_run

pytestmark = pytest.mark.django_db

SPANS = [("0", 0, 1), ("1", 1, 2), ("2", 2, 4), ("4", 4, 8), ("8", 8, 16)]


def figures(store: Any, organization: Organization, **asked: Any) -> dict[str, Any]:
    """All that all dashboards say."""
    question = DashboardQuestion(organization.pk, asked.pop("since", BEGINNING), **asked)
    return {
        f"{key}/{one.chart.key}": one.rows
        for key, board in DASHBOARDS.items()
        for one in _charts(store, board, question)
    }


def close(found: Any, wanted: Any) -> bool:
    """Equal; sums of floating point numbers but for their order, in which they were added."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(close(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(wanted, str | datetime | date) or wanted is None or found is None:
        return bool(found == wanted)
    if hasattr(wanted, "hex") and not isinstance(wanted, float):
        return bool(found == wanted)
    return math.isclose(float(found), float(wanted), rel_tol=1e-9, abs_tol=1e-6)


@pytest.fixture
def stores(warehouse: ClickHouseStore, in_process: ClickHouseStore) -> dict[str, Any]:
    return {"rollups": RollupStore(), "chdb": in_process, "http": warehouse}


@pytest.mark.parametrize(
    "asked",
    [{}, {"hourly": True}, {"purpose": "evaluation"}, {"since": BEGAN + timedelta(days=1)}],
    ids=["days", "hours", "one purpose", "later"],
)
def test_three_stores_say_the_same(
    stores: dict[str, Any], operator: Actor, agent: Agent, elsewhere: Organization, asked: dict[str, Any]
) -> None:
    acme = agent.organization
    lived_run(operator, agent)
    lived(agent, 200)
    for arm in ("baseline", "trained"):
        lived(agent, 60, seed=1, purpose="evaluation", arm=arm, line="held_out")
    other = factories.AgentFactory(organization=acme)
    lived(other, 40, seed=2, purpose="received")
    lived(other, 160, seed=4, purpose="evaluation", arm="trained")
    lived(factories.AgentFactory(organization=elsewhere), 30, seed=3)
    roll_up()
    fill(stores["http"])
    values = {name: figures(store, acme, **asked) for name, store in stores.items()}
    assert sum(len(rows) for rows in values["rollups"].values()) > 20
    for name in ("chdb", "http"):
        for chart, rows in values["rollups"].items():
            assert close(values[name][chart], rows), f"{chart} of {name}: {values[name][chart]}\n{rows}"
    one = {name: figures(store, acme, agent=agent.pk, **asked) for name, store in stores.items()}
    assert close(one["http"], one["rollups"]) and one["http"] != values["http"]
    # And a stranger has no row of it.
    theirs = figures(stores["http"], elsewhere, **asked)
    assert close(theirs, figures(stores["rollups"], elsewhere, **asked)) and not close(theirs, values["http"])


def test_a_table_is_asked_for_its_first_rows_alone(stores: dict[str, Any], operator: Actor, agent: Agent) -> None:
    acme = agent.organization
    agents = [agent, *factories.AgentFactory.create_batch(3, organization=acme)]
    for number, one in enumerate(agents):
        lived(one, 10 + number)
    for one in (agents[2], agents[1], agents[2]):
        lived_run(operator, one)
    roll_up()
    fill(stores["http"])
    asked, seen = DashboardQuestion(acme.pk, BEGINNING), 0
    for name, store in stores.items():
        for board in DASHBOARDS.values():
            for whole, part in zip(_charts(store, board, asked), _charts(store, board, asked, 1), strict=True):
                if not whole.chart.query.first:
                    assert close(part.rows, whole.rows) and part.more == 0
                    continue
                first = {key: value for key, value in part.rows[0].items() if key != "groups"}
                assert close([first], whole.rows[:1]) and part.more == len(whole.rows) - 1 > 0, (name, board.key)
                seen += 1
    assert seen == 3 * len(stores)


def test_the_money_of_trainings_is_that_of_their_budgets(operator: Actor, agent: Agent) -> None:
    run = lived_run(operator, agent)
    Budget.objects.filter(job=run.job).update(spent_micros=7_000_000)
    [row] = figures(RollupStore(), agent.organization)["training/agents"]
    assert (row["trainings"], row["cost_usd"]) == (1, 7.0)


def test_figures_are_those_of_the_rows(agent: Agent) -> None:
    """By plain arithmetic over the rows themselves."""
    lived(agent, 100)
    roll_up()
    result = figures(RollupStore(), agent.organization)
    rows = list(TrajectoryRecord.objects.all())
    rewards = [row.reward for row in rows if row.reward is not None and abs(row.reward) < 1e100]
    [quality] = result["trajectories/agents"]
    assert quality["trajectories"] == 100
    assert quality["success_rate"] == sum(row.success for row in rows) / 100
    assert quality["cut_off_rate"] == sum(row.truncated for row in rows) / 100
    assert quality["cost_usd"] == pytest.approx(sum(row.cost_micros for row in rows) / 1e6)
    [paid] = result["rewards/agents"]
    mean = sum(rewards) / len(rewards)
    assert (paid["rewarded"], paid["reward_mean"]) == (len(rewards), pytest.approx(mean))
    assert sum(row["trajectories"] for row in result["rewards/distribution"]) == len(rewards)
    steps = {row["from"]: row["trajectories"] for row in result["trajectories/steps"]}
    assert steps == {name: sum(low <= row.n_steps < high for row in rows) for name, low, high in SPANS}
    assert {row["component"] for row in result["rewards/components"]} == {"outcome", "ünïcode"}


def test_a_repeated_insert_is_stored_once(
    warehouse: ClickHouseStore, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "KEYS", 50)
    lived(agent, 180)
    insert, calls = warehouse.insert, []

    def dies(table: str, lines: Any) -> None:
        """The rows are stored, and the answer is lost: each third time."""
        insert(table, lines)
        calls.append(table)
        if len(calls) % 3 == 1:
            raise WarehouseUnavailable("killed between the insert and the mark")

    monkeypatch.setattr(warehouse, "insert", dies)
    for _ in range(30):
        try:
            fill(warehouse)
        except WarehouseUnavailable:
            continue
        break
    monkeypatch.undo()
    assert not RowChange.objects.filter(sink="warehouse").exists()
    warehouse_setup(warehouse, again=True)  # and all of it once more
    fill(warehouse)
    [found] = warehouse.execute("SELECT count() AS n, uniqExact(id) AS ids FROM trajectories FINAL")
    assert found == {"n": 180, "ids": 180}
    roll_up()
    assert close(figures(warehouse, agent.organization), figures(RollupStore(), agent.organization))


def test_a_later_reward_and_a_deletion_reach_both(warehouse: ClickHouseStore, agent: Agent) -> None:
    lived(agent, 60)
    roll_up()
    fill(warehouse)
    before = figures(warehouse, agent.organization)
    rows = TrajectoryRecord.objects.order_by("created_at")
    unpaid = rows.filter(reward=None).first()
    assert unpaid is not None
    TrajectoryRecord.objects.filter(id=unpaid.pk).update(reward=0.25)
    gone = rows.filter(reward__lt=0).values_list("id", flat=True)
    ids = list(gone)
    TrajectoryRecord.objects.filter(id__in=ids)._raw_delete("default")
    roll_up()
    fill(warehouse)
    after = figures(warehouse, agent.organization)
    assert close(after, figures(RollupStore(), agent.organization))
    assert after["trajectories/agents"][0]["trajectories"] == 60 - len(ids)
    assert after["rewards/agents"][0]["rewarded"] == before["rewards/agents"][0]["rewarded"] - len(ids) + 1
    # Not out of sight: off the disk.
    [left] = warehouse.execute(
        "SELECT count() AS n FROM trajectories WHERE is_deleted = 0 AND id IN {ids:Array(UUID)}", {"ids": ids}
    )
    assert left["n"] == 0


def test_a_late_copy_brings_no_deleted_row_back(warehouse: ClickHouseStore, agent: Agent) -> None:
    lived(agent, 1)
    change = RowChange.objects.get(sink="warehouse")
    fill(warehouse)
    TrajectoryRecord.objects.all()._raw_delete("default")
    fill(warehouse)
    line = '{"organization_id":"%s","hour":"%s","id":"%s","version":1,"query":"late"}'  # sent before, stored after
    warehouse.insert(
        "trajectories", [line % (change.organization_id, f"{change.hour:%Y-%m-%d %H:%M:%S}", change.keys[0])]
    )
    assert warehouse.execute("SELECT count() AS n FROM trajectories FINAL") == [{"n": 0}]


def test_nothing_is_noted_for_a_warehouse_that_is_not_there(agent: Agent) -> None:
    lived(agent, 5)
    assert set(RowChange.objects.values_list("sink", flat=True)) == {"rollups"}
    assert list(RowChange.objects.values_list("keys", flat=True)) == [[]] * RowChange.objects.count()
    hours = roll_up()
    assert hours == 2 and roll_up() == 0 and HourlyMeasure.objects.exists()


def test_values_are_bound_and_never_read_as_sql(warehouse: ClickHouseStore) -> None:
    for text in ("x' OR 1 = 1 --", "tab\there", "back\\slash", "line\nbreak", "\\'", "日本", ""):
        given = {"one": text, "many": [text, text]}
        [found] = warehouse.execute("SELECT {one:String} AS one, {many:Array(String)} AS many", given)
        assert found == given
    with pytest.raises(WarehouseRefused, match="UUID"):
        warehouse.execute("SELECT {one:UUID} AS one", {"one": "' OR 1 = 1"})
    with pytest.raises(WarehouseRefused, match="nowhere"):
        warehouse.execute("SELECT 1 FROM nowhere")


def test_rows_that_were_there_before_are_sent(
    in_process: ClickHouseStore, agent: Agent, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "KEYS", 7)
    lived_run(operator, agent)
    lived(agent, 40)
    assert warehouse_setup(in_process) and not warehouse_setup(in_process)
    fill(in_process)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, query, steps::text FROM experiences_trajectory")
        rows = set(cursor.fetchall())
    stored = in_process.execute("SELECT id, query, steps FROM trajectories FINAL")
    assert {tuple(one.values()) for one in stored} == rows and len(rows) == 64
    assert in_process.execute("SELECT count() AS n FROM warehouse_training") == [{"n": 1}]
