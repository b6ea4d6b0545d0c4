"""Kinds of queries are further columns beside words: in features, priors, estimates and stored states."""

from __future__ import annotations

import numpy as np
import pytest

from experiences.learning.lessons.library import Lesson, Library
from training.algorithm.relevance import ALIKE, EVERYWHERE, prior_of
from training.policies.archive import pack, unpack
from training.policies.context import ContextPolicy
from training.policies.evidence import RolloutEvidence
from training.policies.query_words import QueryWords, hash_of, hash_of_kind
from training.trainer.setup import Scenario, TrajectoryGroup

QUERIES = [f"{word} {form}" for word in ("cargo", "lorries", "wages", "salaries") for form in ("now", "soon", "late")]
LABELS = ["freight"] * 6 + ["payroll"] * 5 + [""]
SORTED = QueryWords.fitted(QUERIES, LABELS)


def kind(label: str) -> int:
    """The column of a kind."""
    return next(at for at in range(SORTED.size) if hash_of_kind(label) in SORTED.terms_of(at))


def test_a_kind_is_a_column_for_queries_that_share_no_word() -> None:
    plain = QueryWords.fitted(QUERIES)
    assert SORTED.size == plain.size + 2 and SORTED.of_kinds.sum() == 2 and not plain.of_kinds.any()
    assert SORTED.all(QUERIES)[:, kind("freight")].tolist()[:11] == [1.0] * 6 + [0.0] * 5
    assert {kind("freight"), kind("payroll")} == {0, 1}  # before all words, of which only so many are kept
    assert SORTED.share[kind("freight")] == 0.5


@pytest.mark.parametrize("query", ["cargo tomorrow", QUERIES[-1]])
def test_a_query_without_a_label_counts_by_the_share_of_each_kind(query: str) -> None:
    assert SORTED.of(query)[[kind("freight"), kind("payroll")]] == pytest.approx([6 / 12, 5 / 12])
    assert not SORTED.alike([query]).any() and not SORTED.words_in([query])[:, SORTED.of_kinds].any()


def test_words_and_kinds_are_stored_to_the_bit() -> None:
    again = QueryWords.from_state_dict(unpack(pack(SORTED.state_dict())))
    assert np.array_equal(again.all(QUERIES), SORTED.all(QUERIES))
    assert set(QueryWords.fitted(QUERIES).state_dict()) == {"terms", "feature", "share"}


def test_the_kind_of_the_query_that_taught_a_lesson_has_a_prior_of_its_own() -> None:
    nothing, alike = np.zeros((2, SORTED.size)), SORTED.alike([QUERIES[0], "unknown"])
    prior = prior_of(nothing, nothing, alike)
    assert prior.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert prior[0, 1 + kind("freight")] == pytest.approx(ALIKE + (1 - ALIKE) * (1 - EVERYWHERE) / SORTED.size)
    assert prior[1] == pytest.approx(prior_of(nothing, nothing)[1])


def test_rollouts_are_read_again_once_kinds_are_known() -> None:
    plain, evidence = QueryWords.fitted(QUERIES), RolloutEvidence()
    evidence.grow(1)
    names = [hash_of(query) for query in QUERIES]
    z = np.tile([[True], [False]], (12, 1))
    evidence.learn(z, np.arange(24.0), np.repeat(np.arange(12), 2), plain.all(QUERIES), names)
    found = evidence.translated(plain, SORTED)
    assert np.array_equal(found.features[found.query[::2]], SORTED.all(QUERIES))
    back = found.translated(SORTED, plain)
    assert np.array_equal(back.features[back.query[::2]], plain.all(QUERIES))


def test_different_words_of_one_thing_are_joined_by_their_kind() -> None:
    """A lesson helps with freight, which queries call by two words. Sorted, its effect is found where it holds."""
    rng = np.random.default_rng(3)
    task = QUERIES[0]
    library = Library((Lesson("a", "When it is such a case, look.", task=task), Lesson("b", "When idle, wait.")))
    groups = [TrajectoryGroup(Scenario(at, query, {}), 0) for at, query in enumerate(QUERIES)]
    z = rng.random((12 * 20, 2)) < 0.5
    group = np.repeat(np.arange(12), 20)
    reward = 0.3 + 0.4 * z[:, 0] * (group < 6) + 0.3 * rng.standard_normal(len(z))
    effects = {}
    for words in (QueryWords.fitted(QUERIES), SORTED):
        policy = ContextPolicy.fresh(library, {}, words=words)
        policy.learn(z, reward, group, groups)
        effects[words.of_kinds.sum()] = policy.by_query().at(words.all(QUERIES))[0][:, 0]
    assert effects[2][:6].mean() > 0.25 and abs(effects[2][6:11]).max() < 0.1
    assert effects[0][:6].mean() < 0.9 * effects[2][:6].mean()
