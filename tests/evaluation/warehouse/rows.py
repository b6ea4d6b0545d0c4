"""Rows of the last days with rewards, durations and components at the edges of buckets."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

from agentcore_site.ids import uuid7
from experiences.models import Agent
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from experiences.trajectories.storage import TrajectoryScope, trajectories_write

BEGAN = datetime(2026, 11, 20, 22, 30, tzinfo=UTC)
ODD_VALUES = [0.0, -0.1, 0.1, 0.7, 1.0, 4.95, 5.0, 5.01, -5.0, -5.05, -77.5, 1e6, 1e120, 0.30000000000000004]


def lived(
    agent: Agent, n: int, *, seed: int = 0, began: datetime = BEGAN, query: str = "question", **scope: Any
) -> TrajectoryScope:
    """``n`` of them, one each 11 minutes from ``began``; within two hours if it was given."""
    every = timedelta(minutes=11 if began == BEGAN else 1)
    rng = random.Random(seed)
    owner = TrajectoryScope(uuid7(), agent.organization_id, agent.pk, date(2026, 11, 1), **scope)
    rows = []
    for number in range(n):
        value = ODD_VALUES[number % len(ODD_VALUES)] if number < 3 * len(ODD_VALUES) else rng.gauss(0.5, 0.5)
        rows.append(
            Trajectory(
                key=RolloutKey(0, number, 0),
                query=f"{query} {number}: \\ 'quoted' \"twice\"\t日本",
                steps=[_step(rng)] * (number % 2)
                + [Step({}, {"type": "answer"}, {"output": "\u2028\\"})] * (number % 9),
                success=rng.random() < 0.6,
                outcome=rng.random(),
                reward=math.nan if number % 11 == 0 else value,
                error="ValueError: no" if number % 13 == 0 else "",
                truncated=number % 17 == 0,
                components={"outcome": value, "said": "no number", "sure": True, "ünïcode": number / 7},
                duration_ms=rng.choice([0.0, 0.4, 1.0, 1.9, 2.0, 1023.999, 1024.0, 3.6e6]),
                model=rng.choice(["small", "large", ""]),
                started_at=(began + number * every).timestamp(),
            )
        )
    trajectories_write(owner, rows)
    return owner


def _step(rng: random.Random) -> Step:
    tokens = rng.choice([0, 1, 2, 3, 4, 1023, 1024, 2**31 - 1])
    return Step({}, {"type": "tool"}, {}, tokens=tokens, cost_micros=rng.randrange(10_000))
