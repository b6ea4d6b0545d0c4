"""Recall of personal data on labelled texts; and hostile texts cost no more than their length."""

from __future__ import annotations

import time

import pytest

from experiences.privacy import KINDS, find, redact
from tests.support.privacy_corpus import SETS, corpus, scores


@pytest.mark.parametrize("templates", SETS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_redaction_finds_nearly_all_and_little_else(templates: str, seed: int) -> None:
    measured = scores(corpus(1000, seed, templates))
    for kind in (*KINDS, "all"):
        assert measured[kind].labelled >= 20
        assert measured[kind].recall >= 0.98, (kind, measured[kind])
        assert measured[kind].precision >= 0.95, (kind, measured[kind])


@pytest.mark.parametrize("templates", SETS)
def test_redaction_leaves_almost_no_sign_of_the_removed_values(templates: str) -> None:
    """Overlap is not enough: half a number is a leak too."""
    texts = corpus(1000, 4, templates)
    labelled = whole = 0
    for one in texts:
        result = find(one.text)
        for span in one.spans:
            labelled += 1
            whole += any(other.start <= span.start and span.end <= other.end for other in result)
    assert whole / labelled >= 0.98


def test_redaction_finds_nothing_in_cleaned_texts() -> None:
    for one in corpus(500, 5):
        clean = redact(one.text)
        assert redact(clean) is clean


def test_redaction_returns_the_very_text_where_nothing_is_labelled_or_found() -> None:
    untouched = [one for one in corpus(500, 6) if not one.spans]
    assert len(untouched) > 50
    assert sum(redact(one.text) is one.text for one in untouched) / len(untouched) >= 0.95


HOSTILE = [
    "a",
    "@",
    "a@",
    "a@a.",
    "a.",
    "1",
    "1 ",
    "1-",
    "1.",
    "+1",
    "+1 ",
    "(1",
    "4111 ",
    "00",
    "0049 ",
    "::",
    "f:",
    "eyJ",
    "eyJ.",
    "eyJhbGciOiJIUzI1NiJ9.",
    "sk-",
    "sk-a1",
    "password=",
    'password="',
    "password ",
    "secret: ",
    "token ",
    "bearer ",
    "authorization: ",
    "authorization: basic ",
    "-----BEGIN PRIVATE KEY-----",
    "://a:",
    "http://a:b@",
    "DE89",
    "DE12 ",
    "ssn ",
    "tel: 1",
    "call at ",
    "(at)",
    "a (at) ",
    " dot ",
    "a at b dot ",
    "%40",
    '%40"',
    "xoxb-",
    "AIza",
    "\\",
    "\\n",
    '"',
    "111-11-",
    "111-111-",
    "api_key",
    "\uff11",
    "=3D@",
    "client_secret_key_",
    "1.2.3.4 Further reading\n",
    "a@a.AKIA",
]
OPENING = "password token phone ssn key pass a@b.co 00 00 :// "  # so that the gates let it in


def effort(text: str) -> float:
    """Seconds of processor time, the least of three."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        redact(text)
        spent.append(time.process_time() - began)
    return min(spent)


@pytest.mark.parametrize("piece", HOSTILE)
def test_redaction_takes_work_in_proportion_to_the_length(piece: str) -> None:
    """Four times the text: linear work is four times as much, quadratic work sixteen times."""
    copies = 4_000 // len(piece) + 1
    short, long = OPENING + piece * copies, OPENING + piece * (4 * copies)
    assert effort(long) <= 9 * effort(short) + 0.01
