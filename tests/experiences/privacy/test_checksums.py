"""Numbers by their checks: issuers of cards, accounts by country, country codes of telephones, headers of tokens."""

from __future__ import annotations

import base64
import json
from itertools import product
from typing import Any

import pytest

from experiences.privacy.checksums import (
    COUNTRY_CODES,
    IBAN_LENGTHS,
    card_form,
    is_e164,
    is_iban,
    is_jwt_header,
    looks_random,
    luhn,
)
from experiences.privacy.kinds import KINDS, PLACEHOLDER, PLACEHOLDERS


def with_check_digit(prefix: str, size: int) -> str:
    body = (prefix + "1234567890" * 2)[: size - 1]
    return next(body + digit for digit in "0123456789" if luhn(body + digit))


@pytest.mark.parametrize(
    ("number", "valid"),
    # ISO/IEC 7812-1: 79927398713 is the example of the literature.
    [
        ("79927398713", True),
        ("79927398710", False),
        ("0", True),
        ("18", True),
        ("26", True),
        ("91", True),
        ("59", True),
    ],
)
def test_the_last_digit_of_a_card_checks_the_others(number: str, valid: bool) -> None:
    assert luhn(number) is valid


COMMON = {
    16: "4 51 55 2221 2720 6011 644 649 65 62 3528 3589 2200 2204 5018 5020 5038 5893 6304 6759 6763 60 81 82",
    15: "34 37", 14: "300 305 36 38 39", 17: "62", 18: "62", 19: "62",
}  # fmt: skip
RARE = {
    13: "4 5018 5038",
    16: "37",
    17: "3528 3589",
    18: "3528 3589 5018 5038 6304 6759 6763",
    19: "4 36 39 6011 644 659 3528 3589 5018 5038 5893 6304 6759 6763",
}
NONE = {
    16: "50 56 2220 2721 2205 3527 3590 5017 5021 5037 5039 5892 5894 6303 6305 6758 6764 61 63 643 80 83 1 9 306",
    15: "33 35 38 4 51", 14: "299 306 34 37 4 6011", 13: "5017 5039 51 6011", 17: "4 3527 3590 6011 6759",
    18: "4 5893 6303 6305 6758 6764 5017", 19: "51 34 35 2221 5017 5892 5894 643 660 40000000000000000000",
    12: "4", 20: "4 62", 11: "62",
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "prefix", "size"),
    [
        (form, prefix, size)
        for form, table in (("common", COMMON), ("rare", RARE), ("", NONE))
        for size, prefixes in table.items()
        for prefix in prefixes.split()
        if len(prefix) < size
    ],
)
def test_a_card_is_known_by_its_issuer_and_its_length(form: str, prefix: str, size: int) -> None:
    number = with_check_digit(prefix, size)
    assert card_form(number) == form
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert card_form(wrong) == ""


def test_a_row_of_one_digit_and_an_article_number_are_no_cards() -> None:
    assert luhn("0" * 16) and card_form("0" * 16) == ""
    assert luhn("4" * 16) is False and card_form("8" * 16) == ""
    old = [number for n in range(10) if luhn(number := f"40063813339{n}1") or luhn(number := f"40063813339{n}7")]
    assert old and {card_form(number) for number in old} == {"rare"}
    article = next(
        number
        for n, last in product(range(10_000), range(10))
        if luhn(number := f"40063813{n:04}{last}")
        and (sum(map(int, number[::2])) + 3 * sum(map(int, number[1::2]))) % 10 == 0
    )
    assert card_form(article) == ""


# ISO 13616: length of the account and an example of the registry.
ACCOUNTS = [
    "NO9386011117947", "BE68539007547034", "DK5000400440116243", "FI2112345600000785", "FO6264600001631634",
    "GL8964710001000206", "NL91ABNA0417164300", "MK07250120000058984", "SI56263300012039086", "AT611904300234573201",
    "BA391290079401028494", "EE382200221020145685", "KZ86125KZT5004100100", "LT121000011101001000",
    "LU280019400644750000", "XK051212012345678906", "CH9300762011623852957", "HR1210010051863000160",
    "LI21088100002324013AA", "LV80BANK0000435195001", "BG80BNBG96611020345678", "BH67BMAG00001299123456",
    "CR05015202001026284066", "DE89370400440532013000", "GB29NWBK60161331926819", "GE29NB0000000101904917",
    "IE29AIBK93115212345678", "ME25505000012345678951", "RS35260005601001611379", "VA59001123000012345678",
    "AE070331234567890123456", "GI75NWBK000000007099453", "IL620108000000099999999", "AD1200012030200359100100",
    "CZ6508000000192000145399", "ES9121000418450200051332", "MD24AG000225100013104168", "PK36SCBL0000001123456702",
    "RO49AAAA1B31007593840000", "SA0380000000608010167519", "SE4550000000058398257466", "SK3112000000198742637541",
    "TN5910006035183598478831", "VG96VPVG0000012345678901", "PT50000201231234567890154", "IS140159260076545510730339",
    "TR330006100519786457841326", "FR1420041010050500013M02606", "GR1601101250000000012300695",
    "IT60X0542811101000000123456", "MC5811222000010123456789030", "MR1300020001010000123456753",
    "SM86U0322509800000000270100", "AL47212110090000000235698741", "AZ21NABZ00000000137010001944",
    "BY13NBRB3600900000002Z00AB00", "CY17002001280000001200527600", "DO28BAGR00000001212453611324",
    "GT82TRAJ01020000001210029690", "HU42117730161111101800000000", "LB62099900000001001901229114",
    "PL61109010140000071219812874", "SV62CENR00000000000000700025", "BR1800360305000010009795493C1",
    "PS92PALS000000000400123456702", "QA58DOHB00001234567890ABCDEFG", "UA213223130000026007233566001",
    "JO94CBJO0010000000000131000302", "KW81CBKU0000000000001234560101", "MT84MALT011000012345MTLCAST001S",
    "SC18SSCB11010000000000001497USD", "LC55HEMM000100010012001200023015", "EG380019000500000000263180002",
]  # fmt: skip


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_has_its_countrys_length_and_a_check(account: str) -> None:
    assert is_iban(account) and IBAN_LENGTHS[account[:2]] == len(account)
    assert not is_iban(account[:-1]) and not is_iban(account + "0")
    swapped = account[:2] + account[3] + account[2] + account[4:]
    assert is_iban(swapped) is (account[2] == account[3])


def test_only_letters_and_digits_make_an_account() -> None:
    assert not is_iban("") and not is_iban("ZZ89370400440532013000") and not is_iban("NO93860111179\u0664\u0667")
    lengths = {15: 1, 16: 1, 18: 7, 19: 2, 20: 8, 21: 4, 22: 10, 23: 7, 24: 12, 25: 3, 26: 2, 27: 27, 28: 13, 29: 5,
               30: 4, 31: 2, 32: 1, 33: 1}  # fmt: skip
    assert {n: list(IBAN_LENGTHS.values()).count(n) for n in set(IBAN_LENGTHS.values())} == lengths
    further = {"SD": 18, "FK": 18, "MN": 20, "OM": 23, "SO": 23, "IQ": 23, "TL": 23, "DZ": 24, "LY": 25, "ST": 25,
               "CI": 27, "SN": 27, "CM": 27, "NI": 28, "AO": 28, "YE": 30, "MU": 30, "RU": 33}  # fmt: skip
    assert further.items() <= IBAN_LENGTHS.items()


# ITU-T E.164, list of assigned codes, by zone.
ASSIGNED = """
1 7 20 27 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 239 240 241
242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 266 267 268 269 290 291 297
298 299 30 31 32 33 34 36 39 350 351 352 353 354 355 356 357 358 359 370 371 372 373 374 375 376 377 378 380 381 382 383
385 386 387 389 40 41 43 44 45 46 47 48 49 420 421 423 51 52 53 54 55 56 57 58 500 501 502 503 504 505 506 507 508 509
590 591 592 593 594 595 596 597 598 599 60 61 62 63 64 65 66 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686
687 688 689 690 691 692 81 82 84 86 800 808 850 852 853 855 856 870 880 881 882 883 886 888 90 91 92 93 94 95 98 960 961
962 963 964 965 966 967 968 970 971 972 973 974 975 976 977 979 992 993 994 995 996 998
"""


def test_country_codes_are_those_that_are_in_use() -> None:
    assert set(ASSIGNED.split()) == COUNTRY_CODES


@pytest.mark.parametrize(
    ("digits", "valid"),
    [
        ("14155552671", True), ("1415555267", False), ("141555526712", False), ("11155552671", False),
        ("12155552671", True), ("1", False), ("", False), ("490123456", True), ("49012345", False),
        ("490123456789012", True), ("4901234567890123", False), ("211123456", True), ("210123456", False),
        ("701234567", True), ("299123456", True), ("287123456", False),
    ],
)  # fmt: skip
def test_a_number_of_the_world_begins_with_a_code_and_has_nine_to_fifteen_digits(digits: str, valid: bool) -> None:
    assert is_e164(digits) is valid


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_the_header_of_a_token_names_its_algorithm_or_type() -> None:
    for name in ("alg", "typ", "enc", "kid"):
        for padding in ("", "x", "xx"):
            assert is_jwt_header(encoded({name: padding}))
    for value in ({}, {"other": 1}, ["alg"], "alg", 7):
        assert not is_jwt_header(encoded(value))
    for part in ("a", "!!!", "AAAA", encoded({"alg": 1})[:-2], base64.urlsafe_b64encode(b"[" * 100_000).decode()):
        assert not is_jwt_header(part)


@pytest.mark.parametrize(
    ("value", "drawn"),
    [
        ("", False), ("12345678", False), ("abcdefgh", False), ("abcdefg1", False), ("abcdefg12", True),
        ("abcdefgh12", True), ("abcdefghi12", False), ("abcd1efgh", False), ("aB1defghijklmnopq", False),
        ("aB12defghijklmnopq", True), ("aB1" + "x" * 20, False), ("aB1" + "x" * 21, True), ("ab1" + "x" * 21, False),
        ("AB1" + "X" * 21, False), ("AB12" + "X" * 30, False), ("-----1a", False), ("1a", True),
    ],
)  # fmt: skip
def test_a_drawn_value_has_digits_among_letters(value: str, drawn: bool) -> None:
    assert looks_random(value) is drawn


def test_placeholders_say_the_kind_and_nothing_else() -> None:
    assert KINDS == ("email", "phone", "ssn", "card", "iban", "ip", "api key", "jwt", "password")
    assert PLACEHOLDERS == tuple(f"[{kind}]" for kind in KINDS) == tuple(PLACEHOLDER[kind] for kind in KINDS)
