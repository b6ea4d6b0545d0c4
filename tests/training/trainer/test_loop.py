"""The trainer: it learns, repeats itself exactly, and a resumed run ends where an uninterrupted one would."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup
from tests.support.signs import ACTIONS, SignEnvironment
from tests.support.waiting import Interrupted
from training.config.presets import PRESETS, presets_for
from training.config.validation import parse_config
from training.learners import policy_of
from training.learners.action import ActionLearner
from training.learners.action_update import update_policy
from training.policies.action import ActionPolicy
from training.policies.archive import CorruptState
from training.policies.features import FeatureOptions
from training.schema import GRPOConfig
from training.trainer import (
    ALL_ITERATIONS,
    EARLY_STOPPED,
    IterationReport,
    TrainerSetup,
    TrainerState,
    TrainingDiverged,
    play,
    steps,
)
from training.trainer.sampling import draw_prioritised, draw_scenarios
from training.trainer.setup import NothingStored
from training.trainer.state import TrainerState as State

ALSO = pytest.mark.thorough(reason="the same run with other settings")
ENVIRONMENT = SignEnvironment()


def setup(seed: int = 1, *, selection: int = 6, train: int = 32, **config: Any) -> TrainerSetup:
    small = {"n_iterations": 12, "eval_interval": 5, "eval_samples": 2, "early_stopping": {"enabled": False}}
    parsed, _ = parse_config(small | config)
    return TrainerSetup(
        config=parsed,
        seed=seed,
        learner=ActionLearner(),
        environment=ENVIRONMENT,
        train=ENVIRONMENT.scenarios("train", train, seed),
        selection=ENVIRONMENT.scenarios("selection", selection, seed) if selection else [],
        policy_version_prefix="p",
    )


class Store(NothingStored):
    """Keeps rollouts as JSON would. ``check`` interrupts the run where a test needs that."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.rows: dict[int, dict[RolloutKey, Trajectory]] = {}
        self.kept_again = 0
        self.checking = check

    def check(self) -> None:
        self.checking()

    def store(self, trajectory: Trajectory) -> None:
        rows = self.rows.setdefault(trajectory.key.iteration, {})
        self.kept_again += trajectory.key in rows
        rows[trajectory.key] = through_json(trajectory)

    def stored(self, iteration: int) -> Mapping[RolloutKey, Trajectory]:
        return self.rows.get(iteration, {})


def through_json(trajectory: Trajectory) -> Trajectory:
    data = json.loads(json.dumps(asdict(trajectory)))
    rows = [Step(**step) for step in data.pop("steps")]
    return Trajectory(**(data | {"key": RolloutKey(*data["key"]), "steps": rows}))


def run(made: TrainerSetup, state: TrainerState | None = None) -> tuple[TrainerState, list[IterationReport]]:
    state = state or made.fresh_state()
    return state, list(steps(made, state))


def greedy(made: TrainerSetup, policy: ActionPolicy) -> float:
    scenarios = ENVIRONMENT.scenarios("held_out", 40, 0)
    plan = replace(made, seed=0).plan(policy, made.reward(), temperature=0, purpose="", stream=1)
    played = asyncio.run(play(scenarios, 2, plan))
    return played.success_rate


MORE = pytest.mark.thorough(reason="a whole run of training for each; two presets learn in make test")


@pytest.mark.slow(reason="a whole run of training for each")
@pytest.mark.parametrize(
    "name",
    [
        one.name if one.name in {"recommended", "gspo"} else pytest.param(one.name, marks=MORE)
        for one in presets_for("action")
        if one.name != "flow_spec"
    ],
)
def test_every_preset_learns_the_small_world(name: str) -> None:
    made = setup(preset=name, n_iterations=100, selection=0)
    state, reports = run(made)
    assert greedy(made, made.fresh_state().policy) < 0.5
    assert greedy(made, state.policy) > 0.9
    assert reports[-1].stop_reason == ALL_ITERATIONS


@pytest.mark.slow(reason="a whole run of training for each")
@pytest.mark.parametrize(
    "credit",
    [
        "reward_to_go",
        *(pytest.param(n, marks=ALSO) for n in ("discounted", "pooled", "step_index", "gigpo", "uniform", "value")),
    ],
)
def test_every_credit_learns_the_small_world(credit: str) -> None:
    made = setup(credit=credit, n_iterations=100, selection=0)
    assert greedy(made, run(made)[0].policy) > 0.9


@pytest.mark.slow(reason="a whole run of training for each")
@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "value", "credit": "uniform"},
        {"credit": "value", "value_fit": "td", "gae_lambda": 0.9},
        {"credit": "value", "n_trajectories_per_query": 1, "batch_size": 16},
        {"optimizer": "adam", "scale_rewards": "batch"},
        {"beta": 0.01, "kl_estimator": "k1"},
        {"beta": 0.01, "kl_estimator": "k2", "use_bias_correction_kl": False},
        {"dynamic_sampling": True},
        {"mask_truncated": True, "delta": 3.0},
        {"features": {"bigrams": True, "own_history": False}},
        {"reward": "outcome"},
        {"exploration": {"failure_memory": 0.0, "query_sampling": "uniform"}},
    ],
    ids=str,
)
@pytest.mark.thorough(reason="a whole run, or a second program")
def test_options_leave_the_trainer_able_to_learn(options: dict[str, Any]) -> None:
    made = setup(n_iterations=100, selection=0, **options)
    assert greedy(made, run(made)[0].policy) > 0.85


def test_the_same_seed_gives_the_same_run_to_the_bit_and_another_seed_another() -> None:
    one, other = run(setup(3))[0], run(setup(3))[0]
    assert one.to_bytes() == other.to_bytes()
    assert one.to_bytes() != run(setup(4))[0].to_bytes()


@pytest.mark.slow(reason="a whole run of training for each")
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"preset": "flow_spec"}, marks=ALSO),
        {"credit": "value", "optimizer": "sgd"},
        {"beta": 0.05, "dynamic_sampling": True},
        {"early_stopping": {"enabled": True, "patience": 1}},
    ],
    ids=str,
)
def test_a_run_that_is_resumed_after_every_iteration_ends_where_an_undisturbed_one_does(options: Any) -> None:
    made = setup(**options)
    undisturbed, reports = run(made)
    state = made.fresh_state()
    seen = []
    while not state.stop_reason:
        data = state.to_bytes()
        state = made.state_of(data)
        assert state.to_bytes() == data
        seen.append(next(steps(made, state)))
    assert state.to_bytes() == undisturbed.to_bytes()
    assert [report.metrics for report in seen] == [report.metrics for report in reports]
    assert [report.selection for report in seen] == [report.selection for report in reports]


@pytest.mark.parametrize("credit", ["reward_to_go", "gigpo"])
def test_rollouts_kept_before_a_crash_give_the_same_update_and_are_not_run_again(credit: str) -> None:
    made = setup(credit=credit)
    undisturbed, _ = run(made)
    calls = 0

    def crash() -> None:
        nonlocal calls
        calls += 1
        if calls == 700:
            raise Interrupted("crash")

    store = Store(crash)  # once: the resumed run goes on counting
    made = replace(made, rollouts=store)
    state = made.fresh_state()
    saved = state.to_bytes()
    with pytest.raises(Interrupted):
        for report in steps(made, state):
            if report.iteration == 2:
                saved = state.to_bytes()
    assert len(store.rows) > 3
    assert 0 < len(store.rows[max(store.rows)]) < 16  # it died within an iteration
    resumed = made.state_of(saved)
    for report in steps(made, resumed):
        assert len(report.groups) == 4
    assert store.kept_again == 0
    assert resumed.to_bytes() == undisturbed.to_bytes()


def test_an_interruption_leaves_the_state_of_the_last_finished_iteration() -> None:
    made = setup(selection=0)
    state = made.fresh_state()
    before = ""

    def stop() -> None:
        if before:
            raise Interrupted("user")

    generator = steps(replace(made, rollouts=Store(stop)), state)
    next(generator)
    before = state.to_bytes().hex()
    with pytest.raises(Interrupted, match="user"):
        next(generator)
    assert state.to_bytes().hex() == before


def test_reports_carry_the_documented_figures_and_every_groups_advantages() -> None:
    _, reports = run(setup())
    assert [report.iteration for report in reports] == list(range(1, 13))
    expected = {
        "loss", "policy_gradient_loss", "reward_mean", "reward_std", "reward_max", "success_rate", "entropy",
        "approx_kl", "kl", "clip_fraction", "grad_norm", "frac_reward_zero_std", "explained_variance", "steps_mean",
        "failed_rollouts", "truncated_rate", "trajectories", "steps",
    }  # fmt: skip
    for report in reports:
        assert set(report.metrics) == expected
        assert all(math.isfinite(value) for value in report.metrics.values())
        assert report.metrics["trajectories"] == 16
        for group in report.groups:
            assert len(group.advantages) == len(group.normalized_rewards) == len(group.trajectories) == 4
            assert sum(group.normalized_rewards) == pytest.approx(0.0, abs=1e-9)
            assert group.has_signal == bool(np.ptp([t.reward for t in group.trajectories]) > 1e-9)
            for trajectory, values in zip(group.trajectories, group.step_advantages, strict=True):
                assert len(values) == len(trajectory.steps)
                assert trajectory.policy_version == f"p{report.iteration - 1}"


def test_selection_is_measured_before_at_intervals_and_at_the_end_on_the_same_rollouts() -> None:
    made = setup(selection=6)
    _, reports = run(made)
    assert [report.iteration for report in reports if report.selection] == [5, 10, 12]
    assert reports[0].baseline is not None
    assert reports[0].baseline.iteration == 0
    assert reports[0].baseline.improvement == 0.0
    assert all(report.baseline is None for report in reports[1:])
    for report in reports:
        if report.selection:
            found = report.selection
            assert (found.n_queries, found.samples) == (6, 2)
            assert found.baseline_success_rate == reports[0].baseline.success_rate
            assert found.improvement == pytest.approx(found.success_rate - found.baseline_success_rate)
            assert found.low <= found.success_rate <= found.high
            assert found.improvement_low <= found.improvement <= found.improvement_high
            assert 0 < found.p_value <= 1


def test_selection_does_not_disturb_training() -> None:
    with_selection, without = run(setup(selection=6))[0], run(setup(selection=0))[0]
    assert with_selection.policy.weights.tobytes() == without.policy.weights.tobytes()


def test_trainer_stops_early_once_selection_no_longer_rises() -> None:
    patient = {"enabled": True, "patience": 2}
    state, reports = run(setup(n_iterations=400, early_stopping=patient))
    assert reports[-1].stop_reason == state.stop_reason == EARLY_STOPPED
    assert len(reports) < 400
    assert all(not report.stop_reason for report in reports[:-1])
    assert reports[-1].selection is not None
    assert run(setup(n_iterations=400, early_stopping=patient), state)[1] == []


def test_the_last_iteration_is_the_reason_even_on_a_plateau() -> None:
    _, reports = run(setup(n_iterations=5, early_stopping={"enabled": True, "patience": 1, "min_delta": 10}))
    assert reports[-1].stop_reason == ALL_ITERATIONS


def test_training_goes_on_from_a_copy_of_a_policy_and_leaves_the_original_alone() -> None:
    made = setup(n_iterations=60, beta=0.05)
    first, _ = run(made)
    production = policy_of(first.to_bytes())
    before = production.weights.copy()
    made = replace(made, start=lambda: production)
    state = made.fresh_state()
    assert greedy(made, state.policy) > 0.9
    _, reports = run(made, state)
    assert production.weights.tobytes() == before.tobytes()
    assert reports[0].baseline is not None
    assert reports[0].baseline.success_rate > 0.9
    assert 0 < reports[-1].metrics["kl"] < 2


def test_a_state_can_only_be_read_from_its_own_bytes() -> None:
    made = setup()
    with pytest.raises(CorruptState):
        made.state_of(b"not a state")
    with pytest.raises(CorruptState):
        made.state_of(made.fresh_state().to_bytes()[:-40])


def test_checkpoints_are_small() -> None:
    state, _ = run(setup(n_iterations=50))
    assert len(state.to_bytes()) < 100_000


# -- one update ---------------------------------------------------------------------------------------------------


def trajectory(rollout: int, reward: float, choices: tuple[int, ...] = (0, 4), *, success: bool = False) -> Trajectory:
    """A rollout that took ``choices`` under the uniform policy and was paid at the end."""
    rows = [
        Step(
            state={"observation": "", "done": [], "mask": "11111"},
            action={},
            result={},
            choice=choice,
            logprob=-math.log(5),
            reward=reward if i == len(choices) - 1 else 0.0,
        )
        for i, choice in enumerate(choices)
    ]
    return Trajectory(RolloutKey(1, 0, rollout), "Please show the sun", rows, success=success, reward=reward)


def group(*trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(Scenario(0, "Please show the sun"), list(trajectories))


def updated(groups: list[TrajectoryGroup], **config: Any) -> tuple[State, dict[str, float]]:
    """The state and figures after one update of an untrained policy that was moved once before."""
    made = setup(**({"credit": "uniform", "entropy_coef_failed_group": 0.0} | config))
    state = made.fresh_state()
    state.policy = ActionPolicy.fresh(ACTIONS, FeatureOptions(min_df=1), ["Please show the sun"])
    warm_up = [group(trajectory(0, 1.0, (1, 4), success=True), trajectory(1, 0.0, (2, 4)))]
    update_policy(warm_up, state.policy, state.optimizer, state.value, made.config)
    before = state.policy.weights.copy()
    metrics = update_policy(groups, state.policy, state.optimizer, state.value, made.config).metrics
    metrics["moved"] = float(np.abs(state.policy.weights - before).max())
    return state, metrics


def test_a_batch_without_signal_makes_no_step_not_even_by_momentum() -> None:
    alike = group(trajectory(0, 0.5), trajectory(1, 0.5))
    state, metrics = updated([alike])
    assert metrics["moved"] == 0.0
    assert metrics["frac_reward_zero_std"] == 1.0
    assert not alike.has_signal
    assert state.optimizer.state_dict()["steps"] == 2  # the warm-up's two inner epochs
    assert updated([group(trajectory(0, 0.5), trajectory(1, 0.7, success=True))])[1]["moved"] > 0


def test_a_failed_group_explores_more_only_with_its_option() -> None:
    failed = [group(trajectory(0, -0.1), trajectory(1, -0.1))]
    solved = [group(trajectory(0, 1.0, success=True), trajectory(1, 1.0, success=True))]
    assert updated(failed, entropy_coef_failed_group=0.1)[1]["moved"] > 0
    assert updated(solved, entropy_coef_failed_group=0.1)[1]["moved"] == 0.0


def test_step_costs_of_a_failed_group_can_be_left_out() -> None:
    costs = [group(trajectory(0, -0.02), trajectory(1, -0.2, (0, 1, 2, 4)))]
    assert updated(costs, exploration={"learn_from_failed_groups": False})[1]["moved"] == 0.0
    assert updated(costs, exploration={"learn_from_failed_groups": True})[1]["moved"] > 0


def test_trainer_makes_what_was_rewarded_more_likely() -> None:
    state, _ = updated([group(trajectory(0, 1.0, (3, 4), success=True), trajectory(1, 0.0, (0, 4)))] * 1)
    p = state.policy.probabilities(_seen())
    assert p[3] > p[0]


def _seen() -> Any:
    from experiences.rollouts.types import Observation

    return Observation("Please show the sun", "", ())


def test_positive_only_learns_nothing_from_the_worse_half() -> None:
    used = group(trajectory(0, 1.0, success=True), trajectory(1, 0.0))
    updated([used], advantage_filter="positive")
    assert used.advantages[1] < 0
    assert used.step_advantages[1] == [0.0, 0.0]
    assert min(used.step_advantages[0]) > 0


def test_a_rollout_that_could_not_be_scored_leaves_the_others_as_they_were() -> None:
    broken = replace(trajectory(2, math.nan), error="reward: boom")
    with_broken = group(trajectory(0, 1.0, (3, 4), success=True), trajectory(1, 0.0), broken)
    without = group(trajectory(0, 1.0, (3, 4), success=True), trajectory(1, 0.0))
    one, metrics = updated([with_broken])
    other, _ = updated([without])
    assert one.policy.weights.tobytes() == other.policy.weights.tobytes()
    assert with_broken.advantages[2] == 0.0
    assert with_broken.step_advantages[2] == [0.0, 0.0]
    assert metrics["failed_rollouts"] == 1


def test_a_rollout_that_failed_before_its_first_step_is_trained_around() -> None:
    empty = Trajectory(RolloutKey(1, 0, 1), "q", [], reward=-1.0, error="timeout: over 1 s")
    used = group(trajectory(0, 1.0, success=True), empty)
    _, metrics = updated([used])
    assert metrics["moved"] > 0
    assert used.advantages[1] < 0
    assert used.step_advantages[1] == []


def test_nothing_scorable_at_all_is_survived() -> None:
    _, metrics = updated([group(trajectory(0, math.nan), trajectory(1, math.nan))])
    assert metrics["moved"] == 0.0
    assert all(math.isfinite(value) for value in metrics.values())


def test_the_reward_that_steps_leave_unexplained_is_paid_at_the_end() -> None:
    unpaid = trajectory(0, 0.0, success=True)
    unpaid.reward = 1.0
    paid = trajectory(0, 1.0, success=True)
    results = []
    for one in (unpaid, paid):
        used = group(one, trajectory(1, 0.0))
        updated([used], credit="reward_to_go")
        results.append(used.step_advantages)
    assert results[0] == results[1]


def test_rollouts_that_were_cut_off_can_be_left_out_of_the_loss_but_not_of_the_baseline() -> None:
    cut = replace(trajectory(1, 0.0, (2, 2, 2)), truncated=True)
    used = group(trajectory(0, 1.0, (3, 4), success=True), cut)
    masked, metrics = updated([used], mask_truncated=True)
    free, _ = updated([used], mask_truncated=False)
    assert used.advantages[0] > 0
    assert metrics["truncated_rate"] == 0.5
    assert masked.policy.weights.tobytes() != free.policy.weights.tobytes()


def test_a_loss_that_is_not_finite_is_never_applied_and_three_in_a_row_end_the_run() -> None:
    made = setup(selection=0)
    state = made.fresh_state()
    generator = steps(made, state)
    next(generator)
    state.policy.parameters["own"][:] = math.nan
    before = state.policy.weights.copy()
    state.policy.updated("broken")
    with pytest.raises(TrainingDiverged, match="3 updates in a row"):
        for _ in range(3):
            report = next(generator)
            assert any("not finite" in warning for warning in report.warnings)
            assert all(math.isfinite(value) for value in report.metrics.values())
    known = state.policy.weights[: len(before)]
    assert known.tobytes() == before.tobytes()


@pytest.mark.parametrize("preset", ["recommended", "flow_spec"])
def test_the_optimiser_follows_the_gradient_of_the_reported_loss(preset: str) -> None:
    """One SGD step without clipping: the change of W is -lr times the finite difference of the objective."""
    from training.policies.base import Decision
    from training.trainer.batch import advantages_of, batch_of
    from training.trainer.objective import Objective

    config = GRPOConfig.model_validate({**PRESETS[preset].changes, "entropy_coef": 0.02, "credit": "discounted"})
    groups = [group(trajectory(0, 1.0, (3, 4), success=True), trajectory(1, 0.2, (0, 1, 4)))]
    policy = ActionPolicy.fresh(ACTIONS, FeatureOptions(min_df=1), ["Please show the sun"])
    batch = batch_of(groups, config)
    encoded = policy.encode(batch.decisions)
    assert isinstance(batch.decisions[0], Decision)
    _, used = advantages_of(batch.steps, config)
    objective = Objective(encoded, batch, used, np.full(5, 0.02), None, config)
    _, gradients = objective.gradient(policy)
    weights = policy.parameters["weights"]
    for at in [(1, 0), (2, 3), (3, 4)]:
        weights[at] += 1e-6
        up = objective.measure(policy).total
        weights[at] -= 2e-6
        down = objective.measure(policy).total
        weights[at] += 1e-6
        assert gradients["weights"][at] == pytest.approx((up - down) / 2e-6, abs=1e-8)


# -- sampling -----------------------------------------------------------------------------------------------------


def test_every_query_is_drawn_once_before_any_is_drawn_twice() -> None:
    drawn, seen = 0, []
    for _ in range(5):
        chosen, drawn = draw_scenarios(10, 4, drawn, seed=3)
        assert len(set(chosen)) == 4
        seen += chosen
    assert sorted(seen[:10]) == list(range(10))
    assert sorted(seen) == sorted(list(range(10)) * 2)


def test_no_query_comes_twice_in_one_batch_even_where_two_rounds_meet() -> None:
    drawn = 0
    for _ in range(60):
        chosen, drawn = draw_scenarios(3, 2, drawn, seed=5)
        assert len(set(chosen)) == 2


def test_a_batch_larger_than_the_pool_holds_each_query_once() -> None:
    chosen, drawn = draw_scenarios(3, 16, 0, seed=0)
    assert sorted(chosen) == [0, 1, 2]
    assert draw_scenarios(3, 16, drawn, seed=0, taken=[0, 1, 2]) == ([], drawn)


def test_priorities_favour_what_fails_and_forget_nothing() -> None:
    success = np.array([1.0] * 5 + [0.0] * 5)
    counts = np.zeros(10)
    for iteration in range(2_000):
        for position in draw_prioritised(success, 2, iteration, seed=1):
            counts[position] += 1
    assert counts[5:].sum() > 10 * counts[:5].sum()
    assert counts.min() > 0
    assert draw_prioritised(success, 3, 7, seed=1) == draw_prioritised(success, 3, 7, seed=1)
    assert set(draw_prioritised(success, 5, 7, seed=1, taken=range(5))) == set(range(5, 10))


def test_priorities_begin_once_half_of_the_pool_was_drawn() -> None:
    """Until then each query is drawn once, in the order of uniform sampling. From then on a query that failed may come
    again before others came at all."""

    def drawn(sampling: str) -> list[list[str]]:
        made = setup(selection=0, train=16, batch_size=2, n_iterations=8, exploration={"query_sampling": sampling})
        return [[group.trajectories[0].query for group in report.groups] for report in run(made)[1]]

    uniform, prioritised = drawn("uniform"), drawn("prioritised")
    assert prioritised[:4] == uniform[:4]
    assert len({query for queries in uniform for query in queries}) == 16
    assert len({query for queries in prioritised for query in queries}) < 16
