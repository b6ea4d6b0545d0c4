"""E-mail addresses and telephone numbers.

No pattern here may be tried at every character over an unbounded stretch: addresses are found by their "@" and read
from there in both directions, at most 64 and 254 characters far (RFC 5321); numbers have at most 15 digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from experiences.privacy.checksums import COUNTRY_CODES, is_e164
from experiences.privacy.kinds import Span
from experiences.privacy.normalisation import Reading

# -- e-mail ----------------------------------------------------------------------------------------------------

_MARKS: Final = r"\u0300-\u036f\u0900-\u0e4e\u200c\u200d"  # vowel signs and accents are not \w
# Scripts without spaces between words: "请联系ann@example.org谢谢" must not take its neighbours along.
_UNSPACED: Final = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_HAS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")
# A domain of which nothing more need be asked; others are read with more care.
_PLAIN: Final = re.compile(
    r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9-]{1,63}){0,6}\.[a-zA-Z]{2,24}(?=[\s\"'<>,;)]|\Z)"
)
_LETTERS: Final = rf"\w{_MARKS}"
# Matched against the text before the sign, reversed.
_LOCAL: Final = re.compile(rf"[{_LETTERS}+%~-](?:[{_LETTERS}.+%'&~-]{{0,62}}[{_LETTERS}+~])?")
_LABEL: Final = rf"[{_LETTERS}](?:[{_LETTERS}-]{{0,61}}[{_LETTERS}])?"
_DOT: Final = r"(?:\.|\s?[(\[{<]\s?(?:dot|punkt|punto|point)\s?[)\]}>]\s?|\s(?:dot|punkt|punto)\s)"
_DOMAIN: Final = re.compile(rf"{_LABEL}(?:{_DOT}{_LABEL}){{1,7}}", re.IGNORECASE)
# As above, but stopping at the first character of an unspaced script.
_STOP: Final = re.compile(f"[^{_UNSPACED}]*")

_GOES_ON: Final = re.compile(r"\s(?:dot|punkt|punto)\s|\s[(\[{<]", re.IGNORECASE)
_SIGN: Final = re.compile(r"@|%40|&#64;")
_SPELT: Final = re.compile(r"\s?[(\[{<]\s?(?:at|@|ät|arroba|chez)\s?[)\]}>]\s?|\s(?:at|arroba)\s", re.IGNORECASE)
_QUOTED: Final = re.compile(r'"[^"\n]{1,62}"')
_LAST_LABEL: Final = re.compile(rf"(?:[^\W\d_]|[{_MARKS}])+\Z|xn--[a-z0-9-]+\Z", re.IGNORECASE)
_NOT_HOSTS: Final = re.compile(
    r"\d(?:\.\d)?x\.|[\d.]+[-.]?(?:alpha|beta|rc|dev|next|post)?\d*\Z|.*\.(?:service|socket|timer|mount|target|slice)\Z",
    re.IGNORECASE,
)
# Only these make an address out of bare words ("ann at example dot org"); "look at the polka dot dress" is none.
_COMMON_END: Final = re.compile(
    r"(?:com|org|net|edu|gov|info|biz|io|ai|co|dev|app|uk|de|fr|es|it|nl|be|ch|at|pl|pt|br|ru|jp|cn|in|eu|us|ca|au|se"
    r"|no|dk|fi|ie|cz|gr|me|tv)\Z",
    re.IGNORECASE,
)


def emails(reading: Reading) -> Iterator[Span]:
    """Addresses with an "@" (or "%40", "&#64;"), unicode ones included."""
    for sign in _SIGN.finditer(reading.text):
        span = _around(reading.text, sign.start(), sign.end())
        if span is not None:
            yield span


def spelt_emails(reading: Reading) -> Iterator[Span]:
    """As in "ann (at) example (dot) org", "ann [at] example.org", "ann at example dot org"."""
    text = reading.text
    for sign in _SPELT.finditer(text):
        span = _around(text, sign.start(), sign.end())
        if span is None:
            continue
        bare = sign[0].strip().isalpha()
        ends = "." not in text[sign.end() : span.end] and _COMMON_END.match(text[span.start : span.end].split()[-1])
        if ends or not bare:
            yield span


def _around(text: str, before: int, after: int) -> Span | None:
    """The address whose sign is ``text[before:after]``."""
    start = _local_start(text, before)
    end = _domain_end(text, after)
    if start is None or end is None:
        return None
    follows = text[end : end + 1]
    if follows == ":" and text[start:before] == "git":  # git@host:path is a place, not a person
        return None
    if follows == "(" and not _COMMON_END.match(text[after:end].rpartition(".")[2]):  # left@right.sum()
        return None
    return Span(start, end, "email")


def _local_start(text: str, before: int) -> int | None:
    backwards = text[max(0, before - 64) : before][::-1]
    if backwards[:1] == '"':
        quoted = _QUOTED.match(backwards)
        return before - quoted.end() if quoted else None
    if not backwards.isascii() and not _HAS_UNSPACED.match(backwards):
        stop = _STOP.match(backwards)
        backwards = stop[0] if stop else backwards
    found = _LOCAL.match(backwards)
    if found is None:
        return None
    start = before - found.end()
    if text.startswith("3D", start) and text[start - 1 : start] == "=":  # quoted-printable
        start += 2
    return start


def _domain_end(text: str, after: int) -> int | None:
    plain = _PLAIN.match(text, after)
    if plain is not None and not _NOT_HOSTS.match(plain[0]) and not _GOES_ON.match(text, plain.end()):
        return plain.end()
    ahead = text[after : after + 254]
    if not ahead.isascii() and not _HAS_UNSPACED.match(ahead):
        stop = _STOP.match(ahead)
        ahead = stop[0] if stop else ahead
    found = _DOMAIN.match(ahead)
    if found is None or _NOT_HOSTS.match(found[0]):
        return None
    domain = found[0]
    last = re.split(r"[\s.)\]}>]", domain)[-1]
    while len(last) < 2 or not _LAST_LABEL.match(last):
        # "ann@example.org.2" and "ann@example.org-b": the address ends a label earlier.
        cut = max(domain.rfind(sign) for sign in ".-")
        domain = domain[:cut] if cut > 0 else ""
        if "." not in domain and not re.search(r"[\s)\]}>]", domain):
            return None
        last = re.split(r"[\s.)\]}>]", domain)[-1]
    return after + len(domain)


# -- telephone -------------------------------------------------------------------------------------------------

# A pattern that begins with characters rather than a look back is skipped through at the speed of a search; hence
# the looks back behind the first character.
_EXTENSION: Final = (
    r"(?:[ ,;]{0,2}(?:[Ee]xt(?:ension|n)?\.?|EXT\.?|[xX]|[Dd]urchwahl|poste|anexo|#)[ .:]{0,2}\d{1,6}(?!\w))?"
)
_REST: Final = r"(?:[ .\-/()]{0,3}\d)"
_PLUS: Final = re.compile(rf"\+(?<![\w+]\+)(?<![\d)][ ]\+)\(?(?P<number>[1-9]{_REST}{{7,14}}){_EXTENSION}(?!\w|[.,]\d)")
_ZEROS: Final = re.compile(
    rf"00(?<![\w.-]00)(?<!\d[,:/]00)[ -]?(?P<number>(?P<code>[1-9]\d{{0,2}})[ .\-/(]{_REST}{{6,11}})"
    rf"{_EXTENSION}(?!\w|[.,]\d)"
)
_TEN: Final = re.compile(r"000(?:(?:[-./ ]|\)[- ]{0,2})000[-. ]0000|\)[- ]?0000000)")  # in the outline
_LEAD: Final = re.compile(r"(?:1[ .-]{1,2})?\(?\Z")
_AMERICAN: Final = re.compile(
    r"[(1-9](?<![\w+.].)(?<!\d[-/ ].)(?<!\w-.)(?:(?<=1)(?:[ -]{1,2}|\.(?=\d{3}\.))[(2-9])?"
    r"(?:(?<=\()[2-9]\d{2}\)(?:[ -]{0,2}\d{3}[ .-]\d{4}|[ -]?[2-9]\d{6})"
    r"|(?<=[2-9])\d{2}(?:(?P<mark>[-.])\d{3}(?P=mark)\d{4}|[/-][2-9]\d{2}[ -]\d{4}| [2-9]\d{2}[ -]\d{4}(?! \d)))"
    rf"{_EXTENSION}(?!\w|[-.,]\d)"
)
_ANNOUNCED: Final = re.compile(
    r"[ptfmcwhr](?<![^\W_].)(?:(?<=p)hone|(?<=p)h(?=[:.])|(?<=t)ele(?:phone|fono|fone|fon)|(?<=t)él(?:éphone|\.)"
    r"|(?<=t)eléfono|(?<=t)el|(?<=f)(?:on|ax)|(?<=m)ob(?:ile?)?|(?<=m)óvil|(?<=c)el(?:l|ular)|(?<=w)hatsapp|(?<=h)andy"
    r"|(?<=r)ufnummer|(?<=r)each me(?: at| on)?|(?<=c)all(?: me| us)?(?: (?:at|on|back))?)"
    r"(?:[ _]?(?:number|no|nr|num|nummer|#))?[\s.:=\"'\\>#-]{1,6}(?:is |ist |es |est )?"
    rf"(?P<number>\(?\d{_REST}{{6,14}}){_EXTENSION}(?!\w|[.,]\d)"
)
_COORDINATE: Final = re.compile(r"\d{1,3}\.\d{1,8}\Z")
_DATE: Final = re.compile(r"(?:19|20)\d\d[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ](?:19|20)\d\d")


def plus_phones(reading: Reading) -> Iterator[Span]:
    """+CC forms with as many digits as E.164 allows."""
    for found in _PLUS.finditer(reading.text):
        if is_e164(_digits(found["number"])) and not _COORDINATE.match(found["number"]):
            yield Span(found.start(), found.end(), "phone")


def zeros_phones(reading: Reading) -> Iterator[Span]:
    """00CC forms; the country's code must be apart, or else it is a number with leading zeros."""
    for found in _ZEROS.finditer(reading.text):
        if found["code"] in COUNTRY_CODES and is_e164(_digits(found["number"])):
            yield Span(found.start(), found.end(), "phone")


def american_phones(reading: Reading) -> Iterator[Span]:
    """(415) 555-2671, (415)5552671, 415-555-2671, 415.555.2671, 415 555 2671, each with or without a leading 1."""
    for ten in _TEN.finditer(reading.outline):
        start = ten.start()
        lead = _LEAD.search(reading.text, max(0, start - 4), start)
        for begin in (lead.start() if lead else start, start - 1, start):
            found = _AMERICAN.match(reading.text, max(0, begin))
            if found is not None:
                yield Span(found.start(), found.end(), "phone")
                break


def announced_phones(reading: Reading) -> Iterator[Span]:
    """Any 7 to 15 digits behind a word that announces a telephone number."""
    for found in _ANNOUNCED.finditer(reading.low):
        number = found["number"]
        if 7 <= len(_digits(number)) <= 15 and not _DATE.match(number.lstrip("(")):
            yield Span(found.start("number"), found.end(), "phone")


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
