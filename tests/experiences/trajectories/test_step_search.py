"""The search inside of steps: what it finds, whose rows, what it does not look at, and that indexes serve it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from agentcore_site.encryption.services import key_rotate
from agentcore_site.lib import row_scope
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from experiences.models import Agent, TrajectoryRecord
from experiences.rollouts.types import Step, Trajectory
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.selectors import trajectories_visible
from experiences.trajectories.step_search import step_errors_with, steps_with, tool_used
from experiences.trajectories.storage import TrajectoryScope, trajectories_write
from tests import factories
from tests.support.callers import Caller
from tests.support.owner import as_owner
from tests.support.plans import indexes_read
from tests.support.rows import lived_run, owner_of, trajectory
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


def odd(rollout: int, **result: Any) -> Trajectory:
    """A rollout whose one step used the tool `atlas.search` and brought ``result``."""
    plain = trajectory(7, 50, rollout, "where is it?", False)
    action = {"type": "tool", "tool": "atlas.search", "parameters": {"place": "Kilwa Kisiwani"}}
    return replace(plain, steps=[Step({"observation": "quagga"}, action, result, duration_ms=1.0)])


@pytest.fixture
def rows(run: TrainingRun) -> dict[str, Any]:
    made = {
        "failed": odd(0, success=False, output="", error="the gazetteer timed out"),
        "found": odd(1, success=True, output="an island; the gazetteer knows it", error=""),
    }
    trajectories_write(owner_of(run), list(made.values()))
    return {name: owner_of(run).id_of(one.key) for name, one in made.items()}


def passing(actor: Actor, **filters: Any) -> set[Any]:
    return {row.pk for row in trajectories_filtered(trajectories_visible(actor), actor, filters)}


def test_search_finds_words_of_results_errors_and_parameters(operator: Actor, rows: dict[str, Any]) -> None:
    both = {rows["failed"], rows["found"]}
    assert passing(operator, words="gazetteer") == both
    assert passing(operator, words="Gazetteer ISLAND") == {rows["found"]}
    assert passing(operator, words="kisiwani") == both
    assert passing(operator, words='"gazetteer timed"') == {rows["failed"]}
    assert passing(operator, words="gazetteer -island") == {rows["failed"]}
    assert passing(operator, words="gazette") == set()  # whole words
    assert passing(operator, words="quagga") == set()  # what it saw is what came back before, or the query
    assert passing(operator, words='"') == set()


def test_the_search_can_be_part_of_another_query(rows: dict[str, Any]) -> None:
    inner = steps_with(TrajectoryRecord.objects.all(), "island").values("pk")
    assert [row.pk for row in TrajectoryRecord.objects.filter(pk__in=inner)] == [rows["found"]]
    assert set(TrajectoryRecord.objects.filter(pk__in=rows.values()).exclude(pk__in=inner)) == {
        TrajectoryRecord.objects.get(pk=rows["failed"])
    }


def test_search_finds_tools_those_that_failed_and_words_of_errors_alone(operator: Actor, rows: dict[str, Any]) -> None:
    assert passing(operator, tool="atlas.search") == {rows["failed"], rows["found"]}
    assert passing(operator, tool="atlas") == set()
    assert passing(operator, failed_tool="atlas.search") == {rows["failed"]}
    assert (
        passing(operator, step_error="gazetteer")
        == passing(operator, step_error="gazetteer -island")
        == {rows["failed"]}
    )
    assert passing(operator, words="gazetteer", tool="int_calc") == set()


def test_rest_filters_by_them(olivia: Any, rows: dict[str, Any]) -> None:
    api = Caller(olivia)
    [one] = api.get("trajectories", step_error="gazetteer", outcome="failure").json()["results"]
    assert one["trajectory_id"] == str(rows["failed"])


def test_a_stranger_finds_nothing_by_the_filter_nor_past_the_filter(charlie: Any, rows: dict[str, Any]) -> None:
    assert Caller(charlie).get("trajectories", words="gazetteer").json()["results"] == []
    actor = Actor(charlie)
    with row_scope.only(*actor.organization_ids):  # and not by the wall in the database either
        assert not steps_with(TrajectoryRecord.objects.all(), "gazetteer").exists()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM experiences_trajectory_search")
            assert cursor.fetchone() == (0,)


def test_the_view_is_read_only(run: TrainingRun) -> None:
    from django.db import ProgrammingError, transaction

    for statement in ("DELETE FROM experiences_trajectory_search", "UPDATE experiences_trajectory_search SET id = id"):
        with pytest.raises(ProgrammingError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_encrypted_steps_are_not_searched(operator: Actor, acme: Organization, adam: Any, run: TrainingRun) -> None:
    key_rotate(Actor(adam), acme)
    trajectories_write(owner_of(run), [odd(3, success=False, output="", error="the gazetteer timed out")])
    assert passing(operator, words="gazetteer") == passing(operator, tool="atlas.search") == set()


def test_steps_of_many_megabytes_are_stored_and_their_beginning_is_found(operator: Actor, run: TrainingRun) -> None:
    long = " ".join(f"word{n}" for n in range(400_000))
    trajectories_write(owner_of(run), [odd(4, success=True, output=f"{long} omega", error="")])
    assert passing(operator, words="word17") == {owner_of(run).id_of(odd(4).key)}
    assert passing(operator, words="omega") == set()


INDEXES = {"words": "step_words", "tool": "jsonb_path_query_array", "errors": "step_error_words"}


@pytest.mark.parametrize("asked", INDEXES)
def test_an_index_serves_the_search_of_steps_under_the_policy_of_rows(
    asked: str, operator: Actor, acme: Organization
) -> None:
    agent = factories.AgentFactory(organization=acme)
    run = lived_run(operator, agent)
    one = owner_of(run)
    for copy in range(30):
        if asked == "errors":  # what the errors of one say, the results of all others do
            many = [odd(n, success=True, output="the gazetteer knows it", error="") for n in range(100)]
        else:
            many = [trajectory(copy, 0, n, "many", True) for n in range(100)]
        trajectories_write(TrajectoryScope(one.job_id, acme.pk, agent.pk, one.month, line=str(copy)), many)
    trajectories_write(one, [odd(0, success=asked != "errors", output="gazetteer", error="gazetteer")])
    with connection.cursor() as cursor, as_owner():
        cursor.execute("ANALYZE experiences_trajectory")
    rows = TrajectoryRecord.objects.filter(organization_id=acme.pk)
    search = {"words": steps_with, "tool": tool_used, "errors": step_errors_with}[asked]
    result = search(rows, "atlas.search" if asked == "tool" else "gazetteer")
    with row_scope.only(acme.pk):
        assert result.count() == 1
        served = indexes_read(result)
    assert any(INDEXES[asked] in index for index in served), served
    assert asked != "errors" or not any(INDEXES["words"] in index for index in served), served
