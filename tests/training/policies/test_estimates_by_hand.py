"""Estimates, choices and stored states of policies, by numbers that can be checked by hand."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from experiences.rollouts.own_weights import Weights
from training.algorithm.relevance import QueryEffects
from training.policies.archive import MOST_UNPACKED, CorruptState, pack, unpack
from training.policies.effects import Effects
from training.policies.evidence import RolloutEvidence
from training.policies.inclusion import logit_of, probabilities
from training.policies.query_rule import Choice, QueryRule
from training.policies.query_vectors import QueryVectors
from training.policies.query_words import QueryWords, hashes_of
from training.policies.weights import WeightsPolicy, weights_from


@pytest.mark.parametrize(("square", "free", "error"), [(0.0, 0.0, 1 / 8), (5.0, 1.0, 4.25 / 8), (5.0, 11.0, 0.425 / 8)])
def test_an_effect_is_shrunk_by_a_prior_of_four_rollouts(square: float, free: float, error: float) -> None:
    """beta = 2 / (4 + 4); the residual is 5 - 2 * .25 * 2 + .25^2 * 4; without rollouts the variance is 1."""
    estimate = Effects(np.array([[4.0]]), np.array([2.0]), np.array([8.0]), square, free).estimate()
    assert estimate.beta.tolist() == [0.25] and estimate.information.tolist() == [4.0]
    assert estimate.error[0] ** 2 == pytest.approx(error)
    assert Effects().estimate().beta.shape == Effects().estimate().error.shape == (0,)


def test_half_of_the_rollouts_count_for_half() -> None:
    whole = Effects(np.array([[4.0]]), np.array([2.0]), np.array([8.0]), 5.0, 11.0)
    half = whole.weighed(0.5)
    assert (half.gram[0, 0], half.moment[0], half.rollouts[0], half.square, half.free) == (2.0, 1.0, 4.0, 2.5, 5.5)


def test_evidence_keeps_the_latest_three_thousand_rollouts_by_whole_groups() -> None:
    evidence = RolloutEvidence()
    evidence.grow(1)
    for _ in range(6):
        group = np.repeat(np.arange(60), 10)
        evidence.learn(np.ones((600, 1), dtype=np.bool_), np.zeros(600), group, np.ones((60, 2)), [7] * 60)
    assert len(evidence.reward) == 2_990 and evidence.group[0] == 61 and evidence.group[-1] == 359
    few = RolloutEvidence()
    few.grow(1)
    for _ in range(5):
        few.learn(np.ones((600, 1), dtype=np.bool_), np.zeros(600), np.repeat(np.arange(60), 10), np.eye(60), range(60))
    assert len(few.reward) == 3_000 and (few.group[0], few.group[-1]) == (0, 299)
    again = RolloutEvidence.from_state_dict(few.state_dict())
    assert np.array_equal(again.group, few.group) and again.features.shape == (60, 60)
    assert np.array_equal(again.query, few.query) and few.query[-1] == 59 and evidence.query.max() == 0


def test_probabilities_beyond_the_floors_are_drawn_to_them() -> None:
    ends = logit_of(np.array([0.0, 0.05, 0.5, 0.95, 1.0]), 0.05)
    assert ends == pytest.approx([-13.8155, -13.8155, 0.0, 13.8155, 13.8155], abs=1e-4)
    assert probabilities(ends, 0.05) == pytest.approx([0.05, 0.05, 0.5, 0.95, 0.95], abs=1e-5)


def rule(**changes: object) -> QueryRule:
    """Effects .3, .2 and .1 of lessons of 10, 5 and 5 tokens, and one that harms; the same for every query."""
    words = QueryWords.fitted(["rain here", "rain there", "snow here", "snow there"])
    none = np.zeros((4, words.size))
    mean = np.array([[0.3], [0.2], [0.1], [-0.1]])
    effects = QueryEffects(np.hstack([mean, none]), np.hstack([mean**2 + 0.01, none]), 0.0)
    return QueryRule(words, ("a", "b", "c", "d"), (10, 5, 5, 5), effects, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, "abc"),
        ({"most_tokens": 20}, "abc"),
        ({"most_tokens": 19}, "ab"),
        ({"most_tokens": 10}, "bc"),
        ({"most_tokens": 9}, "b"),
        ({"slots": 2}, "ab"),
        ({"slots": 1}, "b"),
        ({"slots": 0}, ""),
        ({"slots": 1, "free": frozenset("b")}, "ab"),
        ({"slots": 0, "free": frozenset("c")}, "c"),
        ({"confidence": 0.8}, "abc"),
        ({"confidence": 0.9}, "ab"),
        ({"confidence": 0.99}, "a"),
    ],
)
def test_a_query_gets_the_lessons_that_help_most_by_token_where_room_is_short(
    changes: dict[str, object], chosen: str
) -> None:
    """An effect has the standard error .1, so that confidence .9 asks for more than .128."""
    made = rule(**changes)
    assert "".join(made.lessons_for("any")) == chosen
    assert made.as_stored().lessons_for("any") == made.lessons_for("any")
    assert Choice(("a", "d", "x"), made).handles_for("any") == tuple("a" for _ in range("a" in chosen)) + ("x",)
    assert Choice(("a", "d")).handles_for("any") == ("a", "d")


def test_a_rule_of_an_earlier_release_is_served_as_it_was_proven() -> None:
    """Its features are directions of weighted terms, and what it knows of effects are covariances."""
    terms = np.array(sorted(hashes_of("rain snow")))
    rain = int(np.searchsorted(terms, next(iter(hashes_of("rain")))))
    directions = np.zeros((2, 1))
    directions[:, 0] = np.where(np.arange(2) == rain, 1.0, -1.0)
    stored = {
        "vectors.terms": terms, "vectors.rarity": np.ones(2), "vectors.directions": directions,
        "handles": ["a", "b"], "tokens": [5, 5], "mean": [[0.1, 0.2], [0.1, -0.2]],
        "covariance": [np.diag([0.01, 0.0]).tolist(), np.diag([0.01, 0.03]).tolist()],
        "local": 0.9, "confidence": 0.8, "slots": None, "most_tokens": 100, "free": [],
    }  # fmt: skip
    for made in (QueryRule.from_state_dict(stored), QueryRule.from_state_dict(stored).as_stored()):
        assert isinstance(made.features, QueryVectors)
        assert made.lessons_for("Rain, rain!") == ("a",) and made.lessons_for("Let it snow") == ("b",)
        assert made.lessons_for("Fog") == ("a", "b") and not made.features.of("Fog").any()
        mean, sd = made.effects.at(made.features.all(["Rain"]))
        assert mean == pytest.approx(np.array([[0.3, -0.1]])) and sd == pytest.approx(np.array([[0.1, 0.2]]))
        assert made.without(["b"]).lessons_for("Rain") == ("a",)
    nothing = QueryVectors()
    assert nothing.of("Rain").shape == (0,) and nothing.all([]).shape == (0, 0)


def test_weights_come_back_under_their_name() -> None:
    policy = WeightsPolicy(weights_from(b"new"), weights_from(b"old"), "7")
    stored = unpack(pack(policy.state_dict()))
    assert set(stored) == {"kind", "version", "weights", "reference"} and stored["kind"] == "weights"
    assert WeightsPolicy.from_state_dict(stored) == policy
    assert weights_from(b"") == Weights() and weights_from(b"new").state == b"new"
    policy.make_reference()
    policy.updated("8")
    assert (policy.reference, policy.version) == (policy.weights, "8")
    fresh = WeightsPolicy()
    assert WeightsPolicy.from_state_dict(fresh.state_dict()) == fresh and fresh.version == "0"


def with_array(data: bytes) -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr("scalars.json", "{}")
        archive.writestr("a.npy", data)
    return stored.getvalue()


def test_arrays_of_both_formats_are_read_and_of_no_other() -> None:
    assert MOST_UNPACKED == 2**30
    for version, reads in (((1, 0), True), ((2, 0), True), ((3, 0), False)):
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.arange(3), version=version)
        if reads:
            assert unpack(with_array(stream.getvalue()))["a"].tolist() == [0, 1, 2]
        else:
            with pytest.raises(CorruptState, match="an array of format"):
                unpack(with_array(stream.getvalue()))
