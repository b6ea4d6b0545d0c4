"""Each function of the algorithm on fixed inputs gives the numbers of ``unchanged.json``: a run is a function of its
seed, so that a number that changes is a decision. ``python -m tests.training.algorithm.test_unchanged`` writes the
file; its difference belongs in the commit that changes a formula.

Formulas are checked against their sources by the other files of this folder.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.algorithm import arrays, inference, kl, losses, preference, relevance, sequential, value
from training.algorithm.advantages import apply_filter, group_advantages
from training.algorithm.convergence import CollapseGuard, EarlyStopper, Vitals
from training.algorithm.credit import CreditRule, FlatSteps, step_advantages, terminal_discount
from training.algorithm.losses import LossRule, policy_loss
from training.algorithm.optimizers import SGD, clip_by_global_norm, global_norm, make_optimizer
from training.algorithm.sequential import Sequential

FILE = Path(__file__).with_name("unchanged.json")
NAN, INF = math.nan, math.inf

# Four groups: with a spread, of one member, of equal members, and with a member that could not be scored.
REWARDS = np.array([0.2, 1.0, 0.7, 0.5, 0.4, 0.4, NAN, 0.1, 0.9, 0.0])
GROUPS = np.array([7, 7, 7, 3, 5, 5, 9, 9, 9, 7])
STATE_VALUES = np.linspace(0.1, 0.6, 10)

# Six trajectories of 0 to 4 steps.
LENGTH = np.array([3, 1, 0, 4, 2, 2])
TRAJECTORY = np.repeat(np.arange(6), LENGTH)
POSITION = np.concatenate([np.arange(n) for n in LENGTH])
LOGP = np.array([-0.3, -1.2, -0.7, -2.0, -0.1, -0.9, -3.0, -0.4, -0.8, -1.1, -0.2, -0.6])
LOGP_OLD = LOGP + np.array([0.0, 0.31, -0.31, 0.2, -0.2, 0.05, -1.2, 1.2, 0.4, 0.0, -0.26, -0.23])
LOGP_REF = LOGP - np.linspace(-0.6, 0.7, 12)
ADVANTAGES = np.array([1.0, -0.5, 0.8, 0.0, 1.5, -1.5, 0.3, -0.7, 0.0, 0.6, 1.1, -0.9])


def steps(*, with_values: bool = True) -> FlatSteps:
    return FlatSteps(
        trajectory=TRAJECTORY,
        position=POSITION,
        step_reward=np.linspace(-0.2, 0.9, 12),
        anchor=np.array([0, 1, 2, 0, 4, 1, 1, 5, 4, 6, 4, 6]),
        group=np.array([0, 0, 0, 1, 1, 1]),
        reward=np.array([0.5, -0.1, 0.3, 0.9, 0.2, NAN]),
        length=LENGTH,
        state_value=np.linspace(0.5, 0.1, 12) if with_values else None,
    )


def of_advantages() -> Iterator[tuple[str, Any]]:
    for scale, baseline in itertools.product(("group", "batch", "none"), ("group_mean", "loo", "value")):
        more: dict[str, Any] = {"scale_rewards": scale, "baseline": baseline, "state_values": STATE_VALUES}
        yield f"{scale} {baseline}", group_advantages(REWARDS, GROUPS, **more)
        yield f"{scale} {baseline} population", group_advantages(REWARDS, GROUPS, ddof=0, eps=1e-4, **more)
        yield f"{scale} {baseline} without a floor", group_advantages(REWARDS, GROUPS, eps=0.0, **more)
    yield "defaults", group_advantages(REWARDS, GROUPS)
    yield "a single entry", group_advantages([3.0], [0], scale_rewards="batch")
    yield (
        "a single entry, all that is known of the batch",
        group_advantages([3.0, NAN], [0, 1], scale_rewards="batch", eps=0.0),
    )
    yield "two of a batch", group_advantages([3.0, 1.0], [0, 0], scale_rewards="batch")
    yield "no entries", group_advantages([], [])
    yield "a spread of rounding", group_advantages([0.5, 0.5 + 1.3e-12, 0.5 + 3e-12, 0.5], [0, 0, 1, 1], eps=0.0)
    yield (
        "a value to rounding",
        group_advantages([0.5, 0.5], [0, 1], baseline="value", state_values=[0.5 + 9.5e-13, 0.5]),
    )
    for name in ("none", "positive"):
        yield f"filter {name}", apply_filter(ADVANTAGES, name)  # type: ignore[arg-type]


def of_losses() -> Iterator[tuple[str, Any]]:
    rules: dict[str, dict[str, Any]] = {"defaults": {}, "dual clip": {"delta": 1.25}, "low dual clip": {"delta": 0.9}}
    for name in ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "reinforce"):
        rules[name] = {"loss_type": name, "epsilon_high": 1.2 if name == "cispo" else 0.25}
        rules[f"{name} by sequence"] = rules[name] | {"importance_sampling_level": "sequence"}
    for estimator, corrected in itertools.product(("k1", "k2", "k3"), (True, False)):
        rules[f"{estimator} {corrected}"] = {
            "beta": 0.1,
            "kl_estimator": estimator,
            "use_bias_correction_kl": corrected,
        }
    rules["penalty"] = {"beta": 0.05}
    for name, rule in rules.items():
        made = LossRule(**rule)
        yield name, policy_loss(LOGP, LOGP_OLD, ADVANTAGES, TRAJECTORY, 6, made, logp_ref=LOGP_REF)
        nothing = np.zeros(0)
        yield (
            f"{name} without steps",
            policy_loss(nothing, nothing, nothing, np.zeros(0, int), 0, made, logp_ref=nothing),
        )
    yield "without a reference", policy_loss(LOGP, LOGP_OLD, ADVANTAGES, TRAJECTORY, 6, LossRule())
    edges = np.log([0.8, 1.28, 0.8 - 1e-9, 1.28 + 1e-9])
    yield (
        "at the bounds",
        policy_loss(edges, np.zeros(4), np.array([-1.0, 1.0, -1.0, 1.0]), np.arange(4), 4, LossRule()),
    )
    for signs in ((0.0, 0.0), (1.0, -1.0), (-1.0, 1.0)):
        outside = policy_loss(np.log([1.5, 0.5]), np.zeros(2), np.array(signs), np.arange(2), 2, LossRule())
        yield f"outside the bounds {signs}", outside
    capped = LossRule(loss_type="cispo", epsilon_high=1.5)
    yield "capped", policy_loss(np.log([1.5, 2.0]), np.zeros(2), np.array([1.0, 0.0]), np.arange(2), 2, capped)
    for name in ("k1", "k2", "k3"):
        yield f"estimator {name}", kl.kl_term(np.array([0.5, -40.0, 40.0]), np.array([0.1, 0.0, 0.0]), name)  # type: ignore[arg-type]
    yield (
        "weights",
        [losses.step_weights(arrays.Segments(TRAJECTORY, 6), one, 5) for one in ("grpo", "dr_grpo", "dapo")],
    )  # type: ignore[arg-type]
    yield "a bounded ratio", arrays.bounded_exp(np.array([-50.0, 0.1, 50.0]))


def of_credit() -> Iterator[tuple[str, Any]]:
    flat = steps()
    whole = group_advantages(flat.reward, flat.group)
    rules = [{}, {"gamma": 0.8, "gae_lambda": 0.7, "step_weight": 0.5}, {"baseline": "loo", "scale_rewards": "none"}]
    rules += [{"scale_rewards": "batch", "ddof": 0, "eps": 1e-4}]
    for mode in ("reward_to_go", "discounted", "pooled", "step_index", "gigpo", "uniform", "value"):
        for number, rule in enumerate(rules):
            yield f"{mode} {number}", step_advantages(flat, whole, CreditRule(mode=mode, **rule))  # type: ignore[arg-type]
    yield "defaults", step_advantages(flat, whole, CreditRule())
    yield "rules", [CreditRule(), LossRule()]
    yield "discount", terminal_discount(flat, 0.9)


def of_value() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(3)
    features, columns, targets = rng.standard_normal((9, 4)), np.array([0, 2, 3, 6]), rng.standard_normal(9)
    targets[2] = NAN
    for more in ({}, {"iterations": 2}, {"tol": 0.3}):
        ridge = value.RidgeValue()
        for l2 in (1.0, 0.3):
            ridge.l2 = l2
            ridge.fit(features, columns, targets, **more)  # type: ignore[arg-type]
        yield f"ridge {more}", [ridge.weights, ridge.predict(features[:3, :2], np.array([1, 8])), ridge.weights]
    ridge = value.RidgeValue()
    ridge.fit(features, columns, np.full(9, NAN))
    yield "ridge without targets", ridge.weights
    rewards, values = np.linspace(-1, 1, 12), np.linspace(1, 0, 12)
    yield "targets", [value.td_targets(rewards, values, TRAJECTORY, 0.9), value.next_values(values, TRAJECTORY)]
    yield "gae", value.generalized_advantages(rewards, values, TRAJECTORY, 0.9, 0.8)
    yield "no steps", value.generalized_advantages(np.zeros(0), np.zeros(0), np.zeros(0, int), 0.9, 0.8)
    yield (
        "explained",
        [
            value.explained_variance(np.array([1.0, 2.0, NAN, 4.5, 2.0]), np.array([1.5, 2.0, 3.0, 4.0, NAN])),
            value.explained_variance(np.array([1.0, 2.0]), np.array([0.5, 0.5])),
            value.explained_variance(np.array([NAN]), np.array([1.0])),
        ],
    )
    labels = np.array([4, 4, 2, 9, 2])
    yield "segments", [arrays.segments_of(labels), arrays.centred(rng.standard_normal((5, 2)), labels)]


def of_optimizers() -> Iterator[tuple[str, Any]]:
    made: dict[str, Any] = {name: make_optimizer(name, learning_rate=0.1) for name in ("sgd", "adam", "adamw")}  # type: ignore[arg-type]
    made |= {f"{name} with decay": make_optimizer(name, learning_rate=0.1, weight_decay=0.2) for name in tuple(made)}  # type: ignore[arg-type]
    made["momentum"] = SGD(0.1, momentum=0.9, weight_decay=0.1)
    for name, optimizer in made.items():
        parameters = {"w": np.array([1.0, -2.0]), "b": np.array([[0.5]])}
        for at in range(3):
            if at == 2:  # a row that came later
                parameters["w"] = np.append(parameters["w"], 0.3)
            gradients = {"w": np.linspace(0.3, -1e-9, len(parameters["w"])) * (at + 1), "b": np.array([[1.0 - at]])}
            optimizer.step(parameters, gradients)
        yield name, [parameters, optimizer.state_dict()]
        again = type(optimizer)(0.1)
        again.load_state_dict(optimizer.state_dict())
        yield f"{name}, stored", again.state_dict()
    gradients = {"a": np.array([3.0, 4.0]), "b": np.array([[12.0]])}
    yield "norm", [global_norm(gradients), *(clip_by_global_norm(gradients, most) for most in (1.0, 13.0, 20.0))]


def of_inference() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(4)
    for n, k in ((1, 3), (2, 1), (5, 4), (14, 2), (15, 2), (40, 1)):
        a, b = rng.random((n, k)) + 0.1, rng.random((n, k))
        if n > 2:
            a[1, 0], b[0] = NAN, NAN
        yield f"{n} of {k}", inference.paired_difference(a, b)
        yield f"{n} of {k}, wide", inference.paired_difference(a, b, confidence=0.9, resamples=99, seed=5, reach=INF)
    for n, each, reach in itertools.product((1, 2, 14, 15, 30), (0.0, 0.2, -0.3), (1.0, INF)):
        yield f"{n} of {each} within {reach}", inference.student_interval(np.full(n, each), reach=reach)
    yield "an interval that is cut", inference.student_interval(np.array([1.0, -0.9, 1.0]))
    yield "per query", [inference.per_query([0.1, NAN, 0.3]), inference.per_query([[0.2, NAN], [NAN, NAN], [0.1, 0.4]])]
    apart = [
        (0.049, 0.1, 0.2),
        (0.05, 0.1, 0.2),
        (0.01, 0.0, 0.1),
        (0.01, -0.1, 0.0),
        (0.01, -0.2, -0.1),
        (0.01, None, 1.0),
        (0.01, 0.1, None),
    ]
    yield "surely apart", [inference.surely_apart(*one) for one in apart]
    yield "many", [inference.sign_flip_p_value(rng.standard_normal(n) + 0.2) for n in (3, 14, 15, 25_000)]
    yield "normal of Student", [inference.normal_of_student([-3.0, 0.0, 2.5], n) for n in (1, 4, 30)]
    yield "Student of normal", [inference.student_of_normal(z, n) for z in (-2.0, 0.0, 1.96) for n in (1, 4, 30)]


def of_convergence() -> Iterator[tuple[str, Any]]:
    stopper = EarlyStopper()
    yield "stopper", stopper.state_dict()
    yield "stops", [stopper.update(score, 0.1) for score in (0.5, 0.6, 0.61, NAN, INF, 0.6, 0.6, 0.6, 0.6)]
    yield "stopped", stopper.state_dict()
    guard = CollapseGuard()
    yield "guard", guard.state_dict()
    healthy = Vitals(0.5, 0.5, 6.0, 1.0, 0.2, -0.1, 0.3)
    said = []
    for at in range(60):
        shrinking = {"steps_mean": 6.0 - at / 12, "entropy": 1.0 - at / 60, "approx_kl": 0.2 + (at % 20 == 7) * 0.01}
        said.append(guard.update(Vitals(**asdict(healthy) | shrinking)))
        if at in (0, 1, 38, 39, 40):
            yield f"guard after {at}", guard.state_dict()
    yield "warnings", said
    guard = CollapseGuard()
    blind = Vitals(*[NAN] * 4, 0.01, -0.1, 0.3)
    yield "warnings of figures that were never measured", [guard.update(blind) for _ in range(45)]
    for known in (
        {"success_rate": 0.5},
        {"steps_mean": 6.0},
        {"reward_mean": 0.2, "steps_mean": 6.0},
        {"entropy": 0.01},
    ):
        guard = CollapseGuard(initial_entropy=1.0, updates=50, fast=dict(known))
        yield f"warnings where {' and '.join(known)} has no past", guard.update(blind)
        guard = CollapseGuard(initial_entropy=1.0, updates=50, slow=dict(known))
        yield f"warnings where {' and '.join(known)} has a past alone", guard.update(blind)


def of_preference() -> Iterator[tuple[str, Any]]:
    sequence = np.array([0, 0, 1, 2, 3, 4])
    logp, reference = LOGP[:6], LOGP_REF[:6]
    for name, chosen, rejected in (("pairs", [0, 2], [1, 3]), ("equal", [5], [6]), ("none", [], [])):
        both = np.array(chosen, int), np.array(rejected, int)
        yield name, preference.preference_loss(logp, reference, sequence, *both, 0.3)
    yield "best and worst", preference.best_and_worst(REWARDS, GROUPS)


def of_relevance() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(6)
    for n, words, size in ((24, 2, 1.0), (160, 2, 0.4), (24, 1, 1.0), (4, 1, 1.0), (6_000, 3, 4.0)):
        z, features = (rng.random((n, 3)) < 0.5).astype(float), (rng.random((5, words)) < 0.5).astype(float)
        query = np.arange(n) // 4 % 5
        reward = 0.3 + size * z[:, 0] * features[query, 0] + 0.2 * z[:, 1] + 0.1 * rng.standard_normal(n)
        reward[0] = NAN
        sums = relevance.query_sums(z, reward, np.arange(n) // 4, query, features)
        named, taught = (rng.random((2, 3, words)) < 0.4).astype(float)
        effects = relevance.query_effects(sums, 0.01 * size, relevance.prior_of(named, taught))
        yield f"{n} rollouts of {words} words", [sums, effects, effects.at(features[:2])]
    equal = relevance.query_sums(np.eye(4), np.full(4, 0.5), np.zeros(4, int), np.zeros(4, int), np.ones((1, 1)))
    yield "equal rewards", relevance.query_effects(equal, 0.0, relevance.prior_of(np.ones((4, 1)), np.ones((4, 1))))


def of_sequential() -> Iterator[tuple[str, Any]]:
    yield "crossing", [
        sequential.crossing(analyses, bound) for analyses in (1, 2, 4)
        for bound in (NAN, -INF, INF, -8.0 * math.sqrt(analyses), -7.9 * math.sqrt(analyses), -2.0, 0.0, 1.7, 3.0)
    ]  # fmt: skip
    yield "boundary", [sequential.boundary(analyses, alpha) for analyses in (1, 3, 5) for alpha in (0.025, 0.05)]
    rng = np.random.default_rng(7)
    rows = [rng.standard_normal((3, n)) * 0.3 + 0.1 for n in (4, 5, 6, 30)]
    rows += [np.full((1, 8), 0.25), np.concatenate([np.full((1, 9), 0.2), [[-1.0]]], axis=1)]
    yield "statistics", [sequential.statistics(one) for one in rows]
    design = Sequential(3, 2, 0.05)
    for at in (1, 2, 3):
        for mean in (-0.1, 0.03, 0.05, 0.1, 0.3):
            yield f"analysis {at} of {mean}", design.analyse(mean + np.linspace(-0.2, 0.2, 12), at)
    bound = sequential.boundary(3, 0.05)
    for at in (1, 2, 3):
        edge = bound / math.sqrt(at)
        seen = np.array([edge, np.nextafter(edge, 0), at / 6, np.nextafter(at / 6, 0), -1.0])
        yield f"decisions at {at}", design._decided(seen, at)
    yield (
        "power",
        [
            design.power(n, gain)
            for n, gain in ((4, 0.2), (5, 0.2), (20, 0.15), (20, -0.2), (400, 0.1), (6, 0.95), (6, -0.9), (0, 0.1))
        ],
    )
    yield "queries", [design.queries_for(gain, found) for gain, found in ((0.3, 0.8), (0.301, 0.8))]


PARTS: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    name.removeprefix("of_"): part for name, part in tuple(globals().items()) if name.startswith("of_")
}


def plain(found: Any) -> Any:
    """JSON of arrays, named tuples and dataclasses; numbers that are not finite by name."""
    if is_dataclass(found):
        return {field.name: plain(getattr(found, field.name)) for field in fields(found)}
    if isinstance(found, dict):
        return {name: plain(one) for name, one in found.items()}
    if isinstance(found, np.ndarray | np.generic):
        return plain(found.tolist())
    if isinstance(found, list | tuple):
        return [plain(one) for one in found]
    if isinstance(found, float) and not math.isfinite(found):
        return str(found)
    return found


def flat(found: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict | list):
        for name, one in found.items() if isinstance(found, dict) else enumerate(found):
            yield from flat(one, f"{path}/{name}")
        if not found:
            yield path, "empty"
    else:
        yield path, found


@pytest.mark.parametrize("part", PARTS)
def test_numbers_are_those_that_were_kept(part: str) -> None:
    kept = dict(flat(json.loads(FILE.read_text())[part]))
    result = dict(flat(plain(dict(PARTS[part]()))))
    assert result.keys() == kept.keys()
    for name, one in result.items():
        expected = kept[name]
        if isinstance(one, float) and isinstance(expected, float | int):
            assert one == pytest.approx(expected, rel=1e-9, abs=1e-12), name
        else:
            assert (type(one), one) == (type(expected), expected), name


if __name__ == "__main__":
    whole = {part: plain(dict(made())) for part, made in PARTS.items()}
    FILE.write_text(json.dumps(whole, separators=(",", ":")).replace('},"', '},\n"') + "\n")
