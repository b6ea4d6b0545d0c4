"""The search for a text in queries: it finds what ``icontains`` finds, whose rows, and an index serves it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import QuerySet

from agentcore_site.lib import row_scope
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from experiences.models import Agent, QueryRecord, TrajectoryRecord
from experiences.trajectories.query_search import query_with
from experiences.trajectories.storage import TrajectoryScope, trajectories_write
from tests import factories
from tests.support.callers import Caller
from tests.support.owner import as_owner
from tests.support.pages import html
from tests.support.plans import indexes_read
from tests.support.rows import lived_run, owner_of, trajectory
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

INDEX = "experiences_query_by_text"

QUERIES = (
    "Where does the quagga live?",
    "QUAGGAS, 100% of them",
    "100 percent of quagg_s",
    r"a path: C:\quagga\herd",
    "Straße nach Łódź, über Ærø",
    "ΟΔΟΣ οδοσ οδος ΟΔΟΣΑ",
    "クアッガはどこに住んでいますか",
    "it's a \"quoted\" thing; -- 'q'",
    "x",
    "",
)
TEXTS = (
    *("quagga", "QUAGGA", "uagg", "quagga live", "a live?", "the  quagga", "zebra"),
    *("100%", "0% of", "%", "quagg_s", "g_s", "_", r"C:\quagga", "\\", r"\quagga\h", r"\%"),
    *("straße", "STRASSE", "łódź", "ÜBER", "ærø", "οδος", "ΟΔΟΣ", "δοσ", "οδοσα", "クアッガ", "どこ"),
    *("'q'", '"quoted"', "; --", "x", "qu", "ga", "?", "C:"),
)


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    made = lived_run(operator, agent)
    trajectories_write(owner_of(made), [trajectory(7, n, 0, query, True) for n, query in enumerate(QUERIES)])
    return made


def found_by_each(rows: QuerySet[TrajectoryRecord]) -> dict[str, set[str]]:
    """By a list and by a count, which are asked differently."""
    values = {}
    for text in TEXTS:
        listed = list(query_with(rows, text).values_list("query", flat=True))
        values[text] = set(listed)
        assert query_with(rows, text).count() == len(listed)
    return values


def found_by_icontains(rows: QuerySet[TrajectoryRecord]) -> dict[str, set[str]]:
    return {text: set(rows.filter(query__icontains=text).values_list("query", flat=True)) for text in TEXTS}


def test_each_text_finds_what_icontains_finds(run: TrainingRun) -> None:
    rows = TrajectoryRecord.objects.filter(job_id=run.pk)
    result = found_by_each(rows)
    assert result == found_by_icontains(rows)
    assert result["quagga"] == {QUERIES[0], QUERIES[1], QUERIES[3]}
    assert result["quagg_s"] == {QUERIES[2]} and result["100%"] == {QUERIES[1]}
    assert result[r"\quagga\h"] == {QUERIES[3]} and result["ÜBER"] == {QUERIES[4]} and result["どこ"] == {QUERIES[6]}


def test_a_search_by_the_index_finds_the_same(run: TrainingRun) -> None:
    rows = TrajectoryRecord.objects.filter(created_at__isnull=False)  # no other index has an answer
    expected = found_by_icontains(rows)
    with connection.cursor() as cursor, row_scope.only(owner_of(run).organization_id):
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
        assert INDEX in indexes_read(query_with(rows, "quagga"))
        assert found_by_each(rows) == expected


def test_a_frequent_text_is_searched_in_the_rows_themselves(operator: Actor, acme: Organization) -> None:
    agent = factories.AgentFactory(organization=acme)
    one = owner_of(lived_run(operator, agent))
    many = [trajectory(100 + n, 0, 0, f"Where does animal {n} live?", True) for n in range(20_000)]
    trajectories_write(one, many)
    with connection.cursor() as cursor, as_owner():
        cursor.execute("ANALYZE experiences_query")
    with row_scope.only(acme.pk):
        common, rare = (query_with(TrajectoryRecord.objects.all(), text) for text in ("does animal", "animal 1999"))
        assert "experiences_query" not in str(common.query) and "experiences_query" in str(rare.query)
        assert common.count() == 20_000 and rare.count() == 11


def test_a_query_is_stored_once_for_its_place_and_as_long_as_a_trajectory_has_that_query(
    operator: Actor, agent: Agent
) -> None:
    one = owner_of(lived_run(operator, agent))
    other = replace(one, purpose="evaluation", line="held_out")

    def stored() -> list[str]:
        return sorted(QueryRecord.objects.filter(job_id=one.job_id, iteration=7).values_list("query", flat=True))

    for rollout in range(8):  # one after the other, as they end
        trajectories_write(one, [trajectory(7, 0, rollout, "Where does the quagga live?", True)])
    assert stored() == ["Where does the quagga live?"]
    trajectories_write(other, [trajectory(7, 0, n, "Does the quagga sleep?", True) for n in range(2)])
    assert stored() == ["Does the quagga sleep?", "Where does the quagga live?"]

    rows = TrajectoryRecord.objects.filter(job_id=one.job_id, iteration=7)
    assert query_with(rows, "quagga live").count() == 8 and query_with(rows, "quagga").count() == 10
    rows.filter(rollout__gt=0)._raw_delete("default")
    assert stored() == ["Does the quagga sleep?", "Where does the quagga live?"]
    rows.filter(purpose="evaluation")._raw_delete("default")
    assert stored() == ["Where does the quagga live?"]
    rows.all()._raw_delete("default")
    assert stored() == []


def test_rows_from_before_stored_queries_are_filled_in(run: TrainingRun) -> None:
    before = set(QueryRecord.objects.values_list("month", "job_id", "iteration", "scenario", "digest", "query"))
    assert len(before) > len(QUERIES)
    QueryRecord.objects.all()._raw_delete("default")
    with connection.schema_editor(atomic=False) as editor:
        import_module("experiences.migrations.0030_queries_filled").fill(apps, editor)
    assert set(QueryRecord.objects.values_list("month", "job_id", "iteration", "scenario", "digest", "query")) == before


def test_the_search_can_be_part_of_another_query(run: TrainingRun) -> None:
    inner = query_with(TrajectoryRecord.objects.filter(job_id=run.pk), "quagga live").values("pk")
    assert [row.query for row in TrajectoryRecord.objects.filter(pk__in=inner)] == [QUERIES[0]]
    assert TrajectoryRecord.objects.filter(job_id=run.pk).exclude(pk__in=inner).count() == 24 + len(QUERIES) - 1


def test_rest_and_the_console_search_by_query(olivia: Any, client: Any, run: TrainingRun) -> None:
    [one] = Caller(olivia).get("trajectories", search="Quagga LIVE").json()["results"]
    assert one["query"] == QUERIES[0]
    client.force_login(olivia)
    shown = html(client.get("/trajectories/?q=quagga+live"))
    assert QUERIES[0] in shown and "QUAGGAS" not in shown


def test_a_stranger_finds_nothing_by_the_filter_nor_past_the_filter(charlie: Any, run: TrainingRun) -> None:
    assert Caller(charlie).get("trajectories", search="quagga").json()["results"] == []
    with row_scope.only(*Actor(charlie).organization_ids):  # and not by the wall in the database either
        assert not query_with(TrajectoryRecord.objects.all(), "quagga").exists()
        assert not QueryRecord.objects.exists()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM experiences_query_search WHERE upper_query LIKE '%QUAGGA%'")
            assert cursor.fetchone() == (0,)


def test_an_index_serves_the_search_of_queries_under_the_policy_of_rows(operator: Actor, acme: Organization) -> None:
    agent = factories.AgentFactory(organization=acme)
    one = owner_of(lived_run(operator, agent))
    for copy in range(100):
        many = [trajectory(100 + copy, 0, n, f"Where does animal {copy}.{n} live?", True) for n in range(100)]
        trajectories_write(TrajectoryScope(one.job_id, acme.pk, agent.pk, one.month, line=str(copy)), many)
    trajectories_write(one, [trajectory(50, 0, 0, "Where does the quagga live?", True)])
    with connection.cursor() as cursor, as_owner():
        cursor.execute("ANALYZE experiences_trajectory; ANALYZE experiences_query")
    with row_scope.only(acme.pk):
        result = query_with(TrajectoryRecord.objects.filter(organization_id=acme.pk), "quagga")
        assert result.count() == 1
        served = indexes_read(result)
    assert INDEX in served
