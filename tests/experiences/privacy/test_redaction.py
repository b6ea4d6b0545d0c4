"""Redaction, kind by kind: people's data and secrets never reach the store, tasks stay as they are."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiences.privacy import KINDS, redact, redact_value, redact_with_counts
from experiences.rollouts.environments import environments
from experiences.rollouts.environments.reasoning_gym import FAMILIES
from tests.support import privacy_values as made
from tests.support.privacy_examples import GOES, STAYS

JWT = made.jwt(Random(7))


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in GOES.items() for value in values])
@pytest.mark.parametrize("around", ["{}", "see {}, please", "({})", '{{"a": "{}"}}', "a\t{}\nb", "x: {}."])
def test_redaction_replaces_a_value_by_its_kind_and_leaves_the_rest(kind: str, value: str, around: str) -> None:
    assert redact(around.format(value)) == around.format(f"[{kind}]")


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in STAYS.items() for value in values])
@pytest.mark.parametrize("around", ["{}", "see {}, please"])
def test_redaction_leaves_text_that_only_resembles_a_kind(kind: str, value: str, around: str) -> None:
    text = around.format(value)
    assert redact(text) is text


def test_redaction_takes_a_bare_number_of_a_rare_length_only_behind_a_word_that_says_card() -> None:
    assert redact("my old Visa 4222222222222") == "my old Visa [card]"
    assert redact("default_rng(4222222222222)") == "default_rng(4222222222222)"


@pytest.mark.parametrize("name", ["AWS secret", "secret key", "Secret Access Key:", "aws_secret_access_key ="])
def test_redaction_takes_a_secret_with_slashes_that_no_path_has(name: str) -> None:
    assert redact(f"{name} wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY") == f"{name} [api key]"
    for path in ("a/Path/with/so/many/parts/To/number/12345", "Library/Caches/Thing1/deep"):
        text = f"its secret {path} is no secret"
        assert redact(text) is text


def test_redaction_takes_a_private_key_whose_end_was_cut_off() -> None:
    assert redact('key: -----BEGIN PRIVATE KEY-----\\nMIIEow/+IBAAKC==\\nAb9"}') == 'key: [api key]"}'


def test_redaction_leaves_the_number_of_a_heading() -> None:
    text = "1 Scope\n2.3.1.4 Further reading\n"
    assert redact(text) is text


def test_redaction_leaves_no_card_number_of_any_issuer() -> None:
    rng = Random(1)
    for _ in range(200):
        number = made.card(rng)
        assert redact(f"paid with {number} today") == "paid with [card] today"


def test_redaction_leaves_no_account_of_any_country() -> None:
    rng = Random(2)
    for _ in range(200):
        assert redact(f"to {made.iban(rng)} now") == "to [iban] now"


# -- secrets by what comes before them -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=hunter2", "password=[password]"),
        ("Password: hunter2 and more", "Password: [password] and more"),
        ('{"passwd": "s3 cr et"}', '{"passwd": "[password]"}'),
        ('{\\"password\\": \\"hunter2\\"}', '{\\"password\\": \\"[password]\\"}'),
        ("DB_PASSWORD=correct\nX=1", "DB_PASSWORD=[password]\nX=1"),
        ("?user=ann&password=hunter2&x=1", "?user=ann&password=[password]&x=1"),
        ("connect(password='hunter2', port=1)", "connect(password='[password]', port=1)"),
        ("my password is hunter2", "my password is [password]"),
        ("Passwort: geheim7", "Passwort: [password]"),
        ("mysql --password hunter2 -h db", "mysql --password [password] -h db"),
        ("<password>hunter2</password>", "<password>[password]</password>"),
        ("password: “hunter2”", "password: “[password]”"),
        ("postgres://app:hunter2@db:5432/main", "postgres://app:[password]@db:5432/main"),
        ("redis://:hunter2@10.1.2.3:6379", "redis://:[password]@[ip]:6379"),
        ("https://ann:p@ss@example.org/x", "https://ann:[password]@example.org/x"),
        ("Authorization: Basic YW5uOmh1bnRlcjI=", "Authorization: Basic [password]"),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer [api key]"),
        ("-H 'X-Api-Key: 9f8e7d6c5b4a'", "-H 'X-Api-Key: [api key]'"),
        ('api_key = "9f8e7d6c5b4a"', 'api_key = "[api key]"'),
        ('"client_secret": "correct horse battery"', '"client_secret": "[api key]"'),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [api key]",
        ),
        ("?token=9f8e7d6c5b4a&page=2", "?token=[api key]&page=2"),
        (f"cookie {JWT};", "cookie [jwt];"),
        (f"Authorization: Bearer {JWT}", "Authorization: Bearer [jwt]"),
        ("Tel.: 030 1234567", "Tel.: [phone]"),
        ("call me at 555-1234", "call me at [phone]"),
        ("ph: 098765 43210", "ph: [phone]"),
        ("bot123456789:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0/send", "bot123456789:[api key]/send"),
        ('"mobile_number":"07700900123"', '"mobile_number":"[phone]"'),
        ("Rufnummer 030/90182-0", "Rufnummer [phone]"),
        ("SSN: 078051120", "SSN: [ssn]"),
    ],
)
def test_redaction_takes_the_value_and_leaves_its_name(text: str, clean: str) -> None:
    assert redact(text) == clean


def test_redaction_keeps_json_readable() -> None:
    record = {"note": "A\nann@example.com\t+49 30 901820\n10.0.0.7", "password": "hunter2"}
    assert json.loads(redact(json.dumps(record))) == {
        "note": "A\n[email]\t[phone]\n[ip]",
        "password": "[password]",
    }


# -- the whole -------------------------------------------------------------------------------------------------


def test_redaction_counts_by_kind() -> None:
    counts = redact_with_counts("ann@example.com, ben@example.com, 8.8.8.8")
    assert counts.text == "[email], [email], [ip]"
    assert counts.counts == {"email": 2, "ip": 1}
    assert redact_with_counts("nothing here").counts == {}


def test_redaction_keeps_no_part_of_a_removed_value() -> None:
    """Two people's data come out the same: no number, hash or length distinguishes them."""
    assert redact("ann@example.com 4111111111111111") == redact("benedikt@example.org 5500005555555559")


def test_redaction_cuts_at_a_limit_without_leaving_half_an_address() -> None:
    text = "word " * 10 + "ann.lee@example.com " + "word " * 10
    for limit in range(5, len(text)):
        cut = redact(text, limit=limit)
        assert "ann" not in cut and "example" not in cut
        assert "characters left out]" in cut
    assert redact(text, limit=len(text)) == redact(text)


def test_redaction_cuts_a_long_word_whole() -> None:
    assert redact("x" * 100, limit=10) == " [100 characters left out]"


SIGNS = ["password=", "token: ", "://a:", "@", ".", "-", " ", "[email]", "[password]", "+", "\n", '"', "\\", "1", "a"]
EXAMPLES = [value for values in (*GOES.values(), *STAYS.values()) for value in values]
PIECES = st.sampled_from([*EXAMPLES, *SIGNS, "é", "\ud800"])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_redaction_finds_nothing_more_the_second_time(text: str) -> None:
    once = redact(text)
    assert redact(once) is once


@given(st.text(st.characters(codec=None), max_size=300))
def test_redaction_takes_any_text(text: str) -> None:
    assert isinstance(redact(text), str)


@given(st.text("ab1 -.@:+/(){}[]\"'=_\\%\n", max_size=200))
def test_redaction_takes_any_heap_of_signs(text: str) -> None:
    once = redact(text)
    assert redact(once) is once


# -- tasks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["train", "selection", "held_out", "harder_numbers", "unseen_wording"])
def test_redaction_changes_no_question_of_the_embedded_environment(line: str) -> None:
    environment: Any = environments.get("reasoning_gym")({"wording": "mixed"})
    scenarios = environment.scenarios(line, 320, seed=11)
    families = {one.metadata["family"] for one in scenarios}
    assert line == "harder_numbers" or families == set(FAMILIES)
    assert [one.query for one in scenarios if redact(one.query) is not one.query] == []
    assert [one.expected for one in scenarios if redact_value(dict(one.expected)) != one.expected] == []


@pytest.mark.parametrize(
    "text",
    [
        "Ann is 34 years old and Ben 29; together they are 63.",
        "2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47",
        "MCMXCIV, MMXXIV and XLII",
        "3.14159265358979323846264338327950288419716939937510",
        "12345678901234567890123456789",
        "1011010001110 0110 1111 0000",
        "2024-03-12 - 1999-05-12 = 9071 days; 12/05/1999",
        "(415 - 555) * 2671 + 4155552671",
        "4.4439 + 123.4567 - 415.55",
    ],
)
def test_redaction_changes_no_puzzle(text: str) -> None:
    assert redact(text) is text


def test_every_kind_has_its_examples() -> None:
    assert {*GOES, "jwt", "password"} == set(KINDS) == {*STAYS}
