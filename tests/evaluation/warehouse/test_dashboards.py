"""Dashboards as people and programs read them, with and without a warehouse, and health and erasure of it."""

from __future__ import annotations

import csv
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from prometheus_client import generate_latest

from agentcore_site.lib.errors import Conflict
from agentcore_site.prometheus import from_database
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from evaluation.warehouse.clickhouse.client import ClickHouseStore
from evaluation.warehouse.dashboards import DASHBOARDS
from evaluation.warehouse.health import warehouse as health
from evaluation.warehouse.loading import fill
from evaluation.warehouse.models import RowChange
from evaluation.warehouse.rollups import roll_up
from evaluation.warehouse.tasks import fill_task, roll_up_task
from experiences.models import Agent, TrajectoryRecord
from tests.evaluation.warehouse.rows import lived
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import lived_run

pytestmark = pytest.mark.django_db
NOW = {"began": timezone.now() - timedelta(hours=5)}
EMPTY = "http://127.0.0.1:9/agentcore"  # where nothing answers


@pytest.fixture
def console(olivia: Any) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(olivia)
    return client


@pytest.mark.parametrize("key", DASHBOARDS)
def test_a_page_a_file_and_a_program_say_the_same(
    key: str, console: Client, olivia: Any, operator: Actor, agent: Agent
) -> None:
    lived_run(operator, agent)
    lived(agent, 30, **NOW)
    roll_up_task()
    page = html(console.get(f"/dashboards/{key}/"))
    answered = Caller(olivia).get(f"dashboards/{key}").json()
    assert (answered["dashboard"], answered["figures_from"]) == (key, "rollups")
    for chart in answered["charts"]:
        assert chart["rows"] or chart["key"] == "arms", chart["key"]
        assert chart["title"] in page
        content = console.get(f"/dashboards/{key}/{chart['key']}.csv").content.decode()
        head, *lines = csv.reader(content.splitlines())
        assert head == [column["key"] for column in chart["columns"]] and len(lines) == len(chart["rows"])
        for line, row in zip(lines, chart["rows"], strict=True):
            for column, cell in zip(chart["columns"], line, strict=True):
                value = row[column["key"]]
                if column["unit"] in ("count", "number", "share", "usd", "seconds"):
                    assert (None if cell == "" else float(cell)) == value
    assert f"/agents/{agent.pk}/" in page


def test_filters_narrow_and_what_is_wrong_is_refused(olivia: Any, charlie: Any, agent: Agent, console: Client) -> None:
    lived(agent, 20, **NOW)
    lived(agent, 10, purpose="evaluation", **NOW)
    lived(agent, 5, began=timezone.now() - timedelta(days=60))
    roll_up()
    asks = Caller(olivia)

    def trajectories(**query: str) -> int:
        rows = asks.get("dashboards/trajectories", **query).json()["charts"][4]["rows"]
        return sum(row["trajectories"] for row in rows)

    assert trajectories() == 30
    assert trajectories(purpose="evaluation") == 10
    assert trajectories(agent=agent.slug, period="day") == 30
    assert trajectories(period="all") == 35
    for query in ({"period": "year"}, {"purpose": "fun"}, {"more": "1"}):
        assert asks.get("dashboards/trajectories", **query).status_code == 400
    for path in ("dashboards/nothing", "dashboards/rewards?agent=nobody"):
        assert asks.get(path).status_code == 404
    stranger = Caller(charlie)
    assert stranger.get("dashboards/rewards", agent=str(agent.pk)).status_code == 404
    assert not any(chart["rows"] for chart in stranger.get("dashboards/rewards").json()["charts"])
    assert "No data in this period" in html(console.get("/dashboards/rewards/?purpose=received"))


def test_a_fresh_site_says_what_to_do(console: Client, agent: Agent) -> None:
    page = html(console.get("/dashboards/"))
    assert "No trajectory in the last 30 days" in page and "See the jobs" in page


def test_dashboards_ask_the_warehouse_and_fall_back(
    warehouse: ClickHouseStore, served: str, olivia: Any, console: Client, agent: Agent, settings: Any
) -> None:
    lived(agent, 40, **NOW)
    roll_up()
    asks = Caller(olivia)
    assert asks.get("dashboards/rewards").json()["figures_from"] == "warehouse"
    # What was there when it was set up is not all sent yet.
    call_command("warehouse_setup", "--again")
    assert "is being filled" in html(console.get("/dashboards/rewards/"))
    fill_task()
    full = asks.get("dashboards/rewards").json()
    assert (full["figures_from"], full["behind_seconds"]) == ("warehouse", 0)
    assert health()[:2] == ("ok", "answers")
    # It goes away: the page says so, and counts.
    settings.CLICKHOUSE_URL = EMPTY
    lived(agent, 3, seed=1, **NOW)
    roll_up()
    before = full["charts"][3]["rows"][0]["rewarded"]
    away = asks.get("dashboards/rewards").json()
    assert away["figures_from"] == "rollups"
    assert away["charts"][3]["rows"][0]["rewarded"] > before
    assert "The warehouse does not answer" in html(console.get("/dashboards/rewards/"))
    assert health().status == "degraded" and fill_task() == 0
    assert b'warehouse_lag_seconds{sink="warehouse"}' in generate_latest(from_database())
    assert RowChange.objects.filter(sink="warehouse").exists()
    # And comes back.
    settings.CLICKHOUSE_URL = served
    cache.clear()
    assert fill_task() == 3
    back = asks.get("dashboards/rewards").json()
    assert back["figures_from"] == "warehouse"
    assert back["charts"][3]["rows"][0]["rewarded"] == away["charts"][3]["rows"][0]["rewarded"]


def test_a_warehouse_is_set_up_and_given_up_by_one_command(
    warehouse: ClickHouseStore, settings: Any, agent: Agent
) -> None:
    call_command("warehouse_setup", "--off")
    lived(agent, 2)
    assert not RowChange.objects.filter(sink="warehouse").exists()
    settings.CLICKHOUSE_URL = EMPTY
    with pytest.raises(CommandError, match="does not answer"):
        call_command("warehouse_setup")
    settings.CLICKHOUSE_URL = ""
    with pytest.raises(CommandError, match="CLICKHOUSE_URL"):
        call_command("warehouse_setup")


def test_an_erasure_takes_words_from_the_disk_of_the_warehouse(
    warehouse: ClickHouseStore, agent: Agent, adam: Any, settings: Any, served: str
) -> None:
    lived(agent, 12, query='Ask j.doe@"x" at once')
    lived(agent, 5, seed=1)
    fill(warehouse)
    TrajectoryRecord.objects.filter(scenario=0).update(reward=0.5)  # and an older version of it stays behind
    fill(warehouse)
    roll_up()
    count = "SELECT count() AS n FROM trajectories WHERE position(query, 'j.doe') > 0"
    assert warehouse.execute(count)[0]["n"] >= 12

    settings.CLICKHOUSE_URL = EMPTY
    with pytest.raises(Conflict, match="does not answer"):
        subject_erase(Actor(adam), ['j.doe@"x"'])
    settings.CLICKHOUSE_URL = ""
    with pytest.raises(Conflict, match="CLICKHOUSE_URL"):
        subject_erase(Actor(adam), ['j.doe@"x"'])
    settings.CLICKHOUSE_URL = served
    report = subject_erase(Actor(adam), ['J.DOE@"x"'])
    assert report.found["warehouse"] >= 12 and report.left["warehouse"] == 0
    assert warehouse.execute(count)[0]["n"] == 0
    fill(warehouse)
    assert warehouse.execute("SELECT count() AS n FROM trajectories FINAL") == [{"n": 5}]
