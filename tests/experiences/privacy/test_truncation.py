"""A text that is cut short leaves no half of anything: what a cut spoils, redaction would no longer find."""

from __future__ import annotations

import json
import random
from base64 import b64encode

import pytest

from experiences.learning.lessons.attempts import STEP_CHARACTERS, attempt_text
from experiences.privacy import cut_short, find, redact
from experiences.rollouts.environments.scorers import MAX_MATCHED, contains
from experiences.rollouts.rewards.ground_truth import MAX_KEPT, ground_truth
from experiences.rollouts.tools.base import ToolResult
from experiences.rollouts.tools.toolset import Toolset
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from tests.support.pace import millions
from tests.support.privacy_corpus import corpus

CARD, MAIL, PHONE = "4111 1111 1111 1111", "jane.doe@example-mail.org", "+1 415 555 2671"
SECRETS = (f"card {CARD}", f"mail {MAIL}", f"phone {PHONE}", "my password is hunter2-Xy9z")
PARTS = ("4111", "1111 1", "jane.d", "555 2", "415", "hunter", "Xy9")


def around(secret: str, limit: int) -> list[str]:
    """The secret at every place that the limit can cut it at."""
    return [
        "x " * ((limit - shift) // 2) + "y" * (shift % 2) + f" {secret} and so on" for shift in range(len(secret) + 4)
    ]


def halves(text: str) -> list[str]:
    return [part for part in PARTS if part in text]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_place_of_the_cut_leaves_personal_data(secret: str) -> None:
    for text in around(secret, 600):
        assert not halves(redact(cut_short(text, 600))), text
        assert len(cut_short(text, 600)) <= 600


def test_the_rest_of_a_text_stays() -> None:
    text = "word " * 1000
    assert cut_short(text, 600) == text[:599]
    assert cut_short("short", 600) == "short"
    assert cut_short("x" * 5000, 600) == "x" * 600  # one word without an end: there is nothing in it
    assert cut_short('{"a":"' + "y" * 900 + '"}', 600)[:8] == '{"a":"yy'


def test_a_long_token_is_left_out_as_a_whole() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJqYW5lIn0" * 200 + ".c2lnbmF0dXJl"
    assert "eyJ" not in cut_short(f"see {token} there", 600)
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBg\n" * 100 + "-----END PRIVATE KEY-----"
    assert "MII" not in redact(cut_short(f"see {key} there", 600))


def test_of_labelled_texts_no_piece_of_a_value_is_left_at_any_cut() -> None:
    rng = random.Random(3)
    for one in corpus(300, seed=11):
        limit = rng.randrange(10, max(len(one.text), 11))
        kept = redact(cut_short(one.text, limit))
        for span in find(one.text):
            if span.start < limit < span.end and span.end - span.start < 200:
                piece = one.text[span.start : limit]
                assert len(piece) < 8 or piece not in kept, (piece, kept)


def test_truncation_is_quick_with_a_megabyte() -> None:
    assert millions(lambda: cut_short("4111 1111 " * 100_000, 2000)) < 8


def attempt(secret: str, *, error: str = "", said: str = "") -> Trajectory:
    step = Step({}, {"type": "tool", "tool": "mail", "text": said}, {"success": True, "output": said, "error": ""})
    return Trajectory(RolloutKey(1, 0, 0), secret, [step], error=error)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_learner_reads_no_half_of_anything_said_or_of_an_error(secret: str) -> None:
    for text in around(secret, STEP_CHARACTERS - 20):
        assert not halves(attempt_text(attempt("q", said=text))), text
    for text in around(secret, 200):
        assert not halves(attempt_text(attempt("q", error=f"runtime: {text}"))), text
    assert "it broke off" in attempt_text(attempt("q", error=f"runtime: {secret}"))


@pytest.mark.parametrize("secret", SECRETS)
def test_evidence_that_is_cut_holds_no_half(secret: str) -> None:
    for text in around(secret, MAX_KEPT):
        trajectory = attempt("q")
        trajectory.evidence = {"answer": text}
        assert not halves(redact(ground_truth({})(trajectory).evidence["answer"]))
    for text in around(secret, MAX_MATCHED)[::5]:
        evidence = contains({"answer": "four"}, False)(text).evidence
        assert not halves(redact(evidence["answer"]))


@pytest.mark.parametrize("secret", SECRETS)
def test_output_of_a_tool_is_cut_in_the_same_way(secret: str) -> None:
    toolset = Toolset(max_output=300)
    for text in around(secret, 300):
        shown = toolset._bounded(ToolResult(False, text, text))
        assert not halves(redact(shown.output)) and not halves(redact(shown.error))


def test_a_word_that_is_no_longer_than_any_secret_goes_as_a_whole_and_a_longer_one_is_cut() -> None:
    """A word of up to 512 characters may be a value; a longer one without a break is data."""
    for length, kept in ((512, "see"), (513, "see " + "x" * 96)):
        word = "x" * length
        for text in (f"see {word} there", f"see {word}"):
            assert cut_short(text, 100) == kept, (length, text[-6:])


def test_the_longest_token_is_left_out_wherever_the_cut_falls() -> None:
    header = b64encode(json.dumps({"alg": "HS256", "pad": "x" * 1470}).encode()).decode().rstrip("=")
    token = f"{header}.{'p' * 8000}.{'s' * 2000}"
    (whole,) = find(f"see {token} there")
    assert (whole.start, whole.end) == (4, 4 + len(token)) and len(header) > 1990
    for most in (12, 1000, 6000, len(token)):
        assert cut_short(f"see {token} there", most) == "see", most


def test_a_text_that_fits_stays_and_a_break_at_the_cut_keeps_the_last_word() -> None:
    assert cut_short("one two", 7) == "one two"
    assert cut_short("one two", 6) == "one"
    for sign in " \t\r\n\"'<>()[]{},;":
        assert cut_short(f"one{sign}two", 3) == "one"
        assert cut_short(f"one{sign}two", 5) == f"one{sign}".rstrip()


def test_an_address_that_ends_at_the_cut_is_complete_and_stays() -> None:
    text = f"mail {MAIL} and so on"
    assert cut_short(text, len(f"mail {MAIL}")) == f"mail {MAIL}"
