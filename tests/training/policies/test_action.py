"""The action policy: exact probabilities, analytic gradients, and a state that comes back bit for bit."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from experiences.rollouts.runtimes.action import observation_of
from experiences.rollouts.types import ActionSpec, Observation
from training.policies.action import ActionPolicy
from training.policies.archive import pack, unpack
from training.policies.base import Decision
from training.policies.exploration import FailureMemory, PoolEvidence
from training.policies.features import FeatureOptions

ACTIONS = [ActionSpec(name, "tool") for name in ("gcd", "lcm", "sort")] + [ActionSpec("answer", "answer")]
QUERIES = ["Find the gcd of 4 and 6", "Find the lcm of 2 and 3", "Sort these words: fig pear"]


def policy(*, seed: int | None = 0, **options: Any) -> ActionPolicy:
    """A policy with random weights on everything in ``decisions()`` (an untrained one with seed None)."""
    made = ActionPolicy.fresh(ACTIONS, FeatureOptions(**({"min_df": 1} | options)), QUERIES, version="7")
    if seed is not None:
        made.encode(decisions())
        rng = np.random.default_rng(seed)
        made.parameters["weights"][1:] = rng.normal(size=made.weights[1:].shape)
        made.parameters["own"][:] = rng.normal(size=4)
        made.updated("7")
    return made


def decisions() -> list[Decision]:
    seen = [
        Observation(QUERIES[0], "", (), (True, True, True, False)),
        Observation(QUERIES[0], "2", ("gcd#ok",), None),
        Observation(QUERIES[1], "3*4 + 1", ("gcd#err", "lcm#ok"), (False, True, True, True)),
        Observation(QUERIES[2], "fig pear", ("gcd#ok", "sort#ok"), (True, True, True, True)),
        Observation(QUERIES[0], "", (), (True, True, True, False)),
    ]
    return [Decision(observation, choice) for observation, choice in zip(seen, (0, 3, 1, 3, 2), strict=True)]


def memory_of(made: ActionPolicy, strength: float = 0.8) -> FailureMemory:
    memory = FailureMemory(made.encoder, [True, True, True, False], strength)
    memory.count_failure([(decisions()[0].observation, 0), (decisions()[2].observation, 2)])
    return memory


def test_an_untrained_policy_is_uniform_over_allowed_actions_at_every_temperature() -> None:
    fresh, rng = policy(seed=None), np.random.default_rng(0)
    seen = decisions()[0].observation
    for temperature in (0.0, 0.5, 1.0):
        drawn = Counter(fresh.choose(seen, rng, temperature=temperature)[0] for _ in range(3_000))
        assert set(drawn) == {0, 1, 2}
        assert max(drawn.values()) - min(drawn.values()) < 200
        assert fresh.choose(seen, rng, temperature=temperature)[1] == pytest.approx(-np.log(3))


def test_policy_draws_by_its_stated_probabilities() -> None:
    made, rng = policy(), np.random.default_rng(1)
    seen = decisions()[1].observation
    p = made.probabilities(seen, temperature=0.7)
    drawn = Counter()
    for _ in range(20_000):
        choice, logp = made.choose(seen, rng, temperature=0.7)
        assert logp == pytest.approx(float(np.log(p[choice])))
        drawn[choice] += 1
    assert np.array([drawn[a] / 20_000 for a in range(4)]) == pytest.approx(p, abs=0.015)
    assert p.sum() == pytest.approx(1.0)


def test_a_greedy_policy_takes_the_best_action() -> None:
    made, rng = policy(), np.random.default_rng(2)
    for decision in decisions():
        best = int(made.probabilities(decision.observation).argmax())
        assert made.choose(decision.observation, rng, temperature=0.0) == (best, pytest.approx(0.0))


@pytest.mark.parametrize("explores", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_policy_evaluates_the_log_probability_of_its_actions(explores: bool, temperature: float) -> None:
    made, rng = policy(), np.random.default_rng(3)
    memory = memory_of(made) if explores else None
    chooser = made.exploring(memory) if memory else made
    taken, stored = [], []
    for _ in range(40):
        seen = decisions()[int(rng.integers(5))].observation
        choice, logp = chooser.choose(seen, rng, temperature=temperature)
        taken.append(Decision(seen, choice))
        stored.append(logp)
    evaluation = made.evaluate(made.encode(taken, memory), temperature=temperature)
    assert evaluation.logp == pytest.approx(stored, abs=1e-12)


@pytest.mark.parametrize("explores", [False, True])
def test_its_gradient_is_that_of_finite_differences(explores: bool) -> None:
    made = policy()
    encoded = made.encode(decisions(), memory_of(made) if explores else None)
    rng = np.random.default_rng(4)
    d_logp, d_entropy = rng.normal(size=5), rng.normal(size=5)

    def value() -> float:
        evaluation = made.evaluate(encoded, temperature=0.8)
        return float(d_logp @ evaluation.logp + d_entropy @ evaluation.entropy)

    result = made.evaluate(encoded, temperature=0.8).backward(d_logp, d_entropy)
    for name, parameter in made.parameters.items():
        numeric = np.zeros_like(parameter)
        for at in np.ndindex(parameter.shape):
            kept = parameter[at]
            parameter[at] = kept + 1e-6
            up = value()
            parameter[at] = kept - 1e-6
            numeric[at] = (up - value()) / 2e-6
            parameter[at] = kept
        if name == "weights":
            numeric[0] = 0.0  # no feature points there
        assert result[name] == pytest.approx(numeric, abs=1e-8)


def test_a_masked_action_is_never_taken_and_pulls_nothing() -> None:
    made = policy()
    evaluation = made.evaluate(made.encode(decisions()[:1]), temperature=1.0)
    gradient = evaluation.backward(np.ones(1), np.ones(1))["weights"]
    assert np.abs(gradient[:, 3]).max() == 0.0
    assert np.isfinite(evaluation.entropy).all()
    assert made.probabilities(decisions()[0].observation)[3] == 0.0


def test_features_can_be_rebuilt_from_a_stored_step() -> None:
    made = policy()
    for decision in decisions():
        seen = decision.observation
        state: dict[str, Any] = {"observation": seen.last, "done": list(seen.done)}
        if seen.mask is not None:
            state["mask"] = "".join("01"[allowed] for allowed in seen.mask)
        rebuilt = observation_of(seen.query, json.loads(json.dumps(state)))
        assert rebuilt == seen
        one, other = (made.encode([Decision(o, decision.choice)]) for o in (seen, rebuilt))
        assert one.design.tobytes() == other.design.tobytes()
        assert one.rows.tolist() == other.rows.tolist()


def test_features_without_training_have_no_effect() -> None:
    fresh = policy(seed=None)
    fresh.encode(decisions()[:1])
    known = len(fresh.weights)
    fresh.parameters["weights"][1:] = 1.0
    assert fresh.weights[0].tolist() == [0.0] * 4
    fresh.choose(Observation("Sort these words: fig pear", "", ()), np.random.default_rng(0), temperature=1.0)
    assert len(fresh.weights) == known
    fresh.encode(decisions())
    assert len(fresh.weights) > known
    assert fresh.weights[known:].max() == 0.0


def test_its_state_comes_back_bit_for_bit() -> None:
    made = policy()
    made.make_reference()
    made.parameters["weights"] += 0.25
    again = ActionPolicy.from_state_dict(unpack(pack(made.state_dict())))
    assert again.version == "7"
    assert again.actions == made.actions
    assert pack(again.state_dict()) == pack(made.state_dict())
    one, other = made.encode(decisions()), again.encode(decisions())
    assert made.evaluate(one, temperature=1.0).logp.tolist() == again.evaluate(other, temperature=1.0).logp.tolist()
    assert made.reference_logp(one, temperature=1.0).tolist() == again.reference_logp(other, temperature=1.0).tolist()


def test_the_reference_stays_fixed_at_its_snapshot() -> None:
    made = policy()
    before = made.evaluate(made.encode(decisions()[:3]), temperature=1.0).logp
    made.make_reference()
    made.parameters["weights"] += np.random.default_rng(9).normal(size=made.weights.shape)
    made.encode([Decision(Observation("brand new lcm", "o", ("sort#err",)), 0)])  # grows W after it was taken
    assert made.reference_logp(made.encode(decisions()[:3]), temperature=1.0) == pytest.approx(before)


def test_a_new_version_forgets_what_the_old_one_would_have_drawn() -> None:
    made, rng = policy(), np.random.default_rng(0)
    seen = decisions()[0].observation
    before = made.choose(seen, rng, temperature=0.0)[0]
    for parameter in made.parameters.values():
        parameter *= -1
    made.updated("8")
    assert made.version == "8"
    after = made.choose(seen, rng, temperature=0.0)[0]
    assert after == int(made.probabilities(seen).argmax()) != before


def test_whether_to_repeat_what_failed_is_learned_once_for_all_actions() -> None:
    made = policy(seed=None)
    made.parameters["own"][1] = -2.0  # "err"
    p = made.probabilities(Observation("anything", "", ("sort#err",)))
    assert p[2] == pytest.approx(p[0] * np.exp(-2.0))
    without = ActionPolicy.fresh(ACTIONS, FeatureOptions(own_history=False), QUERIES)
    without.parameters["own"][1] = -2.0
    assert without.probabilities(Observation("anything", "", ("sort#err",))) == pytest.approx(np.full(4, 0.25))


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.policies.action._CHOICES_LIMIT", 1)
    made = policy()
    one = [made.choose(d.observation, np.random.default_rng(5), temperature=1.0) for d in decisions()]
    assert one == [made.choose(d.observation, np.random.default_rng(5), temperature=1.0) for d in decisions()]


class TestFailureMemory:
    """An action that failed is tried less on similar questions, until they are solved."""

    query = Observation(QUERIES[0], "", ())

    def test_memory_says_nothing_before_anything_failed(self) -> None:
        made = policy(seed=None)
        memory = FailureMemory(made.encoder, [True] * 4, 1.0)
        assert memory.offset(made.encoder.encode(self.query)).tolist() == [0.0] * 4

    def test_memory_pushes_away_from_what_failed_and_only_on_similar_questions(self) -> None:
        made = policy(seed=None)
        memory = FailureMemory(made.encoder, [True, True, True, False], 1.0)
        memory.count_failure([(self.query, 0), (self.query, 0), (self.query, 3)])
        here = memory.offset(made.encoder.encode(self.query))
        there = memory.offset(made.encoder.encode(Observation(QUERIES[2], "", ())))
        assert here == pytest.approx([-np.log(2), 0.0, 0.0, 0.0])  # once per rollout; answers are not counted
        assert there.tolist() == [0.0] * 4

    def test_more_failures_push_harder_but_ever_less(self) -> None:
        made = policy(seed=None)
        memory = FailureMemory(made.encoder, [True] * 4, 0.5)
        offsets = []
        for _ in range(3):
            memory.count_failure([(self.query, 1)])
            offsets.append(float(memory.offset(made.encoder.encode(self.query))[1]))
        assert offsets == pytest.approx([-0.5 * np.log(2), -0.5 * np.log(3), -0.5 * np.log(4)])

    def test_a_success_clears_its_own_action_and_halves_the_rest(self) -> None:
        made = policy(seed=None)
        memory = FailureMemory(made.encoder, [True] * 4, 1.0)
        for _ in range(3):
            memory.count_failure([(self.query, 0), (self.query, 1)])
        memory.count_success([(self.query, 1)])
        assert memory.offset(made.encoder.encode(self.query)) == pytest.approx([-np.log(2.5), 0.0, 0.0, 0.0])
        memory.count_success([])

    def test_memory_knows_how_questions_like_this_fared_lately(self) -> None:
        made = policy(seed=None)
        memory = FailureMemory(made.encoder, [True] * 4, 0.0)
        pool = PoolEvidence.of(made.encoder, [*QUERIES, "wholly unknown"])
        assert memory.success(pool).tolist() == [0.0] * 4
        memory.count_group(QUERIES[2], 1.0)
        memory.count_group(QUERIES[0], 0.5)
        memory.count_group(QUERIES[0], 1.0)
        result = memory.success(pool)
        assert result[0] == pytest.approx((0.8 * 0.5 + 1.0) / 1.8)
        assert result[2] == pytest.approx(1.0)
        assert result[3] == 0.0

    def test_its_state_holds_only_what_is_in_use_and_comes_back(self) -> None:
        made = policy(seed=None)
        memory = memory_of(made)
        memory.count_group(QUERIES[1], 0.25)
        state = unpack(pack(memory.state_dict()))
        assert len(state["rows"]) < 30
        again = FailureMemory(made.encoder, memory.tracked, memory.strength)
        again.count_failure([(decisions()[3].observation, 1)])
        again.load_state_dict(state)
        for decision in decisions():
            encoding = made.encoder.encode(decision.observation)
            assert again.offset(encoding).tolist() == memory.offset(encoding).tolist()
        assert pack(again.state_dict()) == pack(memory.state_dict())
