"""The composite reward: its numbers by hand, its scales, and evidence that should not exist."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiences.rollouts.rewards import LearningReward, pay, rewards, signals
from experiences.rollouts.rewards.composite import CompositeReward
from experiences.rollouts.rewards.effort import MAX_TYPES, MEASURES, redundant_calls
from experiences.rollouts.rewards.window import ENOUGH, Window
from experiences.rollouts.types import RolloutKey, Step, Trajectory


def trajectory(
    outcome: float = 1.0, turns: int = 3, evidence: dict[str, Any] | None = None, **changed: Any
) -> Trajectory:
    steps = [Step({}, {"type": "tool", "tool": "t"}, {"success": True, "output": "1"}) for _ in range(turns)]
    values: dict[str, Any] = {"success": outcome >= 1, "outcome": outcome, "evidence": dict(evidence or {}), **changed}
    return Trajectory(RolloutKey(0, 0, 0), "q", steps, **values)


def made(**options: Any) -> CompositeReward:
    reward = rewards.get("composite")(options)
    assert isinstance(reward, CompositeReward)
    return reward


def paid(reward: Any, one: Trajectory) -> Trajectory:
    pay(reward, one)
    return one


def taught(outcomes: list[float], turns: list[int] | None = None, **options: Any) -> CompositeReward:
    reward = made(**options)
    pairs = zip(outcomes, turns or [3] * len(outcomes), strict=True)
    reward.learn([paid(reward, trajectory(outcome, n)) for outcome, n in pairs])
    return reward


def test_composite_pays_raw_units_until_thirty_were_observed() -> None:
    """1 x .40 + .5 x .20 (no average yet) + 0 (no code) + .5 x .25 (no feedback)."""
    one = paid(made(), trajectory())
    assert one.components == pytest.approx(
        {"completion": 0.4, "efficiency": 0.1, "code_quality": 0.0, "feedback": 0.125}
    )
    assert one.reward == pytest.approx(0.625)
    assert [step.reward for step in one.steps] == pytest.approx([0, 0, 0.625])
    almost = taught([1.0, 0.0] * 14 + [1.0])
    assert paid(almost, trajectory()).components["completion"] == pytest.approx(0.4)


def test_composite_pays_z_scores_from_thirty_on() -> None:
    """15 successes and 15 failures: mean .5, standard deviation .5. So a success is z = 1 and pays .4."""
    reward = taught([1.0, 0.0] * 15)
    success, failure = paid(reward, trajectory(1.0)), paid(reward, trajectory(0.0))
    assert success.components == pytest.approx({"completion": 0.4, "efficiency": 0, "code_quality": 0, "feedback": 0})
    assert failure.reward == pytest.approx(-0.4)
    kept = success.evidence["reward"]
    assert kept["raw"] == {"completion": 1.0, "efficiency": 0.5, "code_quality": None, "feedback": 0.5}
    assert kept["normalised"]["completion"] == pytest.approx(1.0)
    assert kept["observed"] == {"completion": 30, "efficiency": 30, "code_quality": 0, "feedback": 30}


def test_a_component_that_never_changes_does_not_explode() -> None:
    """30 times .5 of feedback: sigma is 0, its floor .05 of the range. Five stars are then (1 - .5) / .05 = 10."""
    reward = taught([1.0] * 30)
    praised = paid(reward, trajectory(evidence={"feedback": {"stars": 5}}))
    assert praised.components["feedback"] == pytest.approx(0.25 * 10)
    assert praised.components["completion"] == 0


def test_composite_prefers_fewer_turns_than_is_usual_for_the_task_type() -> None:
    """Turns 2 and 6, 15 times each: mean 4, sigma 2. One turn more or less is half a sigma: 1/8 of the scale."""
    reward = made(efficiency_tokens=0, efficiency_redundant_calls=0)
    evidence = {"task_type": "sums"}
    reward.learn([paid(reward, trajectory(1.0, turns, evidence)) for turns in [2, 6] * 15])

    def efficiency(turns: int, kind: str = "sums") -> float:
        one = paid(reward, trajectory(1.0, turns, {"task_type": kind}))
        return float(one.evidence["reward"]["raw"]["efficiency"])

    assert [efficiency(turns) for turns in (4, 3, 5, 2, 0, 20)] == pytest.approx([0.5, 0.625, 0.375, 0.75, 1.0, 0.0])
    assert efficiency(3, "another kind") == 0.5


def call(tool: str, n: int, output: str, **figures: Any) -> Step:
    action = {"type": "tool", "tool": tool, "parameters": {"n": n}}
    return Step({}, action, {"success": bool(output), "output": output, "error": ""}, **figures)


def test_composite_counts_calls_that_brought_nothing_new() -> None:
    again = [
        call("look", 1, "a"),
        call("look", 1, "a"),
        call("look", 1, "a"),
        call("look", 2, "a"),
        call("look", 1, "b"),
    ]
    retried = [
        call("look", 1, ""),
        call("look", 1, "a"),
        Step({}, {"type": "verify"}, {}),
        Step({}, {"type": "verify"}, {}),
    ]
    assert redundant_calls(again) == 2 and redundant_calls(retried) == redundant_calls([]) == 0


@pytest.mark.parametrize(
    ("measure", "less", "usual", "more"),
    [
        ("seconds", [call("t", 1, "x", duration_ms=1000.0)], 2.0, [call("t", 1, "x", duration_ms=3000.0)]),
        ("tokens", [call("t", 1, "x", tokens=100)], 200.0, [call("t", 1, "x", tokens=300)]),
        ("redundant_calls", [call("t", 1, "x"), call("t", 2, "x"), call("t", 3, "x")], 1.0, [call("t", 1, "x")] * 3),
    ],
)
def test_efficiency_counts_time_tokens_and_redundant_calls(
    measure: str, less: list[Step], usual: float, more: list[Step]
) -> None:
    """The two alike are a sigma from their mean on either side: 1/4 of the scale."""
    shares = {f"efficiency_{name}": float(name == measure) for name in MEASURES}
    reward = made(**shares)
    kinds = [Trajectory(RolloutKey(0, 0, 0), "q", list(steps), outcome=1.0, model="m") for steps in (less, more)]
    reward.learn([paid(reward, one) for one in kinds * 15])
    found = [paid(reward, one).evidence["reward"] for one in kinds]
    assert [one["raw"]["efficiency"] for one in found] == pytest.approx([0.75, 0.25])
    assert sum(one[measure] for one in found) / 2 == pytest.approx(usual)


def test_the_time_of_an_agent_that_chooses_actions_is_not_counted() -> None:
    slow = Trajectory(RolloutKey(0, 0, 0), "q", [call("t", 1, "x", duration_ms=9e6)], outcome=1.0)
    reward = made(efficiency_turns=0, efficiency_tokens=0, efficiency_redundant_calls=0)
    reward.learn([paid(reward, trajectory()) for _ in range(30)])
    kept = paid(reward, slow).evidence["reward"]
    assert kept["raw"]["efficiency"] == 0.5 and "seconds" not in kept


def test_a_memory_of_turns_alone_is_taken_over() -> None:
    older = {f"seen/{name}": np.zeros(0) for name in ("completion", "efficiency", "code_quality", "feedback")}
    older |= {"types": ["sums"], "lengths": [30], "turns": np.array([2.0, 6.0] * 15)}
    reward = made(efficiency_tokens=0, efficiency_redundant_calls=0)
    reward.load_state_dict(older)
    one = paid(reward, trajectory(1.0, 3, {"task_type": "sums"}))
    assert one.evidence["reward"]["raw"]["efficiency"] == pytest.approx(0.625)


def test_the_task_type_is_the_scorer_where_nothing_else_is_said() -> None:
    assert signals.task_type({"scorer": "numeric"}) == "numeric"
    assert signals.task_type({"scorer": "numeric", "task_type": "sums"}) == "sums"
    assert signals.task_type({"task_type": 7}) == signals.task_type({}) == ""


@pytest.mark.parametrize(
    ("given_", "quality"),
    [
        (None, None),
        ({}, None),
        (0.8, 0.8),
        ({"lint": 0.9, "tests_passed": 3, "tests_total": 4, "security": 0.6}, 0.75),
        ({"lint_findings": 1}, 0.5),
        ({"lint_findings": 3, "security_findings": 0}, 0.625),
        ({"tests": 0.5}, 0.5),
        ({"tests_passed": 5, "tests_total": 4}, None),
        ({"tests_passed": 0, "tests_total": 0}, None),
        ({"lint": "good", "tests_passed": None, "security": [1]}, None),
        ("spotless", None),
        (math.nan, None),
        (True, None),
        (10**400, None),
    ],
)
def test_composite_reads_code_quality(given_: Any, quality: float | None) -> None:
    assert signals.code_quality({"code_quality": given_}) == (None if quality is None else pytest.approx(quality))


@pytest.mark.parametrize(
    ("given_", "value"),
    [
        (None, 0.5),
        ({"thumbs": "up"}, 1.0),
        ({"thumbs": False}, 0.0),
        ({"thumbs": -1}, 0.0),
        ({"thumbs": 1.0}, 1.0),
        ({"stars": 1}, 0.0),
        ({"stars": 4}, 0.75),
        ({"stars": 9}, 0.5),
        ({"thumbs": "up", "stars": 3}, 0.75),
        ({"implicit": "correction"}, 0.2),
        ({"implicit": "abandoned"}, 0.0),
        ({"implicit": "none"}, 0.5),
        ({"implicit": ["abandoned"]}, 0.5),
        ({"thumbs": "down", "implicit": "none"}, 0.0),
        ({"thumbs": {"up": 1}, "stars": math.inf}, 0.5),
        ("great", 0.5),
    ],
)
def test_composite_reads_feedback(given_: Any, value: float) -> None:
    assert signals.feedback({"feedback": given_}) == pytest.approx(value)


def test_missing_evidence_is_worth_its_mean() -> None:
    reward = made()
    with_code = [trajectory(evidence={"code_quality": quality}) for quality in (0.2, 0.6)]
    reward.learn([paid(reward, one) for one in with_code])
    assert paid(reward, trajectory()).components["code_quality"] == pytest.approx(0.15 * 0.4)
    reward.learn([paid(reward, trajectory(evidence={"code_quality": n % 2})) for n in range(ENOUGH)])
    assert paid(reward, trajectory()).components["code_quality"] == 0


def test_composite_distinguishes_measured_evidence_and_missing_evidence() -> None:
    bare, given = trajectory(), trajectory(evidence={"code_quality": 0.4, "feedback": {"stars": 5}})
    found = [paid(made(), one).evidence["reward"]["measured"] for one in (bare, given)]
    assert found[0] == {"completion": True, "efficiency": True, "code_quality": False, "feedback": False}
    assert all(found[1].values())
    said = rewards.get("composite").option_help
    assert "evidence" in said["code_quality"] and "evidence" in said["feedback"]


def test_siblings_are_measured_alike_until_the_scale_learns() -> None:
    reward = taught([1.0, 0.0] * 15)
    first = paid(reward, trajectory()).reward
    for _ in range(50):
        assert paid(reward, trajectory()).reward == first
    reward.learn([paid(reward, trajectory()) for _ in range(50)])
    assert paid(reward, trajectory()).reward < first


def test_composite_forgets_what_lies_further_back_than_its_window() -> None:
    window = Window(3)
    window.add([9.0, 1.0, 2.0, 3.0])
    assert window.values.tolist() == [1.0, 2.0, 3.0]
    assert (window.scale.n, window.scale.mean) == (3, 2.0)
    assert Window(3).scale.mean == 0
    reward = taught([0.0] * 1000)
    reward.learn([paid(reward, trajectory(1.0)) for _ in range(1000)])
    assert paid(reward, trajectory()).components["completion"] == 0


def test_composite_remembers_the_task_types_that_were_seen_last() -> None:
    reward = made()
    for kind in [*range(MAX_TYPES), 0, MAX_TYPES]:
        reward.learn([paid(reward, trajectory(evidence={"task_type": f"kind {kind}"}))])
    types = reward.state_dict()["types"]
    assert len(types) == MAX_TYPES and "kind 0" in types and "kind 1" not in types


def test_a_failed_trajectory_teaches_nothing() -> None:
    reward = made()
    late = paid(reward, trajectory(error="timeout: over 3 s"))
    assert late.reward == -1.0
    reward.learn([late, paid(reward, trajectory(error="environment: gone"))])
    state = reward.state_dict()
    assert state["types"] == [] and not len(state["seen/completion"])


def test_its_memory_comes_back_bit_for_bit() -> None:
    reward = taught([n / 7 % 1 for n in range(45)], [n % 5 + 1 for n in range(45)])
    again = made()
    assert isinstance(again, LearningReward)
    again.load_state_dict(reward.state_dict())
    for outcome, turns in ((1.0, 1), (0.3, 4)):
        assert paid(again, trajectory(outcome, turns)).reward == paid(reward, trajectory(outcome, turns)).reward
    again.load_state_dict({})
    assert paid(again, trajectory()).reward == pytest.approx(0.625)


def test_weights_are_options() -> None:
    one = paid(made(completion=1, efficiency=0, feedback=0, code_quality=0), trajectory(0.25))
    assert one.reward == 0.25
    with pytest.raises(ValueError, match="must not all be 0"):
        made(completion=0, efficiency=0, feedback=0, code_quality=0)
    with pytest.raises(ValueError, match="completion must be a number from 0 to 10; got -1"):
        made(completion=-1)
    with pytest.raises(ValueError, match="shares of efficiency must not all be 0"):
        made(efficiency_turns=0, efficiency_seconds=0, efficiency_tokens=0, efficiency_redundant_calls=0)
    assert paid(made(timeout=-0.5), trajectory(error="timeout: over 1 s")).reward == -0.5
    assert paid(made(failure=-0.2), trajectory(error="model: refused")).reward == -0.2


def test_an_outcome_that_is_no_share_marks_the_trajectory() -> None:
    for outcome in (math.nan, 1.5, -0.1):
        assert paid(made(), trajectory(outcome)).error.startswith("reward: ValueError: the outcome")


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=8)
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_quality = st.dictionaries(
    st.sampled_from(["lint", "lint_findings", "tests", "tests_passed", "tests_total", "security", "security_findings"]),
    _values,
)
_feedback = st.dictionaries(st.sampled_from(["thumbs", "stars", "implicit"]), _values)
_evidence = st.fixed_dictionaries(
    {},
    optional={
        "task_type": _values,
        "scorer": _values,
        "code_quality": _values | _quality,
        "feedback": _values | _feedback,
        "reward": _values,
    },
)


@settings(max_examples=150, deadline=None)
@given(evidence=_evidence, outcome=st.floats(0, 1), turns=st.integers(0, 30), learned=st.booleans())
def test_composite_is_finite_for_any_evidence(
    evidence: dict[str, Any], outcome: float, turns: int, learned: bool
) -> None:
    reward = taught([1.0, 0.0] * 15) if learned else made()
    one = paid(reward, trajectory(outcome, turns, evidence))
    assert one.error == "" and math.isfinite(one.reward)
    assert one.reward == pytest.approx(math.fsum(one.components.values()))
    assert all(value is None or 0 <= value <= 1 for value in one.evidence["reward"]["raw"].values())
    json.dumps(one.evidence["reward"], allow_nan=False)
    reward.learn([one])
    assert np.isfinite(reward.state_dict()["usual/turns"]).all()


@pytest.mark.parametrize(
    ("share", "usual", "more", "place"),
    # 29 of 30 take 3 and one takes 4: 4 lies 0.967 above the mean, in units of at least .5.
    [("turns", 1, 1, (2 - 0.9667 / 0.5) / 4), ("tokens", 100, 20, 0.25), ("seconds", 1000, 500, 0.25)],
)
def test_what_hardly_varies_is_measured_by_a_floor(share: str, usual: int, more: int, place: float) -> None:
    shares = dict.fromkeys(MEASURES, 0.0) | {share: 1.0}
    reward = made(**{f"efficiency_{name}": value for name, value in shares.items()})

    def lived(amount: int) -> Trajectory:
        one = trajectory(turns=2 + amount if share == "turns" else 1, model="small")
        if share == "tokens":
            one.steps[0].tokens = amount
        if share == "seconds":
            one.steps[0].duration_ms = amount
        return paid(reward, one)

    reward.learn([lived(usual) for _ in range(29)] + [lived(usual + (more if share == "turns" else 0))])
    found = lived(usual + more).evidence["reward"]["raw"]["efficiency"]
    assert found == pytest.approx(place, abs=1e-4)


def by_design(**options: Any) -> CompositeReward:
    return made(formulas="feedback_loop", **options)


def raw_of(reward: Any, one: Trajectory) -> dict[str, Any]:
    found: dict[str, Any] = paid(reward, one).evidence["reward"]["raw"]
    return found


def test_the_designs_formulas_pay_partial_work_stars_and_code_by_its_letter() -> None:
    """.5 + .5 x share; stars / 5; linter / 10; 1 - .5 x critical; .5 for code without scores; .2, 0 and .5 of users."""
    outcomes = {0.0: 0.0, 0.25: 0.625, 0.9: 0.95, 1.0: 1.0}
    assert {one: raw_of(by_design(), trajectory(one))["completion"] for one in outcomes} == outcomes
    assert raw_of(by_design(), trajectory(0.6, success=True))["completion"] == 1.0
    values = {"stars": [1, 3, 5]}, {"stars": 1}, {"stars": 3}, {"thumbs": "down"}, {"implicit": "correction"}, {}
    paid_for = [raw_of(by_design(), trajectory(evidence={"feedback": one}))["feedback"] for one in values]
    assert paid_for == pytest.approx([0.6, 0.2, 0.6, 0.0, 0.2, 0.5])
    codes: list[tuple[Any, float | None]] = [
        ({"linter_score": 8.5}, 0.85),
        ({"linter_score": 8.5, "tests_passed": 3, "tests_total": 4}, 0.8),
        ({"critical_issues": 1}, 0.5),
        ({"critical_issues": 3}, 0.0),
        ({"lint": 0.9, "security": 0.7}, 0.8),
        ({"off": "no namespaces"}, 0.5),
        (0.7, 0.7),
        (None, None),
    ]
    for given_code, expected in codes:
        evidence = {} if given_code is None else {"code_quality": given_code}
        found = raw_of(by_design(), trajectory(evidence=evidence))["code_quality"]
        assert found == (expected if expected is None else pytest.approx(expected)), given_code


def test_the_designs_efficiency_counts_turns_alone_from_the_first_observation_on() -> None:
    """Turns 2 and 6: mean 4, sigma 2. (mean - turns) / sigma within 2, then (z + 2) / 4."""
    reward = by_design()
    assert raw_of(reward, trajectory(turns=9))["efficiency"] is None
    reward.learn([paid(reward, trajectory(1.0, turns)) for turns in (2, 6)])
    found = [raw_of(reward, trajectory(1.0, turns))["efficiency"] for turns in (4, 3, 5, 0, 20)]
    assert found == pytest.approx([0.5, 0.625, 0.375, 1.0, 0.0])


def test_the_designs_normalisation_is_the_z_score_of_the_trailing_window() -> None:
    """Outcomes 1 and 0: mean .5, sigma .5. A success is z = 1 and pays .4; no floor holds what never changed."""
    reward = by_design()
    assert paid(reward, trajectory()).components["completion"] == pytest.approx(0.4)
    reward.learn([paid(reward, trajectory(one)) for one in (1.0, 0.0)])
    kept = paid(reward, trajectory(1.0))
    assert kept.components == pytest.approx(
        {"completion": 0.4, "efficiency": 0.1, "code_quality": 0, "feedback": 0}, abs=1e-6
    )
    praised = paid(reward, trajectory(evidence={"feedback": {"stars": 5}}))
    assert praised.components["feedback"] == pytest.approx(0.25 * 0.5 / 1e-8)
    again = by_design()
    again.load_state_dict(reward.state_dict())
    assert paid(again, trajectory(1.0)).components == kept.components
    with pytest.raises(ValueError, match="formulas"):
        made(formulas="others")


def test_a_bad_outcome_is_the_designs_fault_too() -> None:
    assert "not in [0, 1]" in paid(by_design(), trajectory(7.0)).error
