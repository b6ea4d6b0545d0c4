"""The bytes of an export: the same rows give the same file, with any reader and writer."""

from __future__ import annotations

import hashlib
import uuid
from datetime import date
from typing import Any

import pytest
from django.db import connection

from experiences.models import TrajectoryRecord
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup
from experiences.trajectories import storage
from experiences.trajectories.exports.selection import IN_JOB, Export
from experiences.trajectories.exports.streams import pieces

pytestmark = pytest.mark.django_db

MONTH = date(2020, 1, 1)
JOB, ORGANIZATION, AGENT = (uuid.UUID(int=0x0197B3B0 << 96 | n) for n in (1, 2, 3))
MOMENTS = (0.0, 1_577_900_000.0, 1_577_900_000.5, 1_577_900_001.123, 1_577_900_001.999, 9_999_999_999.001)


def step(number: int, moment: float) -> Step:
    state = {"observation": 'Say "é", \\ and 🙂\n', "done": ["gcd#ok"], "deep": {"timestamp": 1.5, "none": None}}
    action = {"type": "tool", "tool": "int_calc", "parameters": {"n": number, "big": 2**53, "small": 1e-7, "x": 1e22}}
    result = {"success": True, "output": "46", "error": ""}
    return Step(state, action, result, moment, 1.25, reward=0.1, choice=number, logprob=-0.6931471805599453)


def rollouts(iteration: int, n: int) -> list[Trajectory]:
    made = []
    for number in range(n):
        one = Trajectory(
            RolloutKey(iteration, 0, number), "What is 12 + 34?", [step(*pair) for pair in enumerate(MOMENTS)]
        )
        one.success, one.outcome, one.reward = number % 2 == 0, 1.0, 1.1 - number
        one.components, one.evidence = {"outcome": 1.0, "bonus": 0.1}, {"answer": "46", "seen": [1, 2.5]}
        one.policy_version, one.model, one.started_at, one.duration_ms = "v1", "small", 1_577_900_000.25, 12.5
        made.append(one)
    return made


@pytest.fixture
def export() -> Export:
    """A group that was learned from, one that was not yet, a test's rollout, and one that was not scored."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    storage.partition_make(MONTH)
    owner = storage.TrajectoryScope(JOB, ORGANIZATION, AGENT, MONTH)
    learned, waiting, tested = rollouts(0, 4), rollouts(1, 3), rollouts(2, 1)
    waiting[2].reward, waiting[2].error = float("nan"), "reward: it broke"
    storage.trajectories_write(owner, [*learned, *waiting])
    storage.trajectories_write(
        storage.TrajectoryScope(JOB, ORGANIZATION, AGENT, MONTH, "evaluation", "trained"), tested
    )
    group = TrajectoryGroup(Scenario(0, "What is 12 + 34?"), learned, [1.0, -1.0, 0.5, -0.5], [1.5, -1.5, 0.75, -0.75])
    group.step_advantages = [[0.25] * len(MOMENTS)] * 4
    storage.groups_write(owner, 0, [group])
    return Export(TrajectoryRecord.objects.filter(job_id=JOB, month=MONTH), IN_JOB)


# As the release before read-ahead wrote them: sha256 and size of the whole file.
WRITTEN = {
    "jsonl": ("f1a34d5832e41fd57c28fe03452380a1ff48ce20a585e01dd9dbc173229da019", 24_144),
    "csv": ("7ef0918555f279c2a8e1a78c8d3e0bb71943050e9c72e9d8c207142445a0807b", 23_756),
}


@pytest.mark.parametrize("format", WRITTEN)
def test_the_same_rows_give_the_same_bytes(export: Export, format: str) -> None:
    result = b"".join(pieces(export, format))
    assert (hashlib.sha256(result).hexdigest(), len(result)) == WRITTEN[format], result[:4000].decode()


def test_batches_of_any_size_give_the_same_bytes(export: Export, monkeypatch: Any) -> None:
    whole = b"".join(pieces(export, "jsonl"))
    for size in (1, 3):
        monkeypatch.setattr("experiences.trajectories.exports.selection.BATCH", size)
        assert b"".join(pieces(export, "jsonl")) == whole
