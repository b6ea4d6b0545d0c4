"""Trajectories in and out of PostgreSQL: nothing is lost on the way, and what can't be stored is made storable."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import date
from typing import Any

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore_site.ids import derived, uuid7
from experiences.models import TrajectoryRecord
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup
from experiences.trajectories.storage import (
    TrajectoryScope,
    as_trajectory,
    groups_write,
    last_kept_iteration,
    partition_ensure,
    trajectories_kept,
    trajectories_write,
)

pytestmark = pytest.mark.django_db

MONTH = date(2026, 5, 1)


def owner() -> TrajectoryScope:
    return TrajectoryScope(uuid7(), uuid7(), uuid7(), MONTH)


def trajectory(**values: Any) -> Trajectory:
    steps = [
        Step(
            state={"observation": "", "done": [], "mask": "110"},
            action={"type": "tool", "tool": "gcd", "parameters": {}},
            result={"success": True, "output": "12", "error": None},
            timestamp=1_780_000_000.125,
            duration_ms=0.25,
            reward=-0.01,
            choice=1,
            logprob=math.log(1 / 3),
        )
    ]
    given = {"key": RolloutKey(3, 7, 1), "query": "q", "steps": steps, "reward": 0.99, "started_at": 1_780_000_000.125}
    return Trajectory(**(given | values))


def test_trajectories_are_read_back_as_written_to_the_bit() -> None:
    whose = owner()
    one = trajectory(success=True, outcome=1.0, components={"outcome": 1.0}, evidence={"answer": "12"}, duration_ms=1.5)
    trajectories_write(whose, [one])
    assert asdict(trajectories_kept(whose, iteration=3)[one.key]) == asdict(one)
    assert last_kept_iteration(whose) == 3


def test_the_name_of_a_released_model_is_kept_whole() -> None:
    whose, name = owner(), f"{'m' * 120}@{'0' * 64}"
    trajectories_write(whose, [one := trajectory(model=name)])
    assert trajectories_kept(whose, iteration=3)[one.key].model == name


def test_a_reward_that_could_not_be_scored_comes_back_as_nan() -> None:
    whose = owner()
    trajectories_write(whose, [trajectory(reward=math.nan, error="reward: ValueError")])
    row = TrajectoryRecord.objects.get(job_id=whose.job_id)
    assert row.reward is None and math.isnan(as_trajectory(row).reward)


def test_the_known_fields_of_a_step_by_a_newer_release_are_read() -> None:
    whose, one = owner(), trajectory()
    trajectories_write(whose, [one])
    row = TrajectoryRecord.objects.get(job_id=whose.job_id)
    row.steps[0]["said_by_the_next_release"] = 1
    assert asdict(as_trajectory(row))["steps"] == asdict(one)["steps"]


@pytest.mark.parametrize(
    "text", ["tab\there", "line\nbreak", "back\\slash", "\\N", "\r\n", "nul\x00", "\ud800 alone", "日本 🎲", ""]
)
def test_any_text_can_be_stored(text: str) -> None:
    whose = owner()
    step = Step(state={"observation": text, "done": []}, action={"type": "tool"}, result={"output": text})
    trajectories_write(whose, [trajectory(query=text, error=text, steps=[step], evidence={"answer": text})])
    row = TrajectoryRecord.objects.get(job_id=whose.job_id)
    expected = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    assert (row.query, row.error) == (expected, expected)
    assert row.steps[0]["result"]["output"] == row.evidence["answer"] == expected


@given(
    logprob=st.floats(allow_nan=False, min_value=-1e6, max_value=0),
    reward=st.floats(allow_nan=False, min_value=-1e6, max_value=1e6),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_survive_json_exactly(logprob: float, reward: float) -> None:
    whose = owner()
    one = trajectory(reward=reward)
    one.steps[0].logprob, one.steps[0].reward = logprob, reward
    trajectories_write(whose, [one])
    back = trajectories_kept(whose, iteration=3)[one.key]
    assert (back.reward, back.steps[0].logprob, back.steps[0].reward) == (reward, logprob, reward)


def test_the_same_rollout_cannot_be_kept_twice() -> None:
    whose = owner()
    trajectories_write(whose, [trajectory()])
    with pytest.raises(IntegrityError), transaction.atomic():
        trajectories_write(whose, [trajectory()])


def test_arms_and_lines_have_ids_of_their_own() -> None:
    whose = owner()
    ids = {
        TrajectoryScope(whose.job_id, whose.organization_id, whose.agent_id, MONTH, "evaluation", arm, line).id_of(
            RolloutKey(0, 0, 0)
        )
        for arm in ("baseline", "trained")
        for line in ("held_out", "harder_numbers")
    }
    assert len(ids) == 4
    assert derived(whose.job_id, "a", 1) == derived(whose.job_id, "a", 1)


def test_a_month_gets_its_own_partition_and_december_is_followed_by_january() -> None:
    for month in (MONTH, date(2026, 12, 1)):
        partition_ensure(month)
        partition_ensure(month)
    whose = TrajectoryScope(uuid7(), uuid7(), uuid7(), date(2026, 12, 1))
    trajectories_write(whose, [trajectory()])
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM experiences_trajectory WHERE job_id = %s", [whose.job_id])
        assert cursor.fetchall() == [("experiences_trajectory_2026_12",)]


def test_a_ranked_reward_takes_the_place_of_the_first_once_and_nothing_else_changes() -> None:
    whose, one = owner(), trajectory(reward=0.25)
    trajectories_write(whose, [one])
    one.reward, one.reward_before_ranking, one.ranked = 1.0, 0.25, True
    group = TrajectoryGroup(Scenario(7, "q"), [one], [0.0], [0.0], [[0.0]])
    groups_write(whose, 3, [group])
    row = TrajectoryRecord.objects.get(job_id=whose.job_id)
    assert (row.reward, row.reward_before_ranking) == (1.0, 0.25)
    assert as_trajectory(row).reward == 0.25  # used again after a crash, it is ranked again
    for change in ({"reward": 2.0}, {"reward": 2.0, "reward_before_ranking": 1.0}, {"success": True}):
        with pytest.raises(ProgrammingError, match="append-only"), transaction.atomic():
            TrajectoryRecord.objects.filter(job_id=whose.job_id).update(**change)
    fresh = trajectory(key=RolloutKey(4, 7, 1), reward=0.5)
    trajectories_write(whose, [fresh])
    for change in ({"reward": 2.0}, {"reward": 2.0, "reward_before_ranking": 0.1}):
        with pytest.raises(ProgrammingError, match="append-only"), transaction.atomic():
            TrajectoryRecord.objects.filter(job_id=whose.job_id, iteration=4).update(**change)
