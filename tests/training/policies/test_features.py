"""Text features: what counts as a token, what is dropped, what the question still says at which point."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from experiences.rollouts.types import Observation
from training.policies.features import STATUSES, FeatureOptions, TextEncoder, is_expression, own_history, tokenize

QUERIES = ["Find the GCD of 12 and 18", "Find the LCM of 3 and 5", "Sort the words: pear fig"]


def encoder(**options: object) -> TextEncoder:
    return TextEncoder.fitted(FeatureOptions(**({"min_df": 1} | options)), QUERIES)  # type: ignore[arg-type]


def at(query: str, last: str = "", *done: str) -> Observation:
    return Observation(query, last, done)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Sum 12 + 3.50 & 0xFF", ["sum", "<int>", "+", "<float>", "&", "<hex>"]),
        ("the GCD of A", ["the", "gcd", "<CAPS>", "of", "<char>"]),
        ("Ärger, naïve?", ["ärger", ",", "naïve", "?"]),
        ("\\frac{3}{4}", ["\\", "frac", "{", "<int>", "}", "{", "<int>", "}"]),
        ("", []),
    ],
)
def test_numbers_become_their_kind_and_words_lower_case(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


def test_raw_tokens_keep_their_values() -> None:
    assert tokenize("Sum 12 + 3.50", "raw") == ["sum", "12", "+", "3.50"]


@pytest.mark.parametrize("text", ["3*4 + 2", "13*4 + 2*6", "4439 + 1", "(26 & 255) << 2", "7 - 3", "(3 + 4) / 2"])
def test_expression_is_arithmetic_that_is_still_to_be_done(text: str) -> None:
    assert is_expression(text)


@pytest.mark.parametrize("text", ["42", "-5", "3/7", "10/28/2022", "2022-10-28", "Monday", "4.5", "a + b", ""])
def test_results_are_no_expressions(text: str) -> None:
    assert not is_expression(text)


def test_features_of_a_question_hold_for_other_numbers() -> None:
    one, other = (encoder().encode(at(f"Find the GCD of {a} and {b}")) for a, b in ((12, 18), (700, 9)))
    assert one.ids.tolist() == other.ids.tolist()
    assert one.values.tolist() == other.values.tolist()


def test_words_of_too_few_questions_are_dropped() -> None:
    rare, common = encoder(min_df=3), encoder(min_df=1)
    assert "pear" in common.vocabulary
    assert "pear" not in rare.vocabulary
    assert "the" in rare.vocabulary
    assert rare.encode(at("pear fig")).ids.tolist() == rare.encode(at("")).ids.tolist()


def test_the_question_weighs_as_much_at_any_length() -> None:
    result = encoder(bits=20).encode(at(QUERIES[0]))
    question = result.values[result.evidence > 0]
    assert np.abs(question) == pytest.approx(1 / math.sqrt(7))  # find the gcd <CAPS> of <int> and


def test_a_question_of_unknown_words_only_is_still_a_question() -> None:
    result = encoder().encode(at("wholly new"))
    assert result.evidence.sum() == 0.0
    assert len(result.ids) == 1  # the bias


def test_evidence_is_shared_by_rarity_and_nothing_else_carries_any() -> None:
    result = encoder(bits=20).encode(at(QUERIES[0], "", "gcd#err"))
    assert result.evidence.sum() == pytest.approx(1.0)
    assert (result.evidence >= 0).all()
    the = encoder(bits=20).encode(at("the"))
    gcd = encoder(bits=20).encode(at("gcd the"))
    assert the.evidence.sum() == pytest.approx(1.0)  # the only term: it has to carry all
    assert sorted(gcd.evidence[gcd.evidence > 0]) == [1.0]  # "the" is in every question and has no weight


def test_the_gate_moves_the_question_while_an_expression_waits_and_drops_the_question_once_a_result_is_there() -> None:
    start, waiting, done = (encoder().encode(at(QUERIES[0], last)) for last in ("", "3*4 + 2", "14"))
    names = set(start.ids[start.evidence > 0])
    assert not names & set(waiting.ids)
    assert waiting.evidence.sum() == pytest.approx(1.0)
    assert not names & set(done.ids)
    assert done.evidence.sum() == 0.0


def test_without_the_gate_the_question_always_counts() -> None:
    gateless = encoder(phase_gate=False)
    start, done = gateless.encode(at(QUERIES[0])), gateless.encode(at(QUERIES[0], "14"))
    assert set(start.ids) < set(done.ids)


def test_only_the_head_of_a_long_observation_counts() -> None:
    assert encoder().encode(at("q", "x" * 80)) is not None
    one, other = (encoder().encode(at("q", "word " * 16 + tail)) for tail in ("tail", "other"))
    assert one.ids.tolist() == other.ids.tolist()


def test_bigrams_separate_queries_that_words_alone_do_not() -> None:
    plain, pairs = encoder(min_df=1), TextEncoder.fitted(FeatureOptions(min_df=1, bigrams=True), ["a b c", "c b a"])
    assert len(pairs.vocabulary) > len(TextEncoder.fitted(FeatureOptions(min_df=1), ["a b c", "c b a"]).vocabulary)
    assert plain.options.bigrams is False


def test_colliding_features_add_up_and_stay_distinct_ids() -> None:
    result = encoder(bits=6).encode(at(QUERIES[0], "a b c d e f g", "x#ok", "y#ok"))
    assert len(set(result.ids.tolist())) == len(result.ids)
    assert result.ids.max() < 64


def test_a_process_with_another_hash_seed_finds_the_same_features() -> None:
    code = (
        "from training.policies.features import *; from experiences.rollouts.types import Observation;"
        f"e = TextEncoder.fitted(FeatureOptions(min_df=1), {QUERIES!r});"
        f"f = e.encode(Observation({QUERIES[0]!r}, '3*4', ('a#ok',)));"
        "print(f.ids.tolist(), f.values.tolist())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    result = encoder().encode(at(QUERIES[0], "3*4", "a#ok"))
    assert runs[0].strip() == f"{result.ids.tolist()} {result.values.tolist()}"


def test_encoder_caches_and_survives_a_full_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.policies.features._CACHE_LIMIT", 2)
    small = encoder()
    first = small.encode(at(QUERIES[0]))
    assert small.encode(at(QUERIES[0])) is first
    for i in range(5):
        small.encode(at(f"query {i}", str(i)))
    again = small.encode(at(QUERIES[0]))
    assert again.ids.tolist() == first.ids.tolist()
    assert again.values.tolist() == first.values.tolist()


def test_an_actions_own_history_is_read_from_its_tags() -> None:
    table = own_history(
        ("gcd#err", "gcd#ok", "verify#no", "lcm#strange", "unknown#ok"), {"lcm": 0, "gcd": 1, "verify": 2}
    )
    values = {(STATUSES[s], a) for s, a in zip(*np.nonzero(table), strict=True)}
    assert values == {("ok", 1), ("err", 1), ("no", 2), ("other", 0)}
