"""Rewards: what each rule pays, and that the literal one can be farmed while the others can't."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiences.rollouts.rewards import FailurePay, Payment, formula, pay, rewards
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from tests.support.recipes import installed_from, run_tests_of


def step(kind: str, tool: str = "", *, success: bool = True, output: str = "7", **parameters: Any) -> Step:
    action = {"type": kind, "tool": tool, "parameters": parameters}
    return Step(state={}, action=action, result={"success": success, "output": output, "error": ""})


CALL, VERIFY, ANSWER = step("tool", "gcd"), step("verify", output="consistent"), step("answer")


def trajectory(*steps: Step, success: bool = True, **changed: Any) -> Trajectory:
    copies = [Step(dict(s.state), dict(s.action), dict(s.result)) for s in steps]
    values: dict[str, Any] = {"success": success, "outcome": float(success), **changed}
    return Trajectory(RolloutKey(0, 0, 0), "q", copies, **values)


def paid(rule: str, *steps: Step, success: bool = True, **options: Any) -> Trajectory:
    one = trajectory(*steps, success=success)
    pay(rewards.get("shaped")({"rule": rule, **options}), one)
    assert one.error == ""
    return one


def test_reward_pays_the_outcome() -> None:
    partly = trajectory(CALL, ANSWER, success=False, outcome=0.4)
    pay(rewards.get("outcome")({}), partly)
    assert (partly.reward, partly.components, [s.reward for s in partly.steps]) == (0.4, {"outcome": 0.4}, [0.0, 0.4])
    pay(rewards.get("outcome")({"partial_credit": False}), partly)
    assert partly.reward == 0.0


def test_reward_pays_a_good_episode_by_the_numbers_of_the_specification() -> None:
    one = paid("strict", CALL, VERIFY, ANSWER)
    assert one.components == pytest.approx(
        {"tool": 0.1, "verify": 0.05, "step": -0.03, "outcome": 1.0, "wrong_answer": 0}
    )
    assert [s.reward for s in one.steps] == pytest.approx([0.09, 0.04, 0.99])
    assert one.reward == pytest.approx(1.12)


def test_reward_pays_a_distinct_useful_call_once_and_three_at_most() -> None:
    other = [step("tool", name) for name in ("lcm", "factor", "calendar", "animals")]
    same, empty = CALL, step("tool", "lcm", output="")
    failed = step("tool", "lcm", success=False)
    assert paid("strict", CALL, same, same).components["tool"] == pytest.approx(0.1)
    assert paid("strict", empty, failed).components["tool"] == 0
    assert paid("strict", CALL, *other).components["tool"] == pytest.approx(0.3)
    assert paid("strict", CALL, *other, max_paid_calls=1).components["tool"] == pytest.approx(0.1)
    again_with_other_input = step("tool", "gcd", numbers=[1, 2])
    assert paid("strict", CALL, again_with_other_input).components["tool"] == pytest.approx(0.2)


def test_reward_pays_the_first_verify_that_confirmed_a_result() -> None:
    refuted = step("verify", success=False, output="inconsistent")
    assert paid("strict", refuted).components["verify"] == 0
    assert [s.reward for s in paid("strict", refuted, VERIFY, VERIFY, step=0).steps[:2]] == [0.0, 0.05]
    assert paid("strict", VERIFY, VERIFY).components["verify"] == pytest.approx(0.05)


def test_reward_is_farmed_when_paid_naively_and_not_by_the_other_rules() -> None:
    """19 useless calls earn more than solving the task."""
    farming = [CALL] * 19 + [ANSWER]
    honest = (CALL, VERIFY, ANSWER)
    assert paid("naive", *farming, success=False).reward > paid("naive", *honest).reward
    for rule in ("strict", "potential", "gated"):
        assert paid(rule, *farming, success=False).reward < 0
        assert paid(rule, *honest).reward > 0.9


def test_the_naive_rule_pays_every_useful_call_and_every_verify_step() -> None:
    failed, refuted = step("tool", "lcm", success=False), step("verify", success=False)
    one = paid("naive", CALL, failed, CALL, VERIFY, refuted, ANSWER, step=0)
    assert [s.reward for s in one.steps] == pytest.approx([0.1, 0.0, 0.1, 0.05, 0.05, 1.0])


def test_an_empty_episode_is_paid_its_outcome() -> None:
    for rule in ("strict", "naive", "potential", "gated"):
        one = paid(rule, wrong_answer=-0.2, success=False)
        assert (one.reward, one.steps) == (0.0, []) and set(one.components.values()) == {0}


def test_the_potential_rule_pays_the_gain_of_a_step_and_takes_the_sum_back_at_the_end() -> None:
    assert [s.reward for s in paid("potential", CALL, ANSWER, step=0, gamma=0.5).steps] == pytest.approx([0.05, 0.9])


def test_reward_pays_gated_bonuses_only_for_a_success() -> None:
    assert paid("gated", CALL, VERIFY, ANSWER, success=False).components["tool"] == 0
    assert paid("gated", CALL, VERIFY, ANSWER).reward == paid("strict", CALL, VERIFY, ANSWER).reward


_KINDS = st.sampled_from(
    [CALL, VERIFY, step("tool", "lcm"), step("tool", "x", success=False), step("verify", success=False)]
)


@given(st.lists(_KINDS, max_size=19), st.booleans(), st.sampled_from([0.9, 0.99, 1.0]))
def test_reward_paid_by_potential_does_not_change_the_best_policy(
    before: list[Step], success: bool, gamma: float
) -> None:
    """The discounted sum of the shaping is the same for every episode: 0, as Phi is 0 at both ends."""
    one = paid("potential", *before, ANSWER, success=success, step=0, gamma=gamma)
    shaping = [s.reward for s in one.steps]
    shaping[-1] -= one.components["outcome"]
    assert sum(gamma**t * amount for t, amount in enumerate(shaping)) == pytest.approx(0, abs=1e-12)


def test_reward_charges_a_wrong_answer_but_not_giving_no_answer() -> None:
    assert paid("strict", CALL, ANSWER, success=False, wrong_answer=-0.2).components["wrong_answer"] == -0.2
    assert paid("strict", CALL, CALL, success=False, wrong_answer=-0.2).components["wrong_answer"] == 0
    assert paid("strict", CALL, ANSWER, wrong_answer=-0.2).components["wrong_answer"] == 0


@given(
    st.lists(st.one_of(_KINDS, st.just(ANSWER)), min_size=1, max_size=20),
    st.booleans(),
    st.sampled_from(["strict", "naive", "potential", "gated"]),
)
def test_reward_splits_the_reward_over_the_steps_without_a_rest(steps: list[Step], success: bool, rule: str) -> None:
    one = paid(rule, *steps, success=success, wrong_answer=-0.2)
    assert sum(s.reward for s in one.steps) == pytest.approx(one.reward, abs=1e-12)
    assert sum(one.components.values()) == pytest.approx(one.reward, abs=1e-12)


def test_reward_pays_part_credit_with_its_option() -> None:
    for partial, amount in ((False, 0.0), (True, 0.4)):
        one = trajectory(CALL, ANSWER, success=False, outcome=0.4)
        pay(rewards.get("shaped")({"partial_credit": partial}), one)
        assert one.components["outcome"] == amount


def test_reward_pays_failures_in_place_of_everything_else() -> None:
    shaped = rewards.get("shaped")
    late = trajectory(CALL, VERIFY, success=False, error="timeout: over 300 s")
    pay(shaped({}), late)
    assert (late.reward, late.components, [s.reward for s in late.steps]) == (-1.0, {"timeout": -1.0}, [0.0, -1.0])
    broken = trajectory(CALL, success=False, error="environment: gone")
    pay(shaped({}), broken)
    assert math.isnan(broken.reward) and broken.components == {}
    pay(shaped({"failure": -0.5, "timeout": -2}), broken)
    assert (broken.reward, broken.components) == (-0.5, {"failure": -0.5})
    at_once = trajectory(success=False, error="timeout: over 1 s")
    pay(lambda t: Payment([]), at_once)
    assert at_once.reward == FailurePay().timeout == -1.0


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (lambda t: 1 / 0, "reward: ZeroDivisionError: division by zero"),
        (lambda t: Payment([0.0], {"a": math.nan}), "reward: ValueError: the reward is not a finite number"),
        (lambda t: Payment([math.inf], {"a": 1.0}), "reward: ValueError: the reward is not a finite number"),
        (lambda t: Payment([], {"a": 1.0}), "reward: ValueError: paid 0 steps of 1"),
        (lambda t: None, "reward: AttributeError"),
    ],
)
def test_reward_marks_the_trajectory_when_a_reward_fails(reward: Any, error: str) -> None:
    one = trajectory(CALL)
    pay(reward, one)
    assert one.error.startswith(error)
    assert math.isnan(one.reward)
    assert [s.reward for s in one.steps] == [0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "generous"}, "rule must be one of strict, naive, potential, gated"),
        ({"tols": 1}, "reward shaped has no option 'tols'. Known: .*tool"),
        ({"step": "cheap"}, "step must be a number from -10 to 10; got 'cheap'"),
        ({"wrong_answer": 1}, "wrong_answer must be a number from -10 to 0"),
        ({"partial_credit": "yes"}, "partial_credit must be true or false"),
    ],
)
def test_reward_refuses_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rewards.get("shaped")(options)


def test_the_recipe_of_a_reward_works_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("quickness", "brevity"):
        installed_from("add-a-reward", tmp_path, monkeypatch, rewards, name, name)
    assert run_tests_of("add-a-reward") == 4


def test_a_formula_returns_one_amount_or_a_whole_payment(monkeypatch: pytest.MonkeyPatch) -> None:
    one, built_in = trajectory(CALL, CALL, ANSWER, outcome=0.4), rewards._items
    for function, steps, components in (
        (lambda t: t.outcome, [0.0, 0.0, 0.4], {"made": 0.4}),
        (lambda t: Payment([0.1, 0.2, 0.3], {"a": 0.6}), [0.1, 0.2, 0.3], {"a": 0.6}),
    ):
        monkeypatch.setattr(rewards, "_items", dict(built_in))
        pay(formula("made", "Made here.")(function)({}), one)
        assert (one.error, [s.reward for s in one.steps], one.components) == ("", steps, components)
    with pytest.raises(TypeError, match="reward made: each of its options needs an Option"):
        formula("made", "Made here.")(lambda t, cost: t.outcome - cost)
    with pytest.raises(TypeError, match="reward made needs a docstring"):
        formula("made")(lambda t: t.outcome)
    with pytest.raises(ValueError, match=r"reward outcome has no option 'cost'\. Known: partial_credit"):
        rewards.get("outcome")({"cost": 1})


def test_every_option_of_every_reward_is_described() -> None:
    for name, factory in rewards.items():
        assert factory.description, name
        assert all(factory.option_help.values())
    assert {"outcome", "shaped"} <= set(rewards.names())
    with pytest.raises(LookupError, match=r"no reward named 'praise'\. Known: .*shaped"):
        rewards.get("praise")
