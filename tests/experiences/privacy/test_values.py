"""Nested values: every text in them is cleaned, what a key calls a secret is gone, and clean ones are not copied."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiences.privacy import is_clean, redact_value, values
from experiences.privacy.values import secret_kind


def test_cleaning_cleans_lists_tuples_dicts_and_their_keys() -> None:
    value = {"to": ["ann@example.com", ("8.8.8.8", 5)], "ben@example.com": {"note": "call +49 30 901820"}}
    assert redact_value(value) == {"to": ["[email]", ("[ip]", 5)], "[email]": {"note": "call [phone]"}}


def test_cleaning_does_not_change_its_input() -> None:
    inner = ["ann@example.com"]
    value = {"a": inner}
    assert redact_value(value) is not value
    assert value == {"a": ["ann@example.com"]} and value["a"] is inner


@pytest.mark.parametrize(
    "value",
    ["plain", 4111111111111111, 3.5, None, True, [], {}, (), ["a", {"b": (1, "two")}], {"tokens": 12, "max_tokens": 5}],
)
def test_cleaning_returns_the_same_object_where_nothing_changed(value: Any) -> None:
    assert redact_value(value) is value


def test_cleaning_shares_the_parts_that_did_not_change() -> None:
    kept = {"observation": "12", "done": ["gcd#ok"]}
    cleaned = redact_value([kept, "ann@example.com"])
    assert cleaned == [kept, "[email]"] and cleaned[0] is kept


@pytest.mark.parametrize(
    ("key", "clean"),
    [
        ("password", "[password]"),
        ("Password", "[password]"),
        ("db_password", "[password]"),
        ("passphrase", "[password]"),
        ("api_key", "[api key]"),
        ("X-Api-Key", "[api key]"),
        ("apiKey", "[api key]"),
        ("authorization", "[api key]"),
        ("token", "[api key]"),
        ("access_token", "[api key]"),
        ("client secret", "[api key]"),
        ("aws_secret_access_key", "[api key]"),
        ("Set-Cookie", "[api key]"),
    ],
)
def test_cleaning_takes_anything_behind_a_key_that_names_a_secret(key: str, clean: str) -> None:
    assert redact_value({key: "quiet"}) == {key: clean}
    assert redact_value({key: 123456}) == {key: clean}
    assert redact_value({key: {"value": ["quiet", 7, None, True]}}) == {key: {"value": [clean, clean, None, True]}}


@pytest.mark.parametrize(
    "key", ["tokens", "max_tokens", "key", "keyboard", "secretary", "author", "name", "token_count"]
)
def test_cleaning_leaves_keys_that_only_sound_like_personal_data(key: str) -> None:
    value = {key: "quiet", "n": 12}
    assert redact_value(value) is value


def test_cleaning_leaves_an_empty_secret_and_one_that_is_gone_already() -> None:
    value = {"password": "", "token": None, "api_key": "[api key]", "secret": False}
    assert redact_value(value) is value


def test_cleaning_loses_no_value_where_two_keys_become_one() -> None:
    value = {"ann@example.com": 1, "ben@example.com": 2, "cy@example.com": 3, "plain": 4}
    assert redact_value(value) == {"[email]": 1, "[email] (2)": 2, "[email] (3)": 3, "plain": 4}


def test_cleaning_keeps_the_type_of_a_named_tuple() -> None:
    pair = namedtuple("pair", "name mail")
    assert redact_value(pair("Ann", "ann@example.com")) == pair("Ann", "[email]")


def test_cleaning_leaves_out_what_is_nested_too_deep_to_read() -> None:
    value: Any = "ann@example.com"
    for _ in range(5_000):
        value = [value]
    cleaned = redact_value(value)
    assert "example" not in repr(cleaned)
    assert "left out: nested too deep" in repr(cleaned)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
LEAKY = st.sampled_from(["ann@example.com", "password", "token", "+49 30 901820", "api_key=9f8e7d6c5b4a"])
LEAKY_JSON = st.recursive(
    LEAKY | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(LEAKY, inner, max_size=4),
    max_leaves=20,
)


@given(JSON | LEAKY_JSON)
def test_cleaning_finds_nothing_more_the_second_time(value: Any) -> None:
    once = redact_value(value)
    assert redact_value(once) is once


@given(LEAKY_JSON)
def test_cleaning_leaves_no_address_in_any_shape(value: Any) -> None:
    assert "example.com" not in repr(redact_value(value)) and "901820" not in repr(redact_value(value))


PASSWORD_KEYS = "password passwd pwd passphrase passcode user_password dbPassword my_passwd key-passphrase"
SECRET_KEYS = (
    "apikey x_api_key authorization Proxy-Authorization token secret credentials private_key secret_key signing_key"
    " encryption_key cookie set-cookie my_api_key access_key aws_secret_key ssh_private_key auth_token access_token"
    " refresh_token id_token session_token bearer_token api_token client_secret app_secret"
)
PLAIN_KEYS = (
    "passwords pwd2 my_pwd user_passcode my_token tokens my_cookie author credential signing encryption_keys"
    " my_signing_key set_cookies private_keys"
)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        *((key, "password") for key in PASSWORD_KEYS.split()),
        *((key, "api key") for key in SECRET_KEYS.split()),
        *((key, "") for key in PLAIN_KEYS.split()),
        ("client secret", "api key"),
        ("x" * 56 + "password", "password"),
        ("x" * 57 + "password", ""),
    ],
)
def test_a_key_names_a_secret_by_its_words(key: str, kind: str) -> None:
    assert secret_kind(key) == kind
    assert is_clean({key: "quiet"}) is not bool(kind)


def nested(value: Any, levels: int, kind: type = list) -> Any:
    for _ in range(levels):
        value = {"a": value} if kind is dict else kind([value])
    return value


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_two_hundred_levels_are_read_and_no_more(kind: type) -> None:
    for levels in (199, 200):
        assert redact_value(nested("ann@example.com", levels, kind)) == nested("[email]", levels, kind)
        clean = nested("quiet", levels, kind)
        assert redact_value(clean) is clean and is_clean(clean)
    assert redact_value(nested("quiet", 201, kind)) == nested("[left out: nested too deep]", 200, kind)
    assert redact_value(nested(kind(), 200, kind)) == nested(kind(), 200, kind)
    assert not is_clean(nested("quiet", 201, kind))


def test_clean_values_are_those_in_which_nothing_is_replaced() -> None:
    for value in ("plain", 4.5, None, ["a", ("b", {"c": True})], {"d": [], 7: "e", None: "f"}):
        assert redact_value(value) is value and redact_value(value) is value
    for value in ("plain", 4.5, None, ["a", ("b", {"c": True})], {"d": []}):
        assert is_clean(value) and is_clean(value)
    for value in ("a@b.co", ["x", "a@b.co"], {"a@b.co": 1}, {"x": ("a@b.co",)}, {"x": 1, "token": 2}, object(), {7: 1}):
        assert not is_clean(value) and not is_clean(value)


def test_numbers_behind_a_key_that_names_a_secret_are_taken_and_flags_are_not() -> None:
    value = {"token": [1, 2.5, True, False, None, "", "[api key]", "x", (1,), {"id": 3}], "id": 4}
    assert redact_value(value) == {
        "token": ["[api key]", "[api key]", True, False, None, "", "[api key]", "[api key]", ("[api key]",),
                  {"id": "[api key]"}], "id": 4,
    }  # fmt: skip
    assert redact_value({"password": {"secret": 1}}) == {"password": {"secret": "[password]"}}


def test_keys_that_become_one_are_numbered_past_those_that_are_there() -> None:
    value = {"a@b.co": 1, "[email] (2)": 2, "c@d.co": 3, "e@f.co": 4, 7: "g@h.co"}
    assert redact_value(value) == {"[email]": 1, "[email] (2)": 2, "[email] (3)": 3, "[email] (4)": 4, 7: "[email]"}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clean: set[str] = set()
    keys: set[str] = set()
    for name, value in (("_clean", clean), ("_plain_keys", keys), ("_REMEMBERED", 3)):
        monkeypatch.setattr(values, name, value)
    for text in ("a", "b", "a@b.co", "c", "x" * 200, "y" * 201):
        redact_value({text: text})
    assert clean == keys == {"x" * 200}
    redact_value(["z"])
    assert clean == {"x" * 200, "z"}
