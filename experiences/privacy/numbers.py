"""Numbers that name a person: social security, cards, bank accounts. Each has a form and a check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from experiences.privacy.checksums import IBAN_LENGTHS, card_form, is_iban
from experiences.privacy.kinds import Span
from experiences.privacy.normalisation import Reading

# Areas 000, 666 and 900-999, group 00 and serial 0000 were never given out (US Social Security Administration).
# Patterns for the outline begin with a literal, which is skipped through at the speed of a search; what they point at
# is then read in the text.
_NINE: Final = re.compile(r"000(?:-00-| 00 )0000")
_SSN: Final = re.compile(
    r"[0-8](?<![\w.+/].)(?<!\w-.)(?:(?<!0)|(?!00))(?:(?<!6)|(?!66))\d{2}"
    r"(?:-(?!00)\d{2}-|(?<!\d[ ]\d{3}) (?!00)\d{2} (?!\d{4} \d))(?!0000)\d{4}(?![\w/]|[-.]\w)"
)
_ANNOUNCED_SSN: Final = re.compile(
    r"s(?<!\w.)(?:sn|ocial security)(?: (?:number|no|num))?[\s.:=#\"'\\]{1,6}(?:is )?"
    r"(?P<number>(?!000|666|9)\d{3}(?!00)\d{2}(?!0000)\d{4})(?!\w)"
)

_MANY: Final = re.compile(r"0000(?:0{9}|[ .-]{1,2}0000[ .-]{1,2}0000|[ .-]0{6}[ .-]0000|[ .-]000[ .-]000|00[ -]0{10})")
_CARD: Final = re.compile(
    r"\d(?<!\w\d)(?<!\w[-.]\d)(?:\d{12,18}"
    r"|\d{3}(?:(?P<four>[ .-]{1,2})\d{4}(?P=four)\d{4}(?P=four)\d{4}(?:(?P=four)\d{3})?"
    r"|(?P<six>[ .-])\d{6}(?P=six)\d{4,5}"
    r"|(?P<old>[ .-])\d{3}(?P=old)\d{3}(?P=old)\d{3})"
    r"|\d{5}[ -]\d{10,13})(?!\w|[-.]\d)"
)

# Nothing that could itself be replaced is in between.
_SAYS_CARD: Final = re.compile(
    r"(?:(?<!\[)card|visa|maestro|amex|discover|unionpay|\bpan\b|\bcc\b|karte|carte|tarjeta|carta|cartão|карт|卡)"
    r"[^\d@\[\]]{0,20}\Z",
    re.IGNORECASE,
)

_CAPITALS: Final = re.compile(r"AA00(?<![0Aa]AA00)(?=[ -]?[0A]{2,4}[ -]?[0A])")
_SMALL: Final = re.compile(r"aa00(?<![0Aa]aa00)(?=[ -]?[0a]{2,4}[ -]?[0a])")


def social_security(reading: Reading) -> Iterator[Span]:
    """With hyphens or spaces; nine bare digits only behind the words that announce one."""
    for nine in _NINE.finditer(reading.outline):
        found = _SSN.match(reading.text, nine.start())
        if found is not None:
            yield Span(found.start(), found.end(), "ssn")
    for found in _ANNOUNCED_SSN.finditer(reading.low):
        yield Span(found.start("number"), found.end(), "ssn")


def cards(reading: Reading) -> Iterator[Span]:
    """13 to 19 digits, alone or in the groups that are printed on cards."""
    text = reading.text
    for many in _MANY.finditer(reading.outline):
        found = _CARD.match(text, many.start())
        if found is None:
            continue
        number = found[0]
        digits = number if number.isdigit() else re.sub("[ .-]", "", number)
        form = card_form(digits)
        if form == "common" or (
            form == "rare" and (digits != number or _SAYS_CARD.search(text, max(0, found.start() - 32), found.start()))
        ):
            yield Span(found.start(), found.end(), "card")


def ibans(reading: Reading) -> Iterator[Span]:
    """As many letters and digits as the country's accounts have, with single spaces or hyphens between them."""
    text = reading.text
    outline = reading.outline
    for country in chain(
        _CAPITALS.finditer(outline) if "AA00" in outline else (), _SMALL.finditer(outline) if "aa00" in outline else ()
    ):
        start = country.start()
        size = IBAN_LENGTHS.get(text[start : start + 2].upper())
        found = _account(size).match(text, start) if size else None
        if found is not None and is_iban(re.sub("[ -]", "", found[0]).upper()):
            yield Span(start, found.end(), "iban")


@lru_cache(maxsize=64)
def _account(size: int) -> re.Pattern[str]:
    """So many letters and digits; one more group behind a hyphen is another thing: a UUID can begin like an account."""
    return re.compile(rf"[A-Za-z0-9](?:[ -]?[A-Za-z0-9]){{{size - 1}}}(?!-?[A-Za-z0-9])")
