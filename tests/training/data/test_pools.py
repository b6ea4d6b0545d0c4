"""Pools are remembered for jobs that take turns, and let go of once a job has ended."""

from __future__ import annotations

from agentcore_site.lib.lru_cache import LruCache
from training.data.pools import environment_pools

SMALL = {"pool": {"train": 2, "selection": 1, "held_out": 1}}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requested_pools_are_made_once_and_others_are_freed() -> None:
    clock = Clock()
    recent: LruCache[str, object] = LruCache(most=10, seconds=60, clock=clock)
    first = recent.get("at work", object)
    recent.get("ended", object)
    for clock.now in (40.0, 80.0):
        assert recent.get("at work", object) is first
    assert len(recent) == 2  # nothing was made since
    recent.get("new", object)
    assert len(recent) == 2  # the one that has ended is gone
    assert recent.get("at work", object) is first


def test_no_more_are_remembered_than_may_be_and_the_latest_stay() -> None:
    recent: LruCache[int, object] = LruCache(most=3, seconds=60)
    made = [recent.get(n, object) for n in range(4)]
    assert len(recent) == 3
    assert [recent.get(n, object) is made[n] for n in (3, 2, 1)] == [True] * 3
    assert recent.get(0, object) is not made[0]


def test_a_job_s_next_turn_finds_the_pools_of_the_one_before() -> None:
    assert environment_pools("reasoning_gym", SMALL, 5) is environment_pools("reasoning_gym", dict(SMALL), 5)
    assert environment_pools("reasoning_gym", SMALL, 5) is not environment_pools("reasoning_gym", SMALL, 6)
