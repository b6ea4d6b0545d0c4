"""The policy over an agent's context: its draws, its gradient, its estimates of each lesson, and the gate."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiences.learning.lessons.library import Lesson, Library
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup
from tests.support.context_runs import setup_of
from tests.support.llm_server import ModelServer
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.algorithm.optimizers import make_optimizer
from training.learners import gate
from training.learners import policy_of as policy_of_bytes
from training.learners.context_update import update_context
from training.policies.archive import pack, under, unpack
from training.policies.context import FLOOR, PRIOR, ContextPolicy, without_lessons
from training.policies.effects import RIDGE, Effects
from training.policies.inclusion import balanced, bits, entropy, logit_of, probabilities
from training.policies.query_words import QueryWords
from training.schema import GRPOConfig
from training.services.run_lessons import states_of
from training.trainer import IterationReport, TrainerSetup, TrainerState, steps
from training.trainer.play import Played
from training.trainer.results import UpdateResult
from training.trainer.sampling import draw_scenarios

SEED = 5
WORLD = World(21)
ROWS = WORLD.rows(80, 21)
SHORT = {"n_iterations": 6, "batch_size": 5, "n_trajectories_per_query": 4, "eval_interval": 3, "eval_samples": 2}

Reward = Callable[[np.ndarray[Any, Any], np.random.Generator], float]


def library(k: int, words: int = 4) -> Library:
    return Library(tuple(Lesson(f"x{n}", f"When case {n} comes up, {'really ' * words}do {n}.") for n in range(k)))


def policy_of(theta: Sequence[float], **changes: Any) -> ContextPolicy:
    policy = ContextPolicy.fresh(library(len(theta)), {}, **changes)
    policy.parameters["theta"] = np.array(theta, dtype=np.float64)
    return policy


def config_of(**changes: Any) -> GRPOConfig:
    context = changes.pop("context", {})
    plain = {"n_trajectories_per_query": 8, "optimizer": "sgd", "learning_rate": 0.05, "max_grad_norm": 1e3}
    return GRPOConfig.model_validate(plain | changes | {"context": {"prune_z": 6.0, **context}})


def lived(policy: ContextPolicy, reward: Reward, *, iteration: int = 1, queries: int = 6, size: int = 8) -> Any:
    """Groups of rollouts with the contexts that the policy draws; ``reward`` sees each context."""
    groups = []
    for index in range(queries):
        attempts = []
        for rollout in range(size):
            key = RolloutKey(iteration, index, rollout)
            rng = np.random.default_rng((99, *key))
            got = reward(policy.drawn(SEED, size, key), rng)
            step = Step({"observation": "", "done": []}, {"type": "answer"}, {"success": True, "output": ""})
            attempts.append(Trajectory(key, f"q{index}", [step], success=got > 0.5, outcome=got, reward=got))
        groups.append(TrajectoryGroup(Scenario(index, f"q{index}"), attempts))
    return groups


def updated(policy: ContextPolicy, groups: Any, config: GRPOConfig, optimizer: Any = None) -> UpdateResult:
    made = optimizer or make_optimizer(config.optimizer, learning_rate=config.learning_rate, weight_decay=0.0)
    return update_context(groups, policy, made, config, SEED)


def worth(*effects: float) -> Reward:
    """Success with a probability that depends on the context."""
    return lambda z, rng: float(rng.random() < np.clip(0.5 + z[: len(effects)] @ np.array(effects), 0, 1))


# -- draws and log-probabilities ---------------------------------------------------------------------------------------


def test_the_probabilities_of_all_sets_sum_to_one() -> None:
    theta = np.array([-3.0, -0.5, 0.0, 0.7, 2.0, 6.0])
    every = np.array(list(itertools.product((False, True), repeat=6)))
    assert np.exp(bits(every, theta, FLOOR).logp.sum(axis=1)).sum() == pytest.approx(1.0, abs=1e-12)
    one = probabilities(np.array([-50.0, 50.0]), FLOOR)
    assert one == pytest.approx([FLOOR, 1 - FLOOR], abs=1e-12)


def test_scores_and_entropies_are_the_derivatives_of_what_they_belong_to() -> None:
    theta, step = np.array([-4.0, -0.3, 0.0, 1.1, 5.0]), 1e-6
    for z in ([True] * 5, [False] * 5):
        included = np.array([z])
        slope = (bits(included, theta + step, FLOOR).logp - bits(included, theta - step, FLOOR).logp) / (2 * step)
        assert bits(included, theta, FLOOR).score == pytest.approx(slope, abs=1e-8)
    slope = (entropy(theta + step, FLOOR)[0] - entropy(theta - step, FLOOR)[0]) / (2 * step)
    assert entropy(theta, FLOOR)[1] == pytest.approx(slope, abs=1e-8)
    assert logit_of(probabilities(theta, FLOOR), FLOOR) == pytest.approx(theta)


@pytest.mark.parametrize("place", [0, 3, 7])
def test_each_place_in_a_group_draws_each_lesson_with_its_own_probability(place: int) -> None:
    p, n = np.array([0.05, 0.3, 0.5, 0.62, 0.95]), 6_000
    rng = np.random.default_rng(place)
    included = np.array([balanced(rng, p, 8)[place] for _ in range(n)])
    chi_square = ((included.sum(axis=0) - n * p) ** 2 / (n * p * (1 - p))).sum()
    assert chi_square < 20.5  # the 99.9 % quantile with 5 degrees of freedom
    apart = np.corrcoef(included.T)[~np.eye(5, dtype=bool)]
    assert np.abs(apart).max() < 4 / math.sqrt(n)  # lessons are drawn independently of each other


def test_siblings_share_each_lesson_out_as_evenly_as_can_be() -> None:
    p = np.array([0.05, 0.3, 0.5, 0.62, 0.95])
    rng = np.random.default_rng(1)
    counts = np.array([balanced(rng, p, 8).sum(axis=0) for _ in range(500)])
    assert (counts >= np.floor(8 * p)).all() and (counts <= np.ceil(8 * p)).all()
    assert counts.mean(axis=0) == pytest.approx(8 * p, abs=0.1)


def test_a_draw_follows_from_its_key_and_from_nothing_else() -> None:
    policy = policy_of([0.0] * 12)
    keys = [RolloutKey(i, s, r) for i in range(3) for s in range(4) for r in range(16)]
    drawn = {key: policy.drawn(SEED, 8, key).tolist() for key in keys}
    assert {key: policy.drawn(SEED, 8, key).tolist() for key in reversed(keys)} == drawn
    assert len({tuple(drawn[key]) for key in keys}) > 0.9 * len(keys)
    assert drawn[RolloutKey(1, 1, 3)] != drawn[RolloutKey(1, 1, 11)]  # a second block of siblings is a new draw
    assert policy.drawn(SEED + 1, 8, keys[0]).tolist() != drawn[keys[0]]


def test_a_pruned_lesson_is_never_drawn_and_does_not_count() -> None:
    policy = policy_of([3.0] * 4)
    policy.library = policy.library.moved(["x1"], "pruned").moved(["x2"], "quarantined")
    contexts = [policy.exploring(SEED, 8).context_for(RolloutKey(1, s, r), "") for s in range(20) for r in range(8)]
    assert {handle for one in contexts for handle in one.note["lessons"]} == {"x0", "x3"}
    least = 2 * math.log(FLOOR + (1 - 2 * FLOOR) / (1 + math.exp(-3)))
    assert max(one.note["logprob"] for one in contexts) == pytest.approx(least)


# -- learning ----------------------------------------------------------------------------------------------------------


def objective(theta: Any, before: Any, z: Any, advantages: Any, config: GRPOConfig) -> float:
    """The clipped loss over all bits less the entropy bonus, by another hand."""

    def logp(at: Any) -> Any:
        p = FLOOR + (1 - 2 * FLOOR) / (1 + np.exp(-at))
        return np.where(z, np.log(p), np.log(1 - p))

    ratio = np.exp(logp(theta) - logp(before))
    clipped = np.clip(ratio, 1 - config.epsilon, 1 + config.epsilon_high)
    a = advantages[:, None]
    p = FLOOR + (1 - 2 * FLOOR) / (1 + np.exp(-theta))
    spread = -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    return float(-np.minimum(ratio * a, clipped * a).mean() - config.entropy_coef * spread)


@pytest.mark.parametrize("coefficient", [0.0, 0.3])
def test_each_step_goes_down_the_gradient_of_the_clipped_objective(coefficient: float) -> None:
    config = config_of(num_iterations=2, entropy_coef=coefficient, learning_rate=0.1)
    start = np.array([-1.0, 0.4, 0.0, 2.0])
    policy = policy_of(start)
    groups = lived(policy, worth(0.3, -0.3, 0.0, 0.1))
    z = np.array([policy.drawn(SEED, 8, one.key) for group in groups for one in group.trajectories])
    reward = np.array([[one.reward for one in group.trajectories] for group in groups])
    spread = reward.std(axis=1, ddof=1, keepdims=True)
    advantages = ((reward - reward.mean(axis=1, keepdims=True)) / (spread + config.adv_eps) * (spread > 0)).ravel()
    result = updated(policy, groups, config)
    expected, small = start.copy(), 1e-6
    for _ in range(2):
        up, down = (
            np.array([objective(expected + way * one, start, z, advantages, config) for one in small * np.eye(4)])
            for way in (1, -1)
        )
        expected = expected - 0.1 * (up - down) / (2 * small)
    assert result.applied == 2
    assert policy.theta == pytest.approx(expected, abs=1e-8)
    assert np.abs(policy.theta - start).max() > 1e-4


def test_without_signal_the_optimiser_makes_no_step_with_any_momentum() -> None:
    config = config_of(optimizer="adam")
    adam = make_optimizer("adam", learning_rate=0.1, weight_decay=0.0)
    policy = policy_of([0.0] * 3)
    for iteration in (1, 2, 3):
        updated(policy, lived(policy, worth(0.4), iteration=iteration), config, adam)
    before = policy.theta.copy()
    result = updated(policy, lived(policy, lambda z, rng: 0.5, iteration=4), config, adam)
    assert result.applied == 0 and policy.theta.tolist() == before.tolist()


def test_a_reward_that_is_not_known_leaves_its_group_and_nothing_else_changes() -> None:
    config, effects = config_of(), []
    for lost in (False, True):
        policy = policy_of([0.0] * 3)
        groups = lived(policy, worth(0.4, -0.2))
        if lost:
            groups[2].trajectories[5].reward = math.nan
        else:
            del groups[2].trajectories[5]
        result = updated(policy, groups, config)
        assert np.isfinite(policy.theta).all() and result.applied == 1
        effects.append((policy.effects.state_dict(), groups[2].advantages))
    (first, without), (second, unknown) = effects
    assert unknown[5] == 0.0 and unknown[:5] + unknown[6:] == pytest.approx(without)
    for name, value in first.items():
        assert np.asarray(second[name]) == pytest.approx(np.asarray(value)), name


def test_a_helpful_lesson_gains_weight_and_a_harmful_lesson_loses_weight() -> None:
    config, policy = config_of(optimizer="adam", learning_rate=0.1), policy_of([0.0] * 4)
    adam = make_optimizer("adam", learning_rate=0.1, weight_decay=0.0)
    for iteration in range(1, 31):
        updated(policy, lived(policy, worth(0.25, -0.25), iteration=iteration), config, adam)
    assert policy.probabilities[0] > 0.8 and policy.probabilities[1] < 0.2
    assert policy.candidate(0.8).handles[0] == "x0" and "x1" not in policy.candidate(0.5).handles


@pytest.mark.parametrize("effect", [0.4, -0.4])
def test_by_evidence_nothing_is_ever_sure_enough_not_to_be_tried(effect: float) -> None:
    config, policy = config_of(context={"update_rule": "ridge_thompson"}), policy_of([0.0] * 3)
    for iteration in range(1, 25):
        updated(policy, lived(policy, worth(effect), iteration=iteration), config)
        assert (policy.probabilities >= FLOOR - 1e-9).all() and (policy.probabilities <= 1 - FLOOR + 1e-9).all()
    assert policy.probabilities[0] == pytest.approx(1 - FLOOR if effect > 0 else FLOOR, abs=1e-3)


def test_a_price_of_tokens_prunes_lessons_without_effect() -> None:
    shares = []
    for cost in (0.0, 4.0):
        config = config_of(context={"update_rule": "ridge_thompson", "token_cost": cost})
        policy = policy_of([0.0] * 8)
        for iteration in range(1, 21):
            updated(policy, lived(policy, worth(0.3, 0.3), iteration=iteration), config)
        assert (policy.probabilities[:2] > 0.8).all()
        shares.append(
            (policy.probabilities[2:].mean(), sum(one not in ("x0", "x1") for one in policy.candidate(0.8).handles))
        )
    assert shares[1][0] < shares[0][0] - 0.1 and shares[1][1] <= shares[0][1]


# -- what is known of each lesson --------------------------------------------------------------------------------------


def rollouts(rng: np.random.Generator, effects: Any, queries: int, p: float = 0.5) -> tuple[Any, Any, Any]:
    """(context, success, query) of groups of eight, whose queries differ more than lessons do."""
    effects = np.asarray(effects)
    z = np.concatenate([balanced(rng, np.full(len(effects), p), 8) for _ in range(queries)])
    base = np.repeat(rng.uniform(0.25, 0.75, queries), 8)
    return z, (rng.random(8 * queries) < base + (z - p) @ effects).astype(float), np.repeat(np.arange(queries), 8)


def known_of(z: Any, reward: Any, group: Any) -> Effects:
    effects = Effects()
    effects.grow(z.shape[1])
    effects.learn(z, reward, group, np.ones(z.shape[1], dtype=bool))
    return effects


def test_the_sums_give_the_ridge_regression_of_the_raw_data() -> None:
    rng = np.random.default_rng(3)
    parts = [rollouts(rng, (0.2, -0.1, 0.0, 0.05), queries) for queries in (5, 9, 3)]
    effects = Effects()
    effects.grow(4)
    for part in parts:
        effects.learn(*part, np.ones(4, dtype=bool))
    z, reward = (np.concatenate([part[at] for part in parts]).astype(float) for at in (0, 1))
    group = np.repeat(np.arange(17), 8)
    centred = z - np.array([z[group == g].mean(axis=0) for g in group])
    y = reward - np.array([reward[group == g].mean() for g in group])
    inverse = np.linalg.inv(centred.T @ centred + RIDGE * np.eye(4))
    beta = inverse @ centred.T @ y
    variance = ((y - centred @ beta) ** 2).sum() / (len(y) - 17 - 4)
    estimate = effects.estimate()
    assert estimate.beta == pytest.approx(beta, abs=1e-12)
    assert estimate.error == pytest.approx(np.sqrt(variance * np.diag(inverse)), abs=1e-12)
    assert estimate.information == pytest.approx((centred**2).sum(axis=0))


@pytest.mark.slow(reason="many simulated runs")
def test_effects_are_right_on_average_and_their_intervals_hold_what_they_promise() -> None:
    truth, rng = np.array([0.15, 0.05, 0.0, 0.0, -0.05, -0.15]), np.random.default_rng(11)
    estimates = [known_of(*rollouts(rng, truth, 120)).estimate() for _ in range(400)]
    beta, error = np.array([one.beta for one in estimates]), np.array([one.error for one in estimates])
    shrunk = truth * (240 / (240 + RIDGE))  # 960 rollouts at p = .5 are 240 units of information
    assert np.abs(beta.mean(axis=0) - shrunk).max() < 4 * beta.std() / math.sqrt(400)
    assert np.abs(beta.mean(axis=0) - truth).max() < 0.01
    covered = np.abs(beta - truth) <= 1.96 * error
    assert 0.92 <= covered.mean() <= 0.98
    assert ((covered.mean(axis=0) > 0.9) & (covered.mean(axis=0) < 0.99)).all()


def test_a_new_text_forgets_what_was_known_of_that_lesson_only() -> None:
    effects = known_of(*rollouts(np.random.default_rng(2), (0.2, -0.1, 0.1, 0.0), 20))
    before = effects.state_dict()
    effects.forget(2)
    others = [0, 1, 3]
    assert effects.gram[np.ix_(others, others)].tolist() == before["gram"][np.ix_(others, others)].tolist()
    assert effects.moment[others].tolist() == before["moment"][others].tolist()
    assert effects.rollouts[others].tolist() == before["rollouts"][others].tolist()
    estimate = effects.estimate()
    assert (estimate.beta[2], estimate.information[2], effects.rollouts[2]) == (0.0, 0.0, 0.0)
    assert estimate.above()[2] == 0.5


def test_a_library_that_grows_keeps_what_was_learned() -> None:
    policy = policy_of([1.0, -2.0])
    policy.effects = known_of(*rollouts(np.random.default_rng(2), (0.2, -0.1), 20))
    before = policy.effects.state_dict()
    reworded = replace(policy.library.lessons[1], text="When another case comes up, do so.", version=2)
    policy.take(Library((policy.library.lessons[0], reworded, Lesson("x9", "When new, do new."))))
    unknown = float(logit_of(np.array(PRIOR), policy.floor))
    assert policy.theta.tolist() == [1.0, (-2.0 + unknown) / 2, unknown]
    assert policy.probabilities[2] == pytest.approx(0.3)
    assert policy.effects.gram[0, 0] == before["gram"][0, 0] and policy.effects.moment[0] == before["moment"][0]
    assert not policy.effects.gram[1].any() and not policy.effects.gram[2].any()


def test_a_harmful_lesson_is_pruned_by_evidence_and_can_come_back() -> None:
    policy = policy_of([0.0, 0.5, -0.5])
    policy.effects = known_of(*rollouts(np.random.default_rng(4), (0.2, -0.3, 0.0), 60))
    before, theta = policy.estimate(), policy.theta.copy()
    assert policy.prune(2.5, 15) == ["x1"]
    assert not policy.live[1] and policy.prune(2.5, 15) == []
    assert "x1" not in policy.exploring(SEED, 8).context_for(RolloutKey(1, 1, 1), "").note["lessons"]
    policy.library = policy.library.moved(["x1"], "proposed")
    assert policy.live.all() and policy.theta.tolist() == theta.tolist()
    assert policy.estimate().beta.tolist() == before.beta.tolist()


def test_too_little_information_prunes_nothing() -> None:
    policy = policy_of([0.0])
    policy.effects = known_of(*rollouts(np.random.default_rng(4), (-0.5,), 6))
    assert policy.estimate().information[0] < 15 and policy.prune(1.0, 15) == []
    assert policy.prune(1.0, 1) == ["x0"]


@pytest.mark.slow(reason="many simulated runs")
def test_lessons_without_effect_are_hardly_ever_pruned_by_a_whole_run_of_validations() -> None:
    rng, pruned, lessons = np.random.default_rng(8), 0, 0
    for _ in range(60):
        policy = policy_of([0.0] * 10)
        for _ in range(30):
            policy.effects.learn(*rollouts(rng, [0.0] * 10, 10), np.ones(10, dtype=bool))
            pruned += len(policy.prune(2.5, 15))
        lessons += 10
    assert pruned / lessons <= 0.05


# -- effects by the words of queries -----------------------------------------------------------------------------------

ASKED = [f"{verb} {place} {n}" for n in range(4) for verb in ("sum", "sort") for place in ("here", "there", "away")]


def by_word(worth: Sequence[float], groups: int = 360, **made: Any) -> ContextPolicy:
    """A policy that lived through groups of eight: lesson k adds ``worth[k]`` where its word is asked for, and the
    last one adds it everywhere."""
    words = ("sum", "sort", "here", "there", "")
    lessons = [Lesson(f"x{n}", f"When you {words[n]}, do {'abcde'[n]}.") for n in range(len(worth))]
    policy = ContextPolicy.fresh(Library(tuple(lessons)), {}, words=QueryWords.fitted(ASKED), **made)
    lives(policy, worth, groups, words)
    return policy


def lives(policy: ContextPolicy, worth: Sequence[float], groups: int, words: Sequence[str]) -> None:
    rng = np.random.default_rng(groups)
    z = rng.random((8 * groups, len(worth))) < 0.5
    queries = [ASKED[at % len(ASKED)] for at in range(groups)]
    touched = np.array([[not word or word in query.split() for word in words[: len(worth)]] for query in queries])
    group = np.repeat(np.arange(groups), 8)
    reward = (rng.random(len(z)) < 0.4 + (z * touched[group]) @ np.array(worth)).astype(np.float64)
    asked = [TrajectoryGroup(Scenario(at, query), []) for at, query in enumerate(queries)]
    policy.learn(z, reward, group, asked)


def test_a_lesson_for_some_queries_is_measured_on_these_and_given_to_all() -> None:
    policy = by_word([0.3, 0.0, -0.25, 0.0, 0.15])
    known = policy.estimate()
    assert known.beta == pytest.approx([0.15, 0, -0.25 / 3, 0, 0.15], abs=0.04)
    assert known.beta[2] + 2.5 * known.error[2] < 0 < known.beta[0] - 2.5 * known.error[0]
    one_number = policy.effects.estimate()
    assert known.error[2] < 0.7 * one_number.error[2] and (known.information == one_number.information).all()
    choice = policy.candidate(0.5, queries=ASKED)
    assert choice.rule is None and {"x0", "x4"} <= set(choice.handles) and "x2" not in choice.handles
    assert policy.prune(2.5, 15) == ["x2"]


def test_a_policy_that_distinguishes_queries_gives_each_what_helps_there() -> None:
    policy = by_word([0.3, 0.3, -0.25, -0.25, 0.15], distinguishes=True)
    choice = policy.candidate(0.9, queries=ASKED)
    assert choice.rule is not None
    assert choice.handles_for("sum away 9") == ("x0", "x4") and choice.handles_for("sort away 9") == ("x1", "x4")
    assert policy.prune(2.5, 15) == []  # where "here" does not occur the lesson does no harm
    everywhere = by_word([0.3, 0.3, 0.0, 0.0, -0.25], distinguishes=True)
    assert everywhere.prune(2.5, 15) == ["x4"]


def test_sums_of_an_earlier_run_count_where_its_queries_are_not_known() -> None:
    first = by_word([0.3, 0.0, -0.25, 0.0, 0.15])
    second = ContextPolicy.fresh(first.library, {}, words=first.words, effects=first.effects.weighed(1.0))
    known = second.estimate()
    assert known.beta[[0, 4]] == pytest.approx([0.15, 0.15], abs=0.08) and known.beta[2] < 0
    alone = by_word([0.3, 0.0, -0.25, 0.0, 0.15], groups=40)
    lives(second, [0.3, 0.0, -0.25, 0.0, 0.15], 40, ("sum", "sort", "here", "there", ""))
    assert (second.estimate().error[[0, 2, 4]] < alone.estimate().error[[0, 2, 4]]).all()


def test_a_new_lesson_or_text_begins_without_evidence_and_a_stored_policy_knows_as_much() -> None:
    policy = by_word([0.3, 0.0, -0.25, 0.0, 0.15], distinguishes=True)
    before = policy.estimate()
    policy.take(policy.library.having(Lesson("new", "When you sum, do z.")))
    assert policy.estimate().beta[:5].tolist() == before.beta.tolist() and policy.estimate().beta[5] == 0
    again = ContextPolicy.from_state_dict(unpack(pack(policy.state_dict())))
    assert again.distinguishes and again.estimate().beta == pytest.approx(policy.estimate().beta, abs=1e-12)
    reworded = replace(policy.library.lessons[0], text="When you sort, do y.", version=2)
    policy.take(Library((reworded, *policy.library.lessons[1:])))
    assert abs(policy.estimate().beta[0]) < 0.01 and policy.estimate().information[0] == 0


# -- whole runs --------------------------------------------------------------------------------------------------------


def taught() -> Library:
    """Lessons that help in this world, and as many that harm."""
    rng = random.Random(1)
    some = (*WORLD.helpful[:3], *WORLD.harmful[:3])
    texts = [WORLD.lesson(one, WORLD.kinds[0], rng) for one in some]
    return Library(tuple(Lesson(f"x{n}", text) for n, text in enumerate(texts)))


def going_on(setup: TrainerSetup, state: TrainerState) -> Iterator[IterationReport]:
    return steps(setup, state)


def setup_at(server: ModelServer, *, seed: int = 4, own: Library | None = None, **config: Any) -> Any:
    """(setup, meter) of a short run."""
    setup, _, player, _ = setup_of(server.base_url, ROWS, SHORT | config, seed=seed)
    return (setup if own is None else replace(setup, library=own)), player.meter


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD, habits=Habits()) as running:
        yield running


def settled(state: TrainerState) -> dict[str, Any]:
    """All that a state holds, but for how long the tools took."""
    values = unpack(state.to_bytes())
    policy = under("policy", values)
    for name in ("library", "supported", "kept_library"):
        policy[name] = [{**one, "tool_stats": ()} for one in policy[name]]
    others = {name: value for name, value in values.items() if not name.startswith("policy")}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in (*others.items(), *(("policy." + name, value) for name, value in policy.items()))
    }


def test_a_rollouts_first_step_holds_its_context_and_the_contexts_probability(server: ModelServer) -> None:
    setup, _ = setup_at(server, own=taught(), context={"propose": False, "prune_z": 6})
    state, seen = setup.fresh_state(), 0
    run = going_on(setup, state)
    for _ in range(3):
        policy: Any = state.policy
        theta = policy.theta.copy()
        for group in next(run).groups:
            for one in group.trajectories:
                if (noted := one.steps[0].state.get("told")) is not None:
                    z = np.array([lesson.handle in noted["lessons"] for lesson in policy.library])
                    assert z.tolist() == policy_at(policy, theta).drawn(setup.seed, 4, one.key).tolist()
                    assert noted["logprob"] == pytest.approx(bits(z[None], theta, FLOOR).logp.sum(), abs=1e-12)
                    seen += 1
    run.close()
    assert seen > 50


def policy_at(policy: ContextPolicy, theta: Any) -> ContextPolicy:
    """The policy with other logits."""
    other = ContextPolicy.from_state_dict(policy.state_dict())
    other.parameters["theta"] = theta
    return other


WHOLE = pytest.mark.thorough(reason="two whole runs for each")


@pytest.mark.slow(reason="two whole runs for each")
@pytest.mark.parametrize(
    ("algorithm", "relevance"),
    [
        ("grpo", "none"),
        pytest.param("grpo", "queries", marks=WHOLE),
        pytest.param("tfgrpo", "none", marks=WHOLE),
        ("gepa", "none"),
    ],
)
def test_a_run_that_is_taken_up_in_its_middle_ends_as_one_that_was_left_alone(algorithm: str, relevance: str) -> None:
    """Each on a server of its own: what the reflector says depends on how often it was asked the same."""
    ends = []
    for cut in (None, 3):
        with simulated_server(WORLD, habits=Habits()) as server:
            setup, _ = setup_at(server, algorithm=algorithm, context={"relevance": relevance})
            state = setup.fresh_state()
            run = going_on(setup, state)
            for _ in range(cut or 0):
                next(run)
            run.close()
            data = state.to_bytes()
            assert setup.state_of(data).to_bytes() == data
            setup, _ = setup_at(server, algorithm=algorithm, context={"relevance": relevance})
            state = setup.state_of(data)
            list(going_on(setup, state))
            ends.append(settled(state))
    assert ends[0]["iteration"] == 6 and (algorithm == "gepa" or len(ends[0]["policy.library"]) > 3)
    assert ends[0] == ends[1]


@pytest.mark.parametrize("algorithm", ["grpo", "tfgrpo"])
def test_the_shipped_context_changes_at_gates_only(server: ModelServer, algorithm: str) -> None:
    setup, _ = setup_at(server, algorithm=algorithm, context={"gate_margin": 0.5, "gate_alpha": 0.5})
    state = setup.fresh_state()
    policy: Any = state.policy
    before, gates = policy.shipped, []
    for report in going_on(setup, state):
        if report.gate is None:
            assert policy.shipped == before
        else:
            gates.append(report.iteration)
            assert report.gate.final is (report.iteration == 6) and not (report.gate.accepted and not report.gate.final)
            assert policy.shipped == (report.gate.candidate if report.gate.accepted else before)
        before = policy.shipped
    assert gates == ([6] if algorithm == "grpo" else [2, 3, 4, 6])  # a validation is a step of the search too


def test_a_search_goes_step_by_step_and_its_error_is_spent_once(server: ModelServer) -> None:
    setup, _ = setup_at(server, algorithm="tfgrpo", context={"search_every": 1, "epochs": 1})
    state = setup.fresh_state()
    policy: Any = state.policy
    kept = policy.kept
    for report in going_on(setup, state):
        step = report.gate
        assert step is not None and step.final is (report.iteration == 6)
        assert step.final or policy.kept == (step.candidate if step.kept else kept)
        assert step.final or {one.handle for one in policy.library.live} == set(policy.kept)
        kept = policy.kept


def test_each_validation_is_played_again_and_no_call_has_the_name_of_another(server: ModelServer) -> None:
    setup, meter = setup_at(server, algorithm="tfgrpo")
    state = setup.fresh_state()
    list(going_on(setup, state))
    calls_by_validation = Counter(key.split("/")[1] for key in meter.calls if key.split("/")[1].startswith("selection"))
    assert {"selection.0", "selection.2", "selection.4", "selection.6"} <= set(calls_by_validation)
    rollouts = len(setup.selection) * setup.validation_samples
    assert all(count % rollouts == 0 and count <= 5 * rollouts for count in calls_by_validation.values())
    assert len(set(meter.calls)) == len(meter.calls)


def test_a_validation_of_the_starting_context_is_used_again_and_paid_for_once(server: ModelServer) -> None:
    """If nothing was found, the candidate is the start: there is nothing to compare."""
    setup, meter = setup_at(server, context={"propose": False})
    state = setup.fresh_state()
    reports = list(going_on(setup, state))
    calls = Counter(key for key in meter.calls if key.split("/")[1].startswith("selection"))
    assert {key.split("/")[1] for key in calls} == {"selection.0"}
    last = reports[-1].gate
    assert last is not None and not last.accepted and last.why == gate.NOTHING_NEW and last.looks == 0
    assert last.gain == 0.0 and last.p_value == 1.0


def test_a_checkpoint_without_kept_validations_plays_its_start_again_and_once(server: ModelServer) -> None:
    """It holds the success of the look at the start, and neither its steps nor its rewards."""
    setup, _ = setup_at(server, context={"propose": False}, eval_interval=2)
    state = setup.fresh_state()
    run = going_on(setup, state)
    next(run)
    run.close()
    stored = unpack(state.to_bytes())
    for name in ("baseline_steps", "baseline_reward"):
        del stored[name]
    setup, meter = setup_at(server, context={"propose": False}, eval_interval=2)
    resumed = setup.state_of(pack(stored))
    assert resumed.baseline_steps is None and resumed.baseline_success is not None
    validations = [report.selection for report in going_on(setup, resumed) if report.selection is not None]
    rate = float(resumed.baseline_success.mean())
    assert [(look.success_rate, look.improvement) for look in validations] == [(rate, 0.0)] * 3
    again = [key for key in meter.calls if key.split("/")[1] == "selection.0"]
    assert len(again) == len(set(again)) == len(setup.selection) * setup.validation_samples


def test_queries_come_in_an_order_that_differs_by_seed_and_by_round() -> None:
    orders = []
    for seed in (1, 2):
        first, drawn = draw_scenarios(30, 30, 0, seed)
        second, _ = draw_scenarios(30, 30, drawn, seed)
        assert sorted(first) == sorted(second) == list(range(30))
        assert draw_scenarios(30, 30, 0, seed)[0] == first
        orders += [first, second]
    assert len(set(map(tuple, [*orders, list(range(30))]))) == 5


# -- the gate ----------------------------------------------------------------------------------------------------------


def at_gate(algorithm: str = "tfgrpo") -> tuple[TrainerSetup, TrainerState, Any]:
    """A run whose library began with two lessons that are shipped; since then one was added and one reworded."""
    values = SHORT | {"algorithm": algorithm}
    setup, *_ = setup_of("http://localhost:1", ROWS, values, seed=4)
    active = library(2).moved(["x0", "x1"], "active")
    state = replace(setup, library=active).fresh_state()
    policy: Any = state.policy
    reworded = replace(policy.library.lessons[1], text="When told otherwise, do otherwise.", version=2)
    policy.take(Library((policy.library.lessons[0], reworded, Lesson("x9", "When new, do new."))))
    state.iteration = 2
    state.baseline_success = state.search_start = state.current_success = successes(0.5)
    return setup, state, policy


def successes(rate: float, n: int = 24, samples: int = 16) -> Any:
    rng = np.random.default_rng(round(rate * 100))
    return (rng.random((n, samples)) < rate).astype(float)


def played(rate: float) -> Played:
    success = successes(rate)
    return Played(success, np.ones_like(success), success, [])


def decided(setup: TrainerSetup, state: TrainerState, rate: float) -> Any:
    """The gate at the end of a run."""
    policy: Any = state.policy
    compared = gate.compare(setup.config, state, played(rate), more=never, more_of_start=never)
    return gate.decide(setup, state, policy, policy.candidate(0.8), compared)


def epoch_ended(setup: TrainerSetup, state: TrainerState, rate: float) -> Any:
    """The end of an epoch."""
    policy: Any = state.policy
    return gate.keep(setup, state, policy, policy.candidate(0.8), played(rate))


def never(first: int, samples: int) -> Played:
    raise AssertionError("there are samples enough")


def texts_served(policy: Any) -> str:
    return policy.context_for(RolloutKey(1, 0, 0), "").text


def test_a_library_that_measures_worse_goes_back_to_the_kept_one() -> None:
    setup, state, policy = at_gate()
    texts = {lesson.handle: lesson.text for lesson in policy.supported}
    report = epoch_ended(setup, state, 0.3)
    assert not report.kept and not report.final and "worse" in report.why and report.rolled_back == ["x9"]
    assert {one.handle: (one.text, one.status) for one in policy.library.live} == {
        handle: (text, "active") for handle, text in texts.items()
    }
    assert policy.library.get("x9").status == "pruned" and set(policy.shipped) == {"x0", "x1"}
    assert not policy.effects.gram[1].any() and state.current_success.mean() == state.baseline_success.mean()


@pytest.mark.parametrize("rate", [0.51, 0.8])
def test_an_epoch_keeps_its_library_for_the_search_and_ships_nothing(rate: float) -> None:
    setup, state, policy = at_gate()
    before = texts_served(policy)
    report = epoch_ended(setup, state, rate)
    assert report.kept and not report.accepted and not report.final
    assert policy.kept == ("x0", "x1", "x9") and policy.kept_library == policy.library
    assert policy.shipped == ("x0", "x1") and texts_served(policy) == before
    # What comes next is compared with this one, and no longer with what the run began with.
    policy.take(policy.library.having(Lesson("x10", "When late, do less.")))
    assert epoch_ended(setup, state, rate - 0.2).rolled_back == ["x10"]
    assert policy.library.get("x1").version == 2


def test_a_run_that_proves_nothing_ends_with_the_context_of_its_start() -> None:
    setup, state, policy = at_gate()
    began = {one.handle: one for one in policy.supported}
    epoch_ended(setup, state, 0.51)
    report = decided(setup, state, 0.5)
    assert not report.accepted and report.rolled_back == ["x9"] and policy.shipped == policy.start == ("x0", "x1")
    assert report.needs is None  # it is no better: however many queries decide, there is nothing to find
    assert {one.handle: one for one in policy.library.live if one.handle != "x9"} == began
    assert policy.library.get("x9").status == "proposed"  # a later run may try it again
    # What the search found stays to be taken up again.
    assert policy.kept == ("x0", "x1", "x9") and policy.kept_library.get("x1").version == 2


@pytest.mark.parametrize("algorithm", ["grpo", "tfgrpo"])
def test_the_context_outside_of_a_run_keeps_its_texts_until_a_gate_ships_others(algorithm: str) -> None:
    setup, state, policy = at_gate(algorithm)
    policy.selects = False
    policy.library = policy.library.moved(["x0"], "pruned")
    began = [one.text for one in library(2)]
    result = texts_served(policy)
    assert [one.text for one in policy.shipped_lessons] == began and all(text in result for text in began)
    assert (
        "otherwise" not in result
        and "otherwise" in policy.as_candidate(policy.candidate(0.8)).context_for(RolloutKey(1, 0, 0), "").text
    )
    decided(setup, state, 0.5)
    assert texts_served(policy) == result
    setup, state, policy = at_gate(algorithm)
    policy.selects = False
    assert decided(setup, state, 0.8).accepted
    assert "otherwise" in texts_served(policy) and "When new" in texts_served(policy)


def test_the_rows_of_lessons_that_are_shipped_change_when_a_gate_ships_and_not_before() -> None:
    """Other runs and people go by the rows: neither a new text, nor a lesson that was taken out, is theirs yet."""
    setup, state, policy = at_gate()
    policy.library = policy.library.moved(["x0"], "pruned")
    earlier = {
        one.handle: {"lesson": one.as_dict(), "weight": 0.7, "effect": 0.1, "effect_error": 0.02, "rollouts": 40}
        for one in policy.supported
    }

    def rows() -> dict[str, tuple[str, str, int]]:
        return {one.handle: (one.summary, one.status, one.version) for one in states_of(policy, str, earlier)}

    began = {one.handle: (one.text, "active", 1) for one in library(2)}
    new = ("When new, do new.", "proposed", 1)
    assert rows() == began | {"x9": new}
    reworded = next(one for one in states_of(policy, str, earlier) if one.handle == "x1")
    assert (reworded.effect, reworded.weight, reworded.rollouts) == (0.1, 0.7, 40)  # of the text that the row has
    policy.library = policy.library.moved(["x0"], "proposed")
    epoch_ended(setup, state, 0.6)
    assert rows() == began | {"x9": new}
    assert decided(setup, state, 0.8).accepted
    text = "When told otherwise, do otherwise."
    assert rows() == {"x0": began["x0"], "x1": (text, "active", 2), "x9": (new[0], "active", 1)}


def test_queries_that_chose_a_context_do_not_prove_that_context(server: ModelServer) -> None:
    """The search of tfgrpo goes by queries of training; no selection query has a part in it before the gate."""
    setup, meter = setup_at(server, algorithm="tfgrpo", eval_interval=6, context={"gate_margin": 0.5})
    assert not {one.query for one in setup.search_queries} & {one.query for one in setup.selection}
    assert len({one.query for one in setup.search_queries}) == len(setup.search_queries) >= len(setup.selection)
    state = setup.fresh_state()
    last = list(going_on(setup, state))[-1].gate
    assert last is not None and last.final and last.looks > 0
    played = Counter(tuple(key.split("/")[1:3]) for key in meter.calls if key.split("/")[1].startswith("selection"))
    samples, n, m = setup.validation_samples, len(setup.selection), len(setup.search_queries)
    gate_s, search_s = (lambda at: played[(f"selection.{at}", "0")]), (lambda at: played[(f"selection.{at}", "1")])
    assert [search_s(at) for at in (0, 2, 4, 6)] == [samples * m] * 4
    assert gate_s(2) == gate_s(4) == 0 and gate_s(0) == gate_s(6) == last.looks * samples * n


def test_a_checkpoint_of_an_earlier_release_is_read_and_what_its_epochs_shipped_is_the_searchs() -> None:
    setup, state, policy = at_gate()
    setup = replace(setup, library=policy.supported)
    state.stop_reason = ""
    policy.ship(policy.candidate(0.8))  # an epoch that was not shown to be worse
    stored = unpack(state.to_bytes())
    old = pack({name: value for name, value in stored.items() if "kept" not in name})
    again: Any = setup.state_of(old).policy
    assert again.kept == ("x0", "x1", "x9") and again.shipped == ("x0", "x1")
    assert [one.text for one in again.shipped_lessons] == [one.text for one in library(2)]
    assert again.library.get("x9").status == again.kept_library.get("x9").status == "proposed"
    assert again.library.get("x1").version == 2
    # A run that has ended is what it was.
    state.stop_reason = "all_iterations"
    ended = pack({name: value for name, value in unpack(state.to_bytes()).items() if "kept" not in name})
    assert policy_of_bytes(ended).shipped == ("x0", "x1", "x9")


def test_an_erasure_reaches_the_texts_that_are_shipped_and_those_that_the_search_kept() -> None:
    setup, state, policy = at_gate()
    epoch_ended(setup, state, 0.6)
    cleaned = without_lessons(policy.state_dict(), lambda text: "case 1" in text or "otherwise" in text)
    assert cleaned is not None and "case 1" not in str(cleaned) and "otherwise" not in str(cleaned)
    again = ContextPolicy.from_state_dict(cleaned)
    assert again.shipped == again.start == ("x0",) and again.kept == ("x0", "x9")
    old = {name: value for name, value in policy.state_dict().items() if "kept" not in name}
    assert without_lessons(old, lambda text: "otherwise" in text) is not None


@pytest.mark.parametrize(("rate", "ships"), [(0.3, False), (0.52, False), (0.8, True)])
def test_the_gradient_ships_once_and_only_what_is_better_than_the_beginning(rate: float, ships: bool) -> None:
    setup, state, policy = at_gate("grpo")
    policy.effects = known_of(*rollouts(np.random.default_rng(4), (0.3, -0.3, 0.3), 60))
    report = decided(setup, state, rate)
    assert report.accepted is ships and report.candidate == ("x0", "x9")
    assert policy.shipped == (report.candidate if ships else ("x0", "x1"))
    assert len(policy.library.live) == 3  # what was learned stays to be learned of


def test_the_whole_error_that_is_allowed_is_for_the_one_gate_of_a_run() -> None:
    designs = [gate.design(at_gate(algorithm)[0].config) for algorithm in ("grpo", "tfgrpo")]
    assert [one.alpha for one in designs] == [0.025, 0.025]


def test_a_state_of_an_earlier_release_goes_on_with_the_sums_that_it_has(server: ModelServer) -> None:
    setup, _ = setup_at(server, own=taught(), context={"propose": False, "relevance": "queries"})
    state = setup.fresh_state()
    next(going_on(setup, state))
    stored = {name: value for name, value in state.policy.state_dict().items() if not name.startswith("words/")}
    stored.pop("distinguishes")
    stored["evidence/vectors"] = np.ones((len(state.policy.evidence.reward), 16))
    earlier = ContextPolicy.from_state_dict(stored)
    assert not earlier.words.size and not len(earlier.evidence.reward)
    policy: Any = setup.learner.restored(setup, stored, ended=False)
    assert policy.distinguishes and policy.words.size == setup.query_words.size > 0
    assert (policy.effects.gram == state.policy.effects.gram).all()
    assert policy.estimate().information.sum() > 0 and np.isfinite(policy.estimate().beta).all()
