"""Effects that depend on the query, and the rule that chooses lessons by them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from training.algorithm import relevance
from training.algorithm.arrays import centred
from training.algorithm.relevance import (
    EVERYWHERE,
    NAMED,
    TAUGHT,
    QueryEffects,
    prior_of,
    query_effects,
    query_sums,
    with_general,
)
from training.policies.archive import pack, unpack
from training.policies.query_rule import QueryRule, same_for_all
from training.policies.query_words import QueryWords

QUERIES = [
    *(f"Convert {n} kilometres per hour to metres per second." for n in range(12)),
    *(f"On which weekday does day {n} of the year {1990 + n} fall?" for n in range(12)),
    *(f"How many vowels has the word number {n} of the list?" for n in range(12)),
]


WORDS = QueryWords.fitted(QUERIES)
FEATURES = WORDS.all(QUERIES)


def rollouts(
    effects: Any, *, groups: int, size: int = 8, noise: float = 0.3, seed: int = 0, k: int = 6
) -> tuple[Any, Any, Any, Any]:
    """Rollouts of 36 queries of three kinds; ``effects`` (3, K) are by kind."""
    rng = np.random.default_rng(seed)
    query = np.repeat(rng.integers(len(QUERIES), size=groups), size)
    z = (rng.random((groups * size, k)) < 0.5).astype(np.float64)
    reward = 0.3 + (z * effects[query // 12]).sum(1) + noise * rng.standard_normal(len(query))
    return z, reward, np.repeat(np.arange(groups), size), query


def known_of(z: Any, reward: Any, group: Any, query: Any, named: Any = None, taught: Any = None) -> QueryEffects:
    nothing = np.zeros((z.shape[1], WORDS.size))
    prior = prior_of(nothing if named is None else named, nothing if taught is None else taught)
    return query_effects(query_sums(z, reward, group, query, FEATURES), 0.09, prior)


def of_kinds(found: QueryEffects) -> Any:
    """Mean effects by kind, (3, K)."""
    return found.at(FEATURES)[0].reshape(3, 12, -1).mean(axis=1)


def test_effects_that_are_the_same_everywhere_stay_one_number() -> None:
    effects = np.tile([0.2, -0.2, 0.1, 0.0, 0.0, 0.0], (3, 1))
    result = known_of(*rollouts(effects, groups=200))
    assert result.local < 0.5
    assert np.abs(of_kinds(result) - effects).max() < 0.08


def test_an_effect_on_one_kind_of_query_is_found_there_and_not_elsewhere() -> None:
    effects = np.zeros((3, 6))
    effects[0, 0], effects[1, 1], effects[2, 2] = 0.3, -0.3, 0.3
    result = known_of(*rollouts(effects, groups=150))
    assert result.local > 0.9
    assert np.abs(of_kinds(result) - effects).max() < 0.08
    mean, sd = result.at(WORDS.share[None, :])
    assert mean[0] == pytest.approx(effects.mean(axis=0), abs=0.03)
    assert (mean[0] / sd[0])[[0, 2]].min() > 4  # with one number for all queries the noise would be three times that


def test_the_posterior_of_one_lesson_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved in the other form, over rollouts: each hypothesis and size by its marginal likelihood."""
    monkeypatch.setattr(relevance, "SIZES", (0.5, 1.0))
    z, reward, group, query = rollouts(np.array([[0.3], [0.0], [0.0]]), groups=20, k=1)
    named = np.zeros((1, WORDS.size))
    named[0, :2] = 1
    result = known_of(z, reward, group, query, named)
    included, y = centred(z, group)[:, 0], centred(reward[:, None], group)[:, 0]
    found = []
    for chance, feature in zip(prior_of(named, 0 * named)[0], with_general(FEATURES)[query].T, strict=True):
        for size in (0.15, 0.3):
            x = included * feature
            covariance = 0.09 * np.eye(len(y)) + size**2 * np.outer(x, x)
            solved = np.linalg.solve(covariance, np.stack([y, x], axis=1))
            _, determinant = np.linalg.slogdet(covariance)
            mean = size**2 * x @ solved[:, 0]
            variance = size**2 - size**4 * x @ solved[:, 1]
            found.append((np.log(chance) - 0.5 * (determinant + y @ solved[:, 0]), mean, variance))
    evidence, means, variances = np.array(found).T
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    assert result.mean[0] == pytest.approx((weight * means).reshape(-1, 2).sum(axis=1), abs=1e-9)
    assert result.spread[0] == pytest.approx((weight * (variances + means**2)).reshape(-1, 2).sum(axis=1), abs=1e-9)


def test_the_words_that_a_lesson_names_and_those_that_taught_it_are_likelier() -> None:
    named = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float64)
    taught = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=np.float64)
    prior = prior_of(named, taught)
    assert prior.sum(axis=1) == pytest.approx([1, 1, 1]) and prior[:, 0] == pytest.approx(EVERYWHERE)
    rest = np.array([1 - EVERYWHERE - NAMED, 1 - EVERYWHERE - NAMED - TAUGHT, 1 - EVERYWHERE]) / 4
    assert prior[0, 1:] == pytest.approx(rest[0] + np.array([NAMED / 2, NAMED / 2, 0, 0]))
    assert prior[1, 1:] == pytest.approx(rest[1] + np.array([NAMED + TAUGHT / 2, 0, TAUGHT / 2, 0]))
    assert prior[2, 1:] == pytest.approx(rest[2])


def test_a_lesson_that_names_its_word_is_known_from_fewer_rollouts() -> None:
    effects = np.zeros((3, 6))
    effects[0, 0] = 0.25
    word = WORDS.of("kilometres")
    without, having = (
        [known_of(*rollouts(effects, groups=12, seed=seed), named=named) for seed in range(10)]
        for named in (None, np.vstack([word, np.zeros((5, WORDS.size))]))
    )
    gain = [of_kinds(b)[0, 0] - of_kinds(a)[0, 0] for a, b in zip(without, having, strict=True)]
    assert np.mean(gain) > 0.01


def test_its_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = []
    for seed in range(30):
        rng = np.random.default_rng(1000 + seed)
        effects = np.zeros((3, 6))
        for k in range(6):
            effects[slice(None) if rng.random() < EVERYWHERE else rng.integers(3), k] = 0.2 * rng.standard_normal()
        result = known_of(*rollouts(effects, groups=60, seed=seed))
        mean, sd = result.at(FEATURES[::12])
        covered.append(np.abs(mean - effects) < 1.96 * sd)
    assert 0.9 < np.mean(covered) <= 1.0


def test_unknown_rewards_and_lone_rollouts_say_nothing() -> None:
    z, reward, group, query = rollouts(np.full((3, 6), 0.1), groups=10)
    whole = query_sums(z, reward, group, query, FEATURES)
    more = [np.vstack([z, z[:2]]), np.append(reward, [np.nan, 99.0]), np.append(group, [3, 77])]
    again = query_sums(*more, np.append(query, query[:2]), FEATURES)
    assert again.gram == pytest.approx(whole.gram) and again.moment == pytest.approx(whole.moment)


def test_without_any_rollout_nothing_is_known() -> None:
    empty = np.zeros(0, dtype=np.int64)
    result = known_of(np.zeros((0, 2)), np.zeros(0), empty, empty)
    assert not result.mean.any() and (result.spread > 0).all()


def test_shares_of_words_take_the_place_of_earlier_queries() -> None:
    """Sums of which the queries are not known count as queries with the mean share of each word."""
    sums = query_sums(*rollouts(np.full((3, 2), 0.2), groups=100, k=2), FEATURES)
    gram, moment = sums.gram.sum(axis=0)[None], sums.moment.sum(axis=0)[None]
    nothing = np.zeros((2, WORDS.size))
    total = query_effects(relevance.QuerySums(gram, moment, WORDS.share[None]), 0.09, prior_of(nothing, nothing))
    assert total.at(WORDS.share[None])[0][0] == pytest.approx([0.2, 0.2], abs=0.06)


def test_sweeps_end_where_nothing_moves_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = rollouts(np.array([[0.3, 0, 0, 0, 0.1, -0.2], [0, 0.2, 0, 0, 0.1, 0], [0, 0, 0, 0, 0.1, 0]]), groups=80)
    short = known_of(*lived)
    monkeypatch.setattr(relevance, "CLOSE", -1.0)
    assert known_of(*lived).mean == pytest.approx(short.mean, abs=0.003)
    monkeypatch.setattr(relevance, "SWEEPS", 1)
    assert np.abs(known_of(*lived).mean - short.mean).max() > 0.003


def test_covariances_of_earlier_releases_give_standard_deviations() -> None:
    effects = QueryEffects(np.array([[0.1, 0.2]]), np.array([[[0.01, 0.0], [0.0, 0.03]]]), 0.5)
    mean, sd = effects.at(np.array([[1.0], [0.0]]))
    assert mean[:, 0] == pytest.approx([0.3, 0.1]) and sd[:, 0] == pytest.approx([0.2, 0.1])


# -- words -------------------------------------------------------------------------------------------------------------


def test_words_that_always_occur_together_are_one_feature() -> None:
    together = [WORDS.of(word) for word in ("Convert", "kilometres", "weekday", "year")]
    assert (together[0] == together[1]).all() and (together[2] == together[3]).all()
    assert together[0].sum() == 1 and not (together[0] * together[2]).any()
    assert WORDS.share @ together[0] == pytest.approx(1 / 3) and WORDS.size == 4  # and "of" and "the"


def test_a_query_of_new_numbers_has_the_words_of_its_kind_and_an_unknown_one_none() -> None:
    assert (WORDS.of("Convert 99 kilometres per hour to metres per second.") == WORDS.of(QUERIES[3])).all()
    assert not WORDS.of("Zut alors").any() and not WORDS.of("").any()


def test_a_lesson_names_the_words_of_its_condition() -> None:
    lessons = ["When you convert speeds, mind the weekday.", "Mind the weekday.", "When all is lost"]
    named = WORDS.named(lessons)
    assert (named[0] == WORDS.of("convert")).all() and (named[1] == WORDS.of("the weekday.")).all()
    assert not named[2].any()


@pytest.mark.parametrize("queries", [[], ["one"], ["alpha", "beta", "gamma"], ["same words here"] * 5])
def test_queries_that_share_nothing_or_all_have_no_words(queries: list[str]) -> None:
    fitted = QueryWords.fitted(queries)
    assert fitted.size == 0 and fitted.all(queries).shape == (len(queries), 0)


def test_no_word_of_a_query_is_stored() -> None:
    stored = pack(QueryWords.fitted([f"{query} Jane Roe {n}" for n, query in enumerate(QUERIES)]).state_dict())
    assert b"jane" not in stored.lower() and b"weekday" not in stored.lower()


# -- the rule ----------------------------------------------------------------------------------------------------------


def rule_of(**more: Any) -> QueryRule:
    effects = np.zeros((3, 6))
    effects[0, 0], effects[2, 1], effects[:, 2], effects[:, 3:] = 0.3, 0.3, 0.2, -0.2
    result = known_of(*rollouts(effects, groups=150))
    return QueryRule(WORDS, tuple("abcdef"), (40, 10, 20, 10, 10, 10), result, **more)


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
    rule = rule_of(confidence=0.9)
    again = QueryRule.from_state_dict(unpack(pack(rule.state_dict())))
    in_json = QueryRule.from_state_dict(json.loads(json.dumps(rule.as_json())))
    for query in [*QUERIES, "Zut alors"]:
        assert again.lessons_for(query) == rule.lessons_for(query) == in_json.lessons_for(query)


def test_an_erased_lesson_is_served_no_more_and_the_others_as_before() -> None:
    rule = rule_of(confidence=0.99)
    assert rule.without(["a"]).lessons_for(QUERIES[0]) == ("c",)
    assert rule.without(["a"]).lessons_for(QUERIES[25]) == rule.lessons_for(QUERIES[25])


def test_a_group_counts_by_its_weight() -> None:
    """Two groups of two: deviations of a half in inclusion and reward give a product of a half in all."""
    z, reward = np.array([[1.0], [0.0], [1.0], [0.0]]), np.array([1.0, 0.0, 1.0, 0.0])
    group, query = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    sums = query_sums(z, reward, group, query, np.eye(2), np.array([1.0, 1.0, 4.0, 4.0]))
    assert sums.gram[:, 0, 0].tolist() == [0.5, 2.0] and sums.moment[:, 0].tolist() == [0.5, 2.0]


def test_the_deviation_at_a_share_of_queries_is_that_of_the_share() -> None:
    """One effect of 1 +- 2 at half of the queries: the second moment 5 counts a quarter, the mean .5."""
    known = QueryEffects(np.array([[0.0, 1.0]]), np.array([[0.0, 5.0]]), 1.0)
    mean, sd = known.at(np.array([[0.5]]))
    assert mean[0, 0] == 0.5 and sd[0, 0] == pytest.approx(1.0)
