"""A ledger is replayed against another limit by the rule of the ledger itself."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from budgets.limit_replay import Movement, replay

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


def reserve(key: int, worst: int, minute: int = 0) -> Movement:
    return Movement(NOON + timedelta(minutes=minute), key, True, 0, worst, "m, rollout")


def settle(key: int, worst: int, cost: int, minute: int = 0) -> Movement:
    return Movement(NOON + timedelta(minutes=minute), key, False, cost, -worst, "m, rollout")


def test_a_hold_takes_room_until_it_is_settled() -> None:
    both = [reserve(1, 60), reserve(2, 60, 1), settle(1, 60, 10), settle(2, 60, 10)]
    found = replay(both, 100)
    assert (found.made.calls, found.made.cost_micros) == (2, 20)
    assert (found.refused.calls, found.refused.cost_micros) == (1, 10)
    assert found.first_refused == NOON + timedelta(minutes=1) and found.by_group["m, rollout"].calls == 1
    in_turn = [reserve(1, 60), settle(1, 60, 10), reserve(2, 60), settle(2, 60, 10)]
    assert replay(in_turn, 100).refused.calls == 0


def test_a_refused_call_leaves_its_room_to_a_smaller_one() -> None:
    calls = [reserve(1, 90), settle(1, 90, 90), reserve(2, 20), settle(2, 20, 20), reserve(3, 10), settle(3, 10, 10)]
    found = replay(calls, 100)
    assert (found.refused.calls, found.refused.cost_micros) == (1, 20)


def test_refunds_and_debts_belong_to_their_call() -> None:
    late = Movement(NOON, 1, False, -40, 0, "m, rollout")  # charged in full, then settled for less
    owed = Movement(NOON, 2, False, 5, 0, "m, rollout")
    found = replay([reserve(1, 60), settle(1, 60, 60), late, reserve(2, 80), settle(2, 80, 80), owed], 100)
    assert (found.made.cost_micros, found.refused.calls) == (105, 0)
    assert replay([reserve(1, 60), settle(1, 60, 60), late], 50).refused.cost_micros == 20


def test_what_is_accepted_never_exceeds_the_limit() -> None:
    movements = []
    for key in range(200):
        worst = random.randint(0, 50)
        movements += [reserve(key, worst), settle(key, worst, random.randint(0, worst))]
    for limit in (0, 100, 1_000, 10_000):
        found = replay(movements, limit)
        assert found.made.cost_micros - found.refused.cost_micros <= limit
        assert found.refused.calls == sum(one.calls for one in found.by_group.values()) <= found.made.calls == 200
