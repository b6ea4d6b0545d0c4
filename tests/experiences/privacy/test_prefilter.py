"""The gates that a text passes: those of what it could hold, so that most detectors need not look at most texts."""

from __future__ import annotations

import pytest

from experiences.privacy import prefilter
from experiences.privacy.normalisation import folded, read
from experiences.privacy.prefilter import signals
from experiences.privacy.redaction import _DETECTORS
from tests.support.privacy_examples import GOES, STAYS

ALL = (
    "EMAIL", "SPELT_EMAIL", "URL", "PLUS_PHONE", "ZEROS_PHONE", "AMERICAN_PHONE", "ANNOUNCED_PHONE", "SSN", "CARD",
    "IBAN", "IPV4", "IPV6", "KEY", "PEM", "ASSIGNED", "PASSWORD",
)  # fmt: skip
GATES = {
    "": [
        "Ann is 34 years old.",
        "x = a_b - c_d",
        "AAA BBB",
        "AAaaaaaaaaaaaaaaaaaaaaaa",
        "- aaaaaaaaaa.aaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaa1",
        "the token 1",
        "the secret",
        "assword",
        "contrase=1",
        "cr: x",
        "bearer x: y",
        "ke: x",
        "a:b",
        "1:2:3:4:5:6:7",
        "a: b: c: d: e: f: g: h",
        "a at b",
        "http://c",
        "a%41b",
        "40 % of %41",
        "a&#65;b",
        "----BEGIN PRIVATE KEY----",
        "-----BEGIN PUBLIC KEY-----",
        "PRIVATE KEY",
        "a dot b",
        "(a) at b",
        "(dot)",
        "f()",
        "()",
        "a)",
        "(  )",
        "00 00",
        "000 000",
        "0000000",
        "1234567",
        "123456",
        "12-3",
        "112-3",
        "12/3456",
        "1/2345",
        "12/345",
        "1.2345",
        "1.2.3",
        "1.23.4",
        "1.23456.7",
        "+a",
        "+ 1",
        "aa11",
        "Aa11 22 33",
        "aa1 22 33",
        "123.4567",
        "123/4567",
        "12 345 67",
        "(123)  4567890",
        "(a)4567890",
        "(123)456789",
        "123.45.6789",
        "123456789012",
        "12345-67",
        "12-3456.7",
        "0049 3 45",
        "0.0049 3 45",
        "000 3 45 6",
        "1100 22 33",
        "ssn 12345678",
        "person 123456789",
        "hotel-11 22",
        "ph 11 22",
        "reach 11 22",
        "tél",
        "né 11 22",
        "call 1",
        "deadbeef-12 34 56",
        "a1b2c3d4e5f6a7b8c9d0",
        "é: é",
        "用户 11 22",
        "a1b2c3d 44-55 66",
        "token 11 22",
        "ééééééééééééééééééééé_",
        "(a) b [c] {d} <e>",
        "fe80 1:2",
    ],
    "AMERICAN_PHONE": [
        "000 0000",
        "123-4567",
        "123 4567",
        "(123)4567890",
        "(123) 4567890",
        "(123)-4567890",
        "(12) 3456789 0",
        "123 45678",
    ],
    "ANNOUNCED_PHONE": [
        "phone 11 22",
        "fax 11 22",
        "mob 11 22",
        "call 11 22",
        "cell 11 22",
        "celular 11 22",
        "tel. 11 22",
        "tel: 11 22",
        "tel 11 22",
        '"tel" 11 22',
        "tele 11 22",
        "fon 11 22",
        "handy 11 22",
        "whatsapp 11 22",
        "ph: 11 22",
        "ph. 11 22",
        "rufnummer 11 22",
        "reach me 11 22",
        "tél 11 22",
        "móvil 11 22",
        "Phone 11 22",
    ],
    "ASSIGNED": [
        "key: 1",
        "token: 1",
        "token=1",
        "monkey/secret",
        "/the secret",
        "author: x",
        "secret: x",
        "credentials: x",
        "KEY=1",
    ],
    "CARD": ["1.2345.6", "1234567890123", "1234 567", "1234-567", "1.2345.6 7"],
    "EMAIL": ["a@b", "a%40b", "a&#64;b", "\ud800 a@b"],
    "EMAIL SPELT_EMAIL": ["a (@) b", "a [@] b"],
    "EMAIL URL": ["a@b http://c"],
    "IBAN": ["AA11", "AA11 22 33", "aa11 22 33"],
    "IBAN PASSWORD": ["PASS: aa12 33 44"],
    "IPV4": ["1.2.3.4", "1.2.3.4.5", "a1.2.3.4", "12.34.56.78", "1234.5.6.7"],
    "IPV6": ["a::b", "1:2:3:4:5:6:7:8", "fe80:1::2", "f:g:h:i:j:k:l:m", "99::AA"],
    "KEY": [
        "aaaaaaaaaaaaaaaaaaa-",
        "aaaaaaaaaaaaaaaaaaaa-",
        "aaaaaaaaaaaaaaaaaaaa_",
        "AAAaaaaaaaaaaaaaaaaaaaaaa",
        "the bearer_of_aaaaaaaaaaaaaaaaaaaa",
        "AAA-aaaaaaaaaaaaaaaaaaa",
        "x;y aaaaaaaaaaaaaaaaaaaaa_",
        "AAA aaaaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaa-[",
    ],
    "KEY ASSIGNED": ["bearer aaaaaaaaaa-aaaaaaaaaa"],
    "PASSWORD": ["the password", "pass: 1", "pwd: 1", "senha: 1", "senhá: senha", "contraseña: 1", "PASSWORD: 1"],
    "PEM": ["-----BEGIN PRIVATE KEY-----"],
    "PLUS_PHONE": ["+1", "+(1"],
    "SPELT_EMAIL": [
        "a at b dot c",
        "look at the polka dot dress",
        "a (at) b",
        "a [at] b",
        "a {at} b",
        "a <at> b",
        "a (at ) b",
        "a [at ] b",
        "a ( at ) b",
        "f(at)",
        "(AT)",
        "f() at)",
        "(  ) at]",
        "( ) at}",
    ],
    "SSN": ["123-45-6789", "123 45 6789", "ssn 123456789", "social 123456789"],
    "ZEROS_PHONE": ["00 49 3 45", "00-49 34-5"],
}


def passed(text: str) -> str:
    return " ".join(name for name in ALL if signals(text) & getattr(prefilter, name))


@pytest.mark.parametrize(("gates", "text"), [(gates, text) for gates, texts in GATES.items() for text in texts])
def test_a_text_passes_the_gates_of_its_possible_values_and_no_other(gates: str, text: str) -> None:
    assert passed(text) == gates


def test_each_gate_has_a_bit_of_its_own() -> None:
    assert [getattr(prefilter, name) for name in ALL] == [1 << at for at in range(16)]
    assert {gate for gate, _ in _DETECTORS} == {1 << at for at in range(16)}


@pytest.mark.parametrize("text", [value for values in (*GOES.values(), *STAYS.values()) for value in values])
@pytest.mark.parametrize("around", ["{}", "see {}, please", "({})", "x: {}.", "{} password=hunter2"])
def test_no_gate_is_closed_to_a_value_that_its_detector_finds(text: str, around: str) -> None:
    plain = folded(around.format(text))
    reading, gates = read(plain), signals(plain)
    for gate, detect in _DETECTORS:
        assert gates & gate or not list(detect(reading)), detect
