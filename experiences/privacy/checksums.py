"""Checks whether a number is what it looks like: check digits, issuers, lengths and ranges."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Final, Literal

# -- cards -----------------------------------------------------------------------------------------------------

_DOUBLED: Final = str.maketrans("0123456789", "0246813579")  # twice a digit, its digits added

# First and last prefix of an issuer's range, and the lengths of its numbers (ISO/IEC 7812 as the issuers publish it).
_ISSUERS: Final[tuple[tuple[str, str, tuple[int, ...]], ...]] = (
    ("4", "4", (16,)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("300", "305", (14,)),  # Diners Club
    ("36", "36", (14,)),
    ("38", "39", (14,)),
    ("6011", "6011", (16,)),  # Discover
    ("644", "649", (16,)),
    ("65", "65", (16,)),
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("3528", "3589", (16,)),  # JCB
    ("2200", "2204", (16,)),  # Mir
    ("5018", "5020", (16,)),  # Maestro
    ("5038", "5038", (16,)),
    ("5893", "5893", (16,)),
    ("6304", "6304", (16,)),
    ("6759", "6763", (16,)),
    ("60", "60", (16,)),  # RuPay
    ("81", "82", (16,)),
)
# Lengths that are hardly ever issued. Random 64-bit integers have 19 digits, and one in ten passes Luhn's check: such
# a number is a card only in groups, or behind a word that says so.
_RARE: Final[tuple[tuple[str, str, tuple[int, ...]], ...]] = (
    ("4", "4", (13, 19)),
    ("36", "39", (16, 19)),
    ("6011", "6011", (19,)),
    ("644", "659", (19,)),
    ("3528", "3589", (17, 18, 19)),
    ("5018", "5038", (13, 18, 19)),
    ("5893", "5893", (19,)),
    ("6304", "6304", (18, 19)),
    ("6759", "6763", (18, 19)),
)


def card_form(digits: str) -> Literal["", "common", "rare"]:
    """The kind of a row of digits by its issuer's prefix, its length and Luhn's check digit; "" for no card."""
    if not luhn(digits) or len(set(digits)) < 2:
        return ""
    if len(digits) == 13 and _is_ean(digits):  # an article number from Germany (40-44) looks like an old Visa
        return ""
    if _is_issued(digits, _ISSUERS):
        return "common"
    return "rare" if _is_issued(digits, _RARE) else ""


def _is_issued(digits: str, ranges: Sequence[tuple[str, str, tuple[int, ...]]]) -> bool:
    return any(len(digits) in sizes and first <= digits[: len(first)] <= last for first, last, sizes in ranges)


def luhn(digits: str) -> bool:
    """Luhn's check (ISO/IEC 7812-1, annex B)."""
    total = sum(map(int, digits[-1::-2])) + sum(map(int, digits[-2::-2].translate(_DOUBLED)))
    return total % 10 == 0


def _is_ean(digits: str) -> bool:
    return (sum(map(int, digits[::2])) + 3 * sum(map(int, digits[1::2]))) % 10 == 0


# -- bank accounts ---------------------------------------------------------------------------------------------

# Length by country (ISO 13616 registry).
IBAN_LENGTHS: Final[Mapping[str, int]] = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD FK",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK MN",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM TL SO",
        24: "AD CZ ES MD PK RO SA SE SK TN VG DZ",
        25: "LY PT ST",
        26: "IS TR",
        27: "BF BI BJ CF CG CI CM CV DJ FR GA GQ GR GW IT KM MA MC MG ML MR MZ NE SM SN TD TG",
        28: "AL AZ BY CY DO GT HN HU LB NI PL SV AO",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}


def is_iban(code: str) -> bool:
    """``code`` in capitals without spaces: the country's length, and remainder 1 modulo 97 (ISO 7064)."""
    if IBAN_LENGTHS.get(code[:2]) != len(code) or not code.isascii() or not code.isalnum():
        return False
    return int((code[4:] + code[:4]).translate(_AS_DIGITS)) % 97 == 1


_AS_DIGITS: Final = str.maketrans({letter: str(int(letter, 36)) for letter in ascii_uppercase})


# -- telephones ------------------------------------------------------------------------------------------------

# Country codes that are in use, first and last of a range (ITU-T E.164).
COUNTRY_CODES: Final = frozenset(
    str(code)
    for first, last in (
        (1, 1),
        (7, 7),
        (20, 20),
        (27, 27),
        (30, 34),
        (36, 36),
        (39, 41),
        (43, 49),
        (51, 58),
        (60, 66),
        (81, 82),
        (84, 84),
        (86, 86),
        (90, 95),
        (98, 98),
        (211, 213),
        (216, 216),
        (218, 218),
        (220, 258),
        (260, 269),
        (290, 291),
        (297, 299),
        (350, 359),
        (370, 378),
        (380, 383),
        (385, 387),
        (389, 389),
        (420, 421),
        (423, 423),
        (500, 509),
        (590, 599),
        (670, 670),
        (672, 683),
        (685, 692),
        (800, 800),
        (808, 808),
        (850, 850),
        (852, 853),
        (855, 856),
        (870, 870),
        (880, 883),
        (886, 886),
        (888, 888),
        (960, 968),
        (970, 977),
        (979, 979),
        (992, 996),
        (998, 998),
    )
    for code in range(first, last + 1)
)


def is_e164(digits: str) -> bool:
    """``digits`` begin with a country code in use and are 9 to 15; North American ones are exactly 11."""
    if digits[:1] == "1":
        return len(digits) == 11 and digits[1] >= "2"
    return 9 <= len(digits) <= 15 and any(digits[:size] in COUNTRY_CODES for size in (1, 2, 3))


# -- tokens ----------------------------------------------------------------------------------------------------


def is_jwt_header(part: str) -> bool:
    """Base64url of a JSON object that names its algorithm or type (RFC 7519)."""
    try:
        header = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and bool(header.keys() & {"alg", "typ", "enc", "kid"})


def looks_random(value: str) -> bool:
    """Drawn by a machine rather than written: long, digits among letters, no row of dictionary words.

    Words joined by hyphens ("sk-container-id-1-label") have short runs and hardly a digit.
    """
    n_digits = sum(map(str.isdigit, value))
    n_letters = sum(map(str.isalpha, value))
    if not n_digits or not n_letters:
        return False
    mixed = value.lower() != value and value.upper() != value
    return n_digits / len(value) >= 0.2 or (mixed and (n_digits >= 2 or len(value) >= 24))
