"""Rewards tried on samples and on recorded trajectories: faults of options, pay, summaries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from experiences.rollouts.environments.scorers import MAX_RUBRIC
from experiences.rollouts.rewards import Payment, Reward, pay, rewards
from experiences.rollouts.rewards.composite import CompositeReward
from experiences.rollouts.rewards.judge import JudgeReward
from experiences.rollouts.rewards.samples import MAX_STEPS, sample_trajectory
from experiences.rollouts.rewards.shaped import ShapedReward
from experiences.rollouts.rewards.trial import (
    OWN_ERROR,
    RewardSummary,
    Tried,
    option_errors,
    reward_faults,
    reward_fields,
    summary,
    tried,
)
from experiences.rollouts.types import RolloutKey, Step, Trajectory

NO_RUBRIC = f"reward judge: rubric must be a text of at most {MAX_RUBRIC:,} characters."
RUBRIC = {"rubric": "Ten points for a right answer."}
WHOLE = {
    "iteration": 2, "scenario": 3, "rollout": 4, "query": "what?", "success": False, "outcome": 0.25,
    "steps": [{"state": {"a": 1}, "action": {"type": "tool"}, "result": {"success": True}, "tokens": 7,
               "cost_micros": 8, "duration_ms": 1.5}],
    "evidence": {"scorer": "exact"}, "truncated": True, "error": "environment: gone", "duration_ms": 12.5,
}  # fmt: skip


def test_a_sample_is_read_with_all_its_fields() -> None:
    step = Step({"a": 1}, {"type": "tool"}, {"success": True}, tokens=7, cost_micros=8, duration_ms=1.5)
    assert repr(sample_trajectory(WHOLE, 0)) == repr(
        Trajectory(
            RolloutKey(2, 3, 4), "what?", [step], success=False, outcome=0.25, evidence={"scorer": "exact"},
            truncated=True, error="environment: gone", duration_ms=12.5,
        )
    )  # fmt: skip


def test_a_sample_without_fields_is_a_rollout_of_the_same_query() -> None:
    trajectory = sample_trajectory({}, 5)
    assert repr(trajectory) == repr(Trajectory(RolloutKey(0, 0, 5), "", []))
    assert not trajectory.success and not trajectory.truncated and trajectory.outcome == trajectory.duration_ms == 0.0
    [step] = sample_trajectory({"steps": [{}]}, 0).steps
    assert repr(step) == repr(Step({}, {}, {})) and step.tokens == step.cost_micros == step.duration_ms == 0


@pytest.mark.parametrize(
    ("given", "success", "outcome"),
    [
        ({"success": True}, True, 1.0),
        ({"success": False}, False, 0.0),
        ({"outcome": 1}, True, 1.0),
        ({"outcome": 0}, False, 0.0),
        ({"outcome": 0.99}, False, 0.99),
        ({"success": True, "outcome": 0.5}, True, 0.5),
    ],
)
def test_success_and_outcome_follow_from_each_other(given: dict[str, Any], success: bool, outcome: float) -> None:
    trajectory = sample_trajectory(given, 0)
    assert (trajectory.success, trajectory.outcome) == (success, outcome)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "sample 2 is no object."),
        ({"success": 1}, "sample 2: success is true or false."),
        ({"outcome": True}, "sample 2: outcome is a number."),
        ({"outcome": "1"}, "sample 2: outcome is a number."),
        ({"outcome": math.nan}, "sample 2: outcome is a number."),
        ({"outcome": 1.01}, "sample 2: outcome is between 0 and 1; got 1.01."),
        ({"outcome": -0.5}, "sample 2: outcome is between 0 and 1; got -0.5."),
        ({"steps": {}}, "sample 2: steps is a list of at most 200."),
        ({"steps": "ab"}, "sample 2: steps is a list of at most 200."),
        ({"steps": [{}] * 201}, "sample 2: steps is a list of at most 200."),
        ({"evidence": []}, "sample 2: evidence is an object."),
        ({"iteration": "x"}, "sample 2: iteration is a number."),
        ({"scenario": None}, "sample 2: scenario is a number."),
        ({"rollout": math.inf}, "sample 2: rollout is a number."),
        ({"duration_ms": "1"}, "sample 2: duration_ms is a number."),
        ({"steps": [{}, 3]}, "sample 2, step 2 is no object."),
        ({"steps": [{"state": 1}]}, "sample 2, step 1: state is an object."),
        ({"steps": [{"action": 1}]}, "sample 2, step 1: action is an object."),
        ({"steps": [{"result": []}]}, "sample 2, step 1: result is an object."),
        ({"steps": [{"tokens": "7"}]}, "sample 2, step 1: tokens is a number."),
        ({"steps": [{"cost_micros": True}]}, "sample 2, step 1: cost_micros is a number."),
        ({"steps": [{"duration_ms": None}]}, "sample 2, step 1: duration_ms is a number."),
    ],
)
def test_a_sample_that_is_wrong_is_named_with_what_to_do(given: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        sample_trajectory(given, 1)
    assert str(refused.value) == message


def test_a_sample_may_have_two_hundred_steps() -> None:
    assert len(sample_trajectory({"steps": [{}] * 200}, 0).steps) == MAX_STEPS == 200


# -- faults of options -------------------------------------------------------------------------------------------------

LIMITS = {
    "composite": {
        **dict.fromkeys(("completion", "efficiency", "code_quality", "feedback"), (0, 10)),
        **dict.fromkeys(
            ("efficiency_turns", "efficiency_seconds", "efficiency_tokens", "efficiency_redundant_calls"), (0, 10)
        ),
        "window": (30, 100_000), "timeout": (-10, 10), "failure": (-10, 10),
    },
    "shaped": {
        **dict.fromkeys(("tool", "verify", "step", "timeout", "failure"), (-10, 10)),
        "wrong_answer": (-10, 0), "max_paid_calls": (0, 1000), "gamma": (0, 1),
    },
    "judge": {"calls": (1, 9), "threshold": (0, 1)},
    "relative_rank": {"margin": (0, 1e9)},
}  # fmt: skip


@pytest.mark.parametrize(("reward", "option"), [(name, one) for name, known in LIMITS.items() for one in known])
def test_an_option_is_taken_up_to_its_limits_and_no_further(reward: str, option: str) -> None:
    own = RUBRIC if reward == "judge" else {}
    low, high = LIMITS[reward][option]
    for value in (low, high):
        assert option_errors(reward, own | {option: value}) == {}
    for value in (low - 1, high + 1, low - 0.001, high * 1.0001 + 0.001, True, "1"):
        text = f"reward {reward}: {option} must be a number from {low:g} to {high:g}; got {value!r}."
        assert option_errors(reward, own | {option: value}) == {f"options.{option}": text}


def test_options_that_are_left_out_have_the_documented_values() -> None:
    shaped = rewards.get("shaped")({})
    assert shaped == ShapedReward()
    assert isinstance(shaped, ShapedReward)
    assert (shaped.rule, shaped.tool, shaped.verify, shaped.step) == ("strict", 0.1, 0.05, -0.01)
    assert (shaped.wrong_answer, shaped.max_paid_calls, shaped.gamma) == (0.0, 3, 0.99)
    assert (shaped.partial_credit, shaped.failures.timeout, shaped.failures.failure) == (False, -1.0, None)
    judge = rewards.get("judge")(RUBRIC)
    assert isinstance(judge, JudgeReward)
    wanted = judge.rubric
    assert (judge.pays, wanted.threshold, wanted.calls, wanted.model, wanted.shows_reference) == (
        "score",
        0.7,
        1,
        "",
        True,
    )
    rank: Any = rewards.get("relative_rank")({})
    assert (rank.by, rank.scale, rank.margin, rank.success_first, rank.other) == ("outcome", "raw", 0.0, True, None)
    assert (rank.failures.timeout, rank.failures.failure) == (0.0, None)
    composite = rewards.get("composite")({})
    assert isinstance(composite, CompositeReward) and composite.window == 1000
    assert composite.weights == {"completion": 0.4, "efficiency": 0.2, "code_quality": 0.15, "feedback": 0.25}
    assert composite.shares == {"turns": 0.4, "seconds": 0.2, "tokens": 0.2, "redundant_calls": 0.2}
    assert (composite.failures.timeout, composite.failures.failure) == (-1.0, None)


def test_options_that_are_given_reach_the_reward() -> None:
    judge: Any = rewards.get("judge")(
        {"rubric": "  short  ", "model": " large ", "calls": 3, "pays": "success", "threshold": 0.5, "reference": False}
    )
    rubric = judge.rubric
    assert (rubric.text, rubric.model, rubric.calls, rubric.threshold) == ("short", "large", 3, 0.5)
    assert (rubric.shows_reference, judge.pays) == (False, "success")
    composite: Any = rewards.get("composite")({"efficiency_tokens": 0.5, "feedback": 2, "window": 40, "failure": -0.5})
    assert composite.shares["tokens"] == 0.5 and composite.weights["feedback"] == 2 and composite.window == 40
    assert composite.failures.failure == -0.5 and not made_of_code("composite", code_quality=0)
    assert made_of_code("composite") and made_of_code("relative_rank", by="reward", of="composite")
    assert not made_of_code("relative_rank") and not made_of_code("outcome")
    rank: Any = rewards.get("relative_rank")({"by": "steps", "scale": "z", "margin": 0.5, "success_first": False})
    assert (rank.by, rank.scale, rank.margin, rank.success_first) == ("steps", "z", 0.5, False)


def made_of_code(name: str, **options: Any) -> bool:
    return bool(getattr(rewards.get(name)(options), "inspects_code", False))


@pytest.mark.parametrize("rubric", ["", "   ", None, 7, "x" * (MAX_RUBRIC + 1)])
def test_a_rubric_is_a_text_of_bounded_length(rubric: Any) -> None:
    assert option_errors("judge", {"rubric": rubric}) == {"options.rubric": NO_RUBRIC}
    assert option_errors("judge", {"rubric": " x" + "x" * (MAX_RUBRIC - 1)}) == {}


@pytest.mark.parametrize(
    ("name", "options", "faults"),
    [
        ("outcome", {}, {}),
        (
            "shaped",
            {"tool": "x", "step": 99, "verify": 0.1},
            {
                "options.tool": "reward shaped: tool must be a number from -10 to 10; got 'x'.",
                "options.step": "reward shaped: step must be a number from -10 to 10; got 99.",
            },
        ),
        ("judge", {}, {"options": NO_RUBRIC}),
        # Without the faulty one the rubric would be missing: that is no mistake of its own.
        ("judge", {"rubric": 3}, {"options.rubric": NO_RUBRIC}),
        ("judge", RUBRIC | {"model": 3}, {"options.model": "reward judge: model must be the name of a model; got 3."}),
        (
            "composite",
            dict.fromkeys(("feedback", "completion", "efficiency", "code_quality"), 0),
            {
                "options.completion": "reward composite: completion, efficiency, code_quality and feedback must not"
                " all be 0."
            },
        ),
        (
            "composite",
            {f"efficiency_{name}": 0 for name in ("turns", "seconds", "tokens", "redundant_calls")},
            {"options": "reward composite: the shares of efficiency must not all be 0."},
        ),
        (
            "relative_rank",
            {"of": "shaped"},
            {"options.of": "reward relative_rank: of and of_options are for by: reward; by is outcome."},
        ),
        (
            "relative_rank",
            {"by": "reward", "of": "shaped", "of_options": 3},
            {"options.of_options": "reward relative_rank: of_options must be an object; got 3."},
        ),
    ],
)  # fmt: skip
def test_each_faulty_option_is_named_once_with_its_message(
    name: str, options: dict[str, Any], faults: dict[str, str]
) -> None:
    errors = option_errors(name, options)
    if name == "composite" and "options" in faults:
        assert list(errors.values()) == list(faults.values())
    else:
        assert errors == faults
    assert reward_faults(name, options) == errors
    fields = {f"reward_{field}": text for field, text in errors.items()}
    assert reward_fields(name, options, has_model=True) == fields


def test_a_reward_that_is_not_there_or_has_no_model_to_ask_is_a_fault_of_the_reward() -> None:
    assert "no reward named 'praise'" in reward_fields("praise", {}, has_model=True)["reward"]
    for name, options in (("judge", RUBRIC), ("relative_rank", {"by": "reward", "of": "judge", "of_options": RUBRIC})):
        asks = reward_fields(name, options, has_model=False)
        assert set(asks) == {"reward"} and f"The reward {name} asks a language model" in asks["reward"]
        assert reward_fields(name, options, has_model=True) == reward_faults(name, options) == {}
    assert reward_fields("outcome", {}, has_model=False) == {}
    assert set(reward_fields("judge", {"rubric": 3}, has_model=False)) == {"reward_options.rubric"}


class Broken:
    description = option_help = ""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, options: Mapping[str, Any]) -> Reward:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no good"), "no good"),
        (ValueError(), "it is refused"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("the size of it"), "the size of it"),
    ],
)
def test_a_factory_that_raises_answers_with_its_error(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option is named where the message has its whole name, not a part of a word."""
    monkeypatch.setattr(rewards, "_items", {**rewards._items, "broken": Broken(error)})
    assert option_errors("broken", {"goo": 1, "siz": 2, "ize": 3}) == {"options": message}


# -- pay ---------------------------------------------------------------------------------------------------------------


def recorded(iteration: int, scenario: int, rollout: int, outcome: float, **changed: Any) -> Trajectory:
    steps = [Step({}, {"type": "answer"}, {}, reward=9.0)]
    kept = {"evidence": {"reward": {"old": 1}, "scorer": "exact"}, "reward": 0.125, "components": {"old": 0.125}}
    key = RolloutKey(iteration, scenario, rollout)
    return Trajectory(key, "q", steps, success=outcome == 1, outcome=outcome, **(kept | changed))


class Learns:
    """Pays the number of trajectories that it learned from."""

    def __init__(self) -> None:
        self.learned: list[RolloutKey] = []

    def __call__(self, trajectory: Trajectory) -> Payment:
        return Payment.at_the_end(trajectory, {"n": float(len(self.learned))})

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        self.learned += [one.key for one in trajectories]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def test_a_trial_pays_in_the_order_of_training_and_changes_nothing_that_is_given() -> None:
    lived = [
        ("c", ("job", "a"), recorded(2, 0, 0, 0.5)),
        ("b", ("job", "a"), recorded(1, 1, 0, 0.5)),
        ("a", ("job", "a"), recorded(1, 0, 0, 0.5, error=f"{OWN_ERROR}it broke", reward=math.nan)),
        ("d", ("job", "b"), recorded(1, 0, 0, 0.5, error="environment: gone")),
    ]
    reward = Learns()
    found = tried(reward, lived)
    assert [(one.id, one.before) for one in found][1:] == [("b", 0.125), ("c", 0.125), ("d", 0.125)]
    assert found[0].id == "a" and math.isnan(found[0].before)
    assert [one.paid.reward for one in found[:3]] == [0.0, 0.0, 2.0] and math.isnan(found[3].paid.reward)
    assert len(reward.learned) == 4
    first = found[0].paid
    assert first.error == "" and first.components == {"n": 0.0} and first.evidence == {"scorer": "exact"}
    assert found[3].paid.error == "environment: gone" and found[3].paid.steps[0].reward == 0.0
    for _, _, one in lived:
        assert one.steps[0].reward == 9.0 and one.evidence["reward"] == {"old": 1} and one.components


def test_a_trial_ranks_each_group_by_itself() -> None:
    lived = [
        (f"{scenario}{rollout}", ("job",), recorded(1, scenario, rollout, outcome))
        for scenario, outcomes in ((0, (0.1, 0.9)), (1, (0.8, 0.2, 0.5)))
        for rollout, outcome in enumerate(outcomes)
    ]
    values = {one.id: one.paid.reward for one in tried(rewards.get("relative_rank")({}), lived)}
    assert values == {"00": 0.0, "01": 1.0, "10": 1.0, "11": 0.0, "12": 0.5}


def test_a_reward_that_runs_out_of_time_leaves_its_rollout_unscored() -> None:
    class Slow:
        def __call__(self, trajectory: Trajectory) -> Payment:
            if trajectory.key.rollout:
                raise TimeoutError("5 s")
            return Payment.at_the_end(trajectory, {"a": 0.5})

        def settle(self, trajectories: Sequence[Trajectory]) -> list[Payment | None]:
            raise TimeoutError

    found = tried(Slow(), [(n, ("job",), recorded(1, 0, n, 1.0)) for n in (0, 1)])
    assert (found[0].paid.reward, found[0].paid.error) == (0.5, "")
    assert math.isnan(found[1].paid.reward) and found[1].paid.error == "reward: 5 s"


def result(reward: float, before: float, *, success: bool) -> Tried:
    return Tried("x", recorded(1, 0, 0, float(success), reward=reward), before)


def test_a_summary_is_of_what_was_scored() -> None:
    nan = math.nan
    rows = [result(1.0, 0.5, success=True), result(0.0, nan, success=False), result(nan, 0.1, success=True),
            result(0.5, nan, success=True)]  # fmt: skip
    found = summary(rows)
    assert found == RewardSummary(
        n=4, mean=0.5, std=pytest.approx(math.sqrt(1 / 6)), mean_before=pytest.approx(0.3), unscored=0.25,
        correlation=pytest.approx(math.sqrt(3) / 2),
    )  # fmt: skip
    assert summary([]) == RewardSummary(0, None, None, None, 0.0, None)
    assert summary([result(nan, nan, success=True)]) == RewardSummary(1, None, None, None, 1.0, None)


def test_no_correlation_is_given_where_reward_or_success_never_differs() -> None:
    for rows in (
        [result(1.0, 0.0, success=True)],
        [result(1.0, 0.0, success=True), result(0.0, 0.0, success=True)],
        [result(0.3, 0.0, success=True), result(0.3, 0.0, success=False)],
    ):
        assert summary(rows).correlation is None
    pair = [result(1.0, 0.0, success=True), result(0.0, 0.0, success=False)]
    assert summary(pair).correlation == pytest.approx(1.0)


# -- second payments ---------------------------------------------------------------------------------------------------


def test_a_rank_keeps_what_the_ranked_reward_paid_and_why() -> None:
    reward: Any = rewards.get("relative_rank")({"by": "reward", "of": "ground_truth"})
    group = [recorded(1, 0, n, outcome, evidence={}) for n, outcome in enumerate((0.2, 0.8))]
    for one in group:
        pay(reward, one)
        kept = one.evidence["reward"]
        assert (kept["name"], kept["by"]) == ("relative_rank", "reward")
        assert kept["components"] == {"ground_truth": one.outcome} and kept["measure"] == one.outcome
        assert kept["of"]["score"] == one.outcome and kept["unscored"] == "not ranked yet"
    payments = reward.settle(group)
    assert [one.before for one in payments] == [0.2, 0.8] and [one.steps for one in payments] == [[0.0], [1.0]]
    assert payments[0].evidence == {
        "name": "relative_rank", "by": "reward", "measure": 0.2, "scale": "raw", "cohort": 2, "rank": 2.0, "raw": 0.0,
        "components": {"ground_truth": 0.2}, "of": group[0].evidence["reward"]["of"],
    }  # fmt: skip
    plain: Any = rewards.get("relative_rank")({})
    assert [one.before for one in plain.settle(group)] == [None, None]
    [alone] = plain.settle(group[:1])
    assert alone.unscored == "fewer than 2 siblings could be ranked" and alone.evidence["cohort"] == 1


@pytest.mark.parametrize(("by", "first"), [("steps", 0), ("cost", 1), ("duration", 2)])
def test_the_cheapest_success_is_first(by: str, first: int) -> None:
    group = [recorded(1, 0, n, 1.0, duration_ms=10.0) for n in range(3)]
    for n, one in enumerate(group):
        one.steps = [Step({}, {}, {}, cost_micros=10) for _ in range(1 if n == 0 else 2)]
    for step in group[0].steps:
        step.cost_micros = 90
    group[1].steps[0].cost_micros = 1
    group[2].duration_ms = 9.0
    payments = rewards.get("relative_rank")({"by": by}).settle(group)  # type: ignore[attr-defined]
    assert [one.components["relative_rank"] for one in payments].index(1.0) == first
    failed = recorded(1, 0, 3, 0.0)
    failed.steps, failed.duration_ms = [], 0.0
    for success_first, last in ((True, 0.0), (False, 1.0)):
        ranked: Any = rewards.get("relative_rank")({"by": by, "success_first": success_first})
        assert ranked.settle([*group, failed])[-1].components["relative_rank"] == last


def test_the_evidence_of_the_composite_reward_holds_its_weights_and_what_was_measured() -> None:
    one = recorded(1, 0, 0, 0.5, evidence={"scorer": "exact", "feedback": {"thumbs": "up"}})
    pay(rewards.get("composite")({}), one)
    kept = one.evidence["reward"]
    raw = {"completion": 0.5, "efficiency": 0.5, "code_quality": None, "feedback": 1.0}
    assert kept == {
        "name": "composite", "raw": raw, "normalised": raw | {"code_quality": 0.0},
        "weights": {"completion": 0.4, "efficiency": 0.2, "code_quality": 0.15, "feedback": 0.25},
        "observed": dict.fromkeys(raw, 0),
        "measured": {"completion": True, "efficiency": True, "code_quality": False, "feedback": True},
        "turns": 1.0, "tokens": 0.0, "redundant_calls": 0.0, "usual": {}, "task_type": "exact",
    }  # fmt: skip
