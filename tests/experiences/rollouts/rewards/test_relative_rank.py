"""Ranks within a group, ground truth with its evidence, and the second payment of a group."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiences.rollouts.rewards import GroupReward, LearningReward, Payment, pay, rewards, settle
from experiences.rollouts.rewards.relative_rank import average_ranks
from experiences.rollouts.types import RolloutKey, Step, Trajectory


def lived(outcome: float = 1.0, steps: int = 2, cost: int = 10, ms: float = 5.0, **changed: Any) -> Trajectory:
    made = [Step({}, {"type": "answer"}, {"success": True}, cost_micros=cost if i == 0 else 0) for i in range(steps)]
    values: dict[str, Any] = {"success": outcome >= 0.7, "outcome": outcome, "duration_ms": ms, **changed}
    return Trajectory(RolloutKey(0, 0, 0), "q", made, **values)


def ranked(trajectories: list[Trajectory], **options: Any) -> list[float]:
    reward = rewards.get("relative_rank")(options)
    assert isinstance(reward, GroupReward)
    for one in trajectories:
        pay(reward, one)
    settle(reward, trajectories)
    return [one.reward for one in trajectories]


def of(*outcomes: float, **options: Any) -> list[float]:
    return ranked([lived(outcome) for outcome in outcomes], **options)


def test_ties_share_the_mean_of_their_ranks() -> None:
    assert average_ranks([3.0, 9.0, 3.0, 1.0]) == [2.5, 1.0, 2.5, 4.0]
    assert average_ranks([1.0, 1.0, 1.0]) == [2.0, 2.0, 2.0]
    assert average_ranks([-math.inf, 2.0, -math.inf]) == [2.5, 1.0, 2.5]
    assert average_ranks([1.0, 0.95, 0.88, 0.5], margin=0.1) == [1.5, 1.5, 3.0, 4.0]
    assert average_ranks([]) == []


def test_rank_reward_pays_places_by_hand() -> None:
    assert of(0.2, 1.0, 0.7, 0.5) == pytest.approx([0, 1, 2 / 3, 1 / 3])
    assert of(0.5, 1.0, 0.5, 0.0) == pytest.approx([0.5, 1, 0.5, 0])
    assert of(1.0, 0.0) == [1.0, 0.0]


def test_a_group_of_equals_has_no_spread() -> None:
    assert of(0.5, 0.5, 0.5, 0.5) == [0.5] * 4
    assert of(1.0, 1.0, scale="z") == [0.0, 0.0]
    assert of(0.80, 0.84, 0.81, margin=0.05) == [0.5] * 3


def test_z_has_mean_0_and_spread_1() -> None:
    """Places 1, 0: mean .5, standard deviation .5."""
    assert of(1.0, 0.0, scale="z") == pytest.approx([1.0, -1.0])
    five = of(0.1, 0.2, 0.3, 0.4, 0.5, scale="z")
    assert five == pytest.approx([-math.sqrt(2), -math.sqrt(0.5), 0, math.sqrt(0.5), math.sqrt(2)])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=16))
def test_places_lie_in_0_to_1_with_mean_half_and_keep_the_order(outcomes: list[float]) -> None:
    result = of(*outcomes)
    assert all(0 <= one <= 1 for one in result)
    assert sum(result) / len(result) == pytest.approx(0.5)
    for a, one in zip(outcomes, result, strict=True):
        for b, other in zip(outcomes, result, strict=True):
            assert (one > other) == (a > b)


def test_less_is_better_but_only_among_successes() -> None:
    group = [lived(1.0, steps=5), lived(1.0, steps=2), lived(0.0, steps=1), lived(0.0, steps=9)]
    assert ranked(group, by="steps") == pytest.approx([2 / 3, 1, 1 / 6, 1 / 6])
    assert ranked([lived(0.0, steps=1), lived(0.0, steps=9)], by="steps") == [0.5, 0.5]
    assert ranked([lived(0.0, steps=1), lived(0.0, steps=9)], by="steps", success_first=False) == [1.0, 0.0]
    assert ranked([lived(cost=5), lived(cost=50), lived(cost=5)], by="cost") == pytest.approx([0.75, 0, 0.75])
    assert ranked([lived(ms=5.0001), lived(ms=5.0004), lived(ms=9.0)], by="duration") == pytest.approx([0.75, 0.75, 0])


def test_rank_reward_ranks_by_another_reward() -> None:
    group = [lived(1.0, steps=9), lived(1.0, steps=2), lived(0.0)]
    result = ranked(group, by="reward", of="shaped", of_options={"step": -0.05})
    assert result == pytest.approx([0.5, 1, 0])
    kept = group[0].evidence["reward"]
    assert kept["measure"] == pytest.approx(1 - 0.45)
    assert kept["components"]["step"] == pytest.approx(-0.45)
    assert (kept["rank"], kept["cohort"], kept["raw"]) == (2.0, 3, 0.5)


def test_a_timed_out_rollout_is_last_and_a_broken_one_takes_no_part() -> None:
    late = lived(0.0, error="timeout: over 3 s")
    broken = lived(0.0, error="environment: gone")
    unjudged = lived(0.0, evidence={"judge_error": "none"})
    result = ranked([lived(1.0), late, lived(0.0), broken, unjudged])
    assert result[:3] == [1.0, 0.0, 0.5]
    assert math.isnan(result[3]) and math.isnan(result[4])
    assert late.error and late.evidence["reward"]["measure"] is None


@pytest.mark.parametrize("outcome", [math.nan, math.inf])
def test_a_measure_that_is_no_number_takes_no_part(outcome: float) -> None:
    result = of(1.0, outcome, 0.0)
    assert (result[0], result[2]) == (1.0, 0.0) and math.isnan(result[1])


def test_one_alone_is_not_ranked() -> None:
    one, broken = lived(1.0), lived(0.0, error="model: refused")
    assert all(math.isnan(reward) for reward in ranked([one, broken]))
    assert one.error == "" and one.evidence["reward"]["cohort"] == 1
    assert "fewer than 2" in one.evidence["reward"]["unscored"]


def test_rank_reward_is_unscored_until_its_group_is_complete() -> None:
    one = lived(1.0)
    pay(rewards.get("relative_rank")({}), one)
    assert math.isnan(one.reward) and one.error == "" and one.components == {}
    assert one.evidence["reward"]["unscored"] == "not ranked yet"


@pytest.mark.parametrize(
    "options",
    [{}, {"by": "steps", "scale": "z"}, {"by": "duration"}, {"by": "reward", "of": "shaped"}],
    ids=str,
)
def test_a_group_may_be_settled_again(options: dict[str, Any]) -> None:
    group = [lived(1.0, 3, ms=4.0), lived(0.4, 2), lived(1.0, 1), lived(0.0, 2, error="timeout: over 3 s")]
    first = ranked(group, **options)
    before = [asdict(one) for one in group]
    settle(rewards.get("relative_rank")(options), group)
    assert [one.reward for one in group] == first
    assert [asdict(one) for one in group] == before


def test_the_last_step_is_paid() -> None:
    group = [lived(1.0), lived(0.0), lived(0.5, steps=0)]
    ranked(group)
    assert [step.reward for step in group[0].steps] == [0.0, 1.0]
    assert group[2].reward == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "looks"}, "by must be one of outcome, steps, cost, duration, reward"),
        ({"scale": "log"}, "scale must be one of raw, z"),
        ({"margin": -1}, "margin must be a number from 0"),
        ({"by": "reward"}, "of must be one of .*composite, .*shaped.*; got None"),
        ({"by": "reward", "of": "relative_rank"}, "of must be one of"),
        ({"by": "reward", "of": "shaped", "of_options": 3}, "of_options must be an object"),
        ({"by": "reward", "of": "shaped", "of_options": {"tols": 1}}, "reward shaped has no option 'tols'"),
        ({"of": "shaped"}, "are for by: reward"),
    ],
)
def test_rank_reward_refuses_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rewards.get("relative_rank")(options)


class Failing:
    """Pays each one, but not the group."""

    def __call__(self, trajectory: Trajectory) -> Payment:
        return Payment.at_the_end(trajectory, {"a": 1.0})

    def settle(self, trajectories: Any) -> list[Payment | None]:
        raise KeyError("no such sibling")


def test_a_group_reward_that_raises_marks_its_group_and_not_the_job() -> None:
    group = [lived(), lived(error="environment: gone")]
    for one in group:
        pay(Failing(), one)
    assert group[0].reward == 1.0
    settle(Failing(), group)
    assert group[0].error == "reward: KeyError: 'no such sibling'" and math.isnan(group[0].reward)
    assert group[1].error == "environment: gone"


def test_rewards_of_single_trajectories_are_left_as_they_are() -> None:
    one = lived()
    reward = rewards.get("outcome")({})
    pay(reward, one)
    settle(reward, [one])
    assert one.reward == 1.0


def test_ranks_of_a_learning_reward_learn_too() -> None:
    reward = rewards.get("relative_rank")({"by": "reward", "of": "composite"})
    assert isinstance(reward, LearningReward)
    group = [lived(1.0), lived(0.0)]
    for one in group:
        pay(reward, one)
    settle(reward, group)
    reward.learn(group)
    assert reward.state_dict()["lengths/turns"] == [2]
    again = rewards.get("relative_rank")({"by": "reward", "of": "composite"})
    assert isinstance(again, LearningReward)
    again.load_state_dict(reward.state_dict())
    assert again.state_dict()["usual/turns"].tolist() == [2.0, 2.0]
    assert rewards.get("relative_rank")({}).state_dict() == {}  # type: ignore[attr-defined]


def test_ground_truth_keeps_the_compared_answers() -> None:
    evidence = {"scorer": "exact", "answer": "Paris" * 500, "expected": ["Paris", "Lutetia"], "else": 1}
    one = lived(0.5, evidence=evidence)
    pay(rewards.get("ground_truth")({}), one)
    assert one.reward == 0.5 and one.components == {"ground_truth": 0.5}
    kept = one.evidence["reward"]
    assert (kept["name"], kept["score"], kept["scorer"]) == ("ground_truth", 0.5, "exact")
    assert len(kept["answer"]) == 501 and kept["expected"] == "['Paris', 'Lutetia']" and "else" not in kept
    assert one.evidence["answer"] == evidence["answer"]
    longest = lived(0.5, evidence={"answer": "x" * 500})
    pay(rewards.get("ground_truth")({}), longest)
    assert longest.evidence["reward"]["answer"] == "x" * 500


@pytest.mark.parametrize("score", [1.1, -0.1, math.nan, math.inf])
def test_ground_truth_refuses_a_score_outside_of_its_range(score: float) -> None:
    one = lived(0.5)
    one.outcome = score
    pay(rewards.get("ground_truth")({}), one)
    assert one.error.startswith("reward: ValueError: the verifier's score") and math.isnan(one.reward)


@pytest.mark.parametrize("name", ["outcome", "shaped", "composite", "ground_truth"])
def test_without_a_verdict_of_the_judge_nothing_is_scored(name: str) -> None:
    one = lived(0.0, evidence={"judge_error": "it said nothing"})
    pay(rewards.get(name)({}), one)
    assert math.isnan(one.reward) and one.error == "" and one.components == {}
