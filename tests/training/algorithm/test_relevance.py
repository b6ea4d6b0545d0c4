"""Effects that depend on the query, and the rule that chooses lessons by them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from training.algorithm import relevance
from training.algorithm.arrays import centred
from training.algorithm.relevance import QueryEffects, query_effects, with_general
from training.policies.archive import pack, unpack
from training.policies.query_rule import QueryRule, same_for_all
from training.policies.query_vectors import QueryVectors

QUERIES = [
    *(f"Convert {n} kilometres per hour to metres per second." for n in range(12)),
    *(f"On which weekday does day {n} of the year {1990 + n} fall?" for n in range(12)),
    *(f"How many vowels has the word number {n} of the list?" for n in range(12)),
]


def rollouts(
    effects: Any, *, groups: int, size: int = 8, noise: float = 0.3, seed: int = 0, k: int = 6
) -> tuple[Any, Any, Any, Any]:
    """Rollouts of 36 queries of three kinds; ``effects`` (3, K) are by kind."""
    rng = np.random.default_rng(seed)
    vectors = QueryVectors.fitted(QUERIES).all(QUERIES)
    query = np.repeat(rng.integers(len(QUERIES), size=groups), size)
    z = rng.random((groups * size, k)) < 0.5
    reward = 0.3 + (z * effects[query // 12]).sum(1) + noise * rng.standard_normal(len(query))
    return z, reward, np.repeat(np.arange(groups), size), vectors[query]


def of_kinds(found: QueryEffects) -> Any:
    """Mean effects by kind, (3, K)."""
    mean, _ = found.at(QueryVectors.fitted(QUERIES).all(QUERIES))
    return mean.reshape(3, 12, -1).mean(axis=1)


def test_effects_that_are_the_same_everywhere_stay_one_number() -> None:
    effects = np.tile([0.2, -0.2, 0.1, 0.0, 0.0, 0.0], (3, 1))
    result = query_effects(*rollouts(effects, groups=200))
    assert result.local < 0.5
    assert np.abs(of_kinds(result) - effects).max() < 0.05


def test_an_effect_on_one_kind_of_query_is_found_there_and_not_elsewhere() -> None:
    effects = np.zeros((3, 6))
    effects[0, 0], effects[1, 0], effects[2, 1] = 0.3, -0.3, 0.3
    result = query_effects(*rollouts(effects, groups=150))
    assert result.local > 0.99
    assert np.abs(of_kinds(result) - effects).max() < 0.1
    # One number for each lesson, as it was before, says of the first that it does nothing.
    assert abs(of_kinds(result)[:, 0].mean()) < 0.05


def test_effect_is_the_posterior_of_a_gaussian_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # Solved in the other form, over rollouts instead of coefficients, with one prior.
    monkeypatch.setattr(relevance, "GENERAL", (0.1,))
    monkeypatch.setattr(relevance, "LOCAL", (0.2,))
    effects = np.array([[0.3, 0, 0, 0, 0, -0.1], [0, 0.2, 0, 0, 0, -0.1], [0.1, 0, 0, 0, 0, -0.1]])
    z, reward, group, vectors = rollouts(effects, groups=20)
    result = query_effects(z, reward, group, vectors)
    included, y = centred(z.astype(float), group), centred(reward[:, None], group)[:, 0]
    noise = y @ y / (len(y) - 20)
    at = QueryVectors.fitted(QUERIES).all(QUERIES[::9])
    inverse = np.linalg.inv((included @ included.T) * (0.01 + 0.04 * vectors @ vectors.T) + noise * np.eye(len(y)))
    for k in range(6):
        across = (0.01 + 0.04 * at @ vectors.T) * included[:, k]
        mean, sd = result.at(at)
        np.testing.assert_allclose(mean[:, k], across @ inverse @ y, atol=1e-9)
        variance = 0.01 + 0.04 * (at**2).sum(1) - np.einsum("qn,nm,qm->q", across, inverse, across)
        np.testing.assert_allclose(sd[:, k] ** 2, variance, atol=1e-9)


def test_its_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = []
    for seed in range(20):
        rng = np.random.default_rng(1000 + seed)
        effects = 0.1 * rng.standard_normal((1, 6)) + 0.15 * rng.standard_normal((3, 6))
        result = query_effects(*rollouts(effects, groups=60, seed=seed))
        mean, sd = result.at(QueryVectors.fitted(QUERIES).all(QUERIES[::12]))
        covered.append(np.abs(mean - effects) < 1.96 * sd)
    assert 0.88 < np.mean(covered) <= 1.0


def test_unknown_rewards_and_lone_rollouts_say_nothing() -> None:
    z, reward, group, vectors = rollouts(np.full((3, 6), 0.1), groups=10)
    whole = query_effects(z, reward, group, vectors)
    more = [np.vstack([z, z[:2]]), np.append(reward, [np.nan, 99.0]), np.append(group, [3, 77])]
    again = query_effects(*more, np.vstack([vectors, vectors[:2]]))
    np.testing.assert_allclose(again.mean, whole.mean, atol=1e-12)


def test_without_vectors_there_is_one_effect_a_lesson() -> None:
    z, reward, group, _ = rollouts(np.tile([0.3, 0, 0, 0, 0, 0], (3, 1)), groups=40)
    effects = query_effects(z, reward, group, np.zeros((len(z), 0)))
    assert effects.mean.shape == (6, 1) and effects.local == 0 and abs(effects.mean[0, 0] - 0.3) < 0.1
    assert with_general(np.zeros((2, 0))).shape == (2, 1)


# -- vectors -----------------------------------------------------------------------------------------------------------


def test_queries_of_one_kind_are_near_each_other() -> None:
    vectors = QueryVectors.fitted(QUERIES).all(QUERIES)
    alike = vectors @ vectors.T
    same = np.repeat(np.arange(3), 12)[:, None] == np.repeat(np.arange(3), 12)[None, :]
    assert alike[same].mean() > 0.5 and alike[~same].mean() < 0.2


def test_a_query_of_new_numbers_is_where_its_kind_is_and_an_unknown_one_nowhere() -> None:
    fitted = QueryVectors.fitted(QUERIES)
    assert fitted.of("Convert 99 kilometres per hour to metres per second.") @ fitted.of(QUERIES[3]) > 0.99
    assert not fitted.of("Zut alors").any() and not fitted.of("").any()


@pytest.mark.parametrize("queries", [[], ["one"], ["alpha", "beta", "gamma"], ["same words here"] * 5])
def test_queries_that_share_nothing_or_all_have_no_vectors(queries: list[str]) -> None:
    fitted = QueryVectors.fitted(queries)
    assert fitted.size == 0 and fitted.all(queries).shape == (len(queries), 0)


def test_no_word_of_a_query_is_stored() -> None:
    stored = pack(QueryVectors.fitted([f"{query} Jane Roe" for query in QUERIES]).state_dict())
    assert b"jane" not in stored.lower() and b"weekday" not in stored.lower()


# -- the rule ----------------------------------------------------------------------------------------------------------


def rule_of(**more: Any) -> QueryRule:
    effects = np.zeros((3, 6))
    effects[0, 0], effects[1, 0], effects[2, 1], effects[:, 2] = 0.3, -0.3, 0.3, 0.2
    result = query_effects(*rollouts(effects, groups=150))
    return QueryRule(QueryVectors.fitted(QUERIES), tuple("abcdef"), (40, 10, 20, 10, 10, 10), result, **more)


def test_each_query_gets_the_lessons_that_help_with_that_query() -> None:
    rule = rule_of(confidence=0.99)
    assert rule.lessons_for(QUERIES[0]) == ("a", "c")
    assert rule.lessons_for(QUERIES[13]) == ("c",)
    assert rule.lessons_for(QUERIES[25]) == ("b", "c")
    assert rule.lessons_of(QUERIES) == ("a", "b", "c") and not same_for_all(rule, QUERIES)
    assert same_for_all(rule, QUERIES[:12])


def test_with_little_room_the_best_lesson_per_token_goes_first() -> None:
    # The first lesson adds more in all, the third more for each of its tokens.
    assert rule_of(confidence=0.99, slots=1).lessons_for(QUERIES[0]) == ("c",)
    assert rule_of(confidence=0.99, most_tokens=45).lessons_for(QUERIES[0]) == ("c",)
    assert rule_of(confidence=0.99, most_tokens=60).lessons_for(QUERIES[0]) == ("a", "c")


def test_a_rule_that_was_stored_chooses_the_same() -> None:
    rule = rule_of()
    again = QueryRule.from_state_dict(unpack(pack(rule.state_dict())))
    in_json = QueryRule.from_state_dict(json.loads(json.dumps(rule.as_json())))
    for query in [*QUERIES, "Zut alors"]:
        assert again.lessons_for(query) == rule.lessons_for(query) == in_json.lessons_for(query)


def test_an_erased_lesson_is_served_no_more_and_the_others_as_before() -> None:
    rule = rule_of(confidence=0.99)
    assert rule.without(["a"]).lessons_for(QUERIES[0]) == ("c",)
    assert rule.without(["a"]).lessons_for(QUERIES[25]) == rule.lessons_for(QUERIES[25])
