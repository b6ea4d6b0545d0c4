"""A cheap test that rules out most detectors for most texts.

A text is reduced to its shape (digits become 0, capitals A, brackets round, lowercase letters vanish), which is short
and holds all that a number, an address or a header is known by. Substring search in a str is the fastest scan that
Python has; a regular expression over the same alternatives takes ten times as long.
"""

from __future__ import annotations

import re
from typing import Final

EMAIL: Final = 1
SPELT_EMAIL: Final = 2
URL: Final = 4
PLUS_PHONE: Final = 8
ZEROS_PHONE: Final = 16
AMERICAN_PHONE: Final = 32
ANNOUNCED_PHONE: Final = 64
SSN: Final = 128
CARD: Final = 256
IBAN: Final = 512
IPV4: Final = 1024
IPV6: Final = 2048
KEY: Final = 4096
PEM: Final = 8192
ASSIGNED: Final = 16384
PASSWORD: Final = 32768

_LOWER: Final = bytes(range(ord("a"), ord("z") + 1))


def _shapes() -> bytes:
    table = bytearray(range(256))
    table[128:] = b"u" * 128
    table[ord("0") : ord("9") + 1] = b"0" * 10
    table[ord("A") : ord("Z") + 1] = b"A" * 26
    for opens, closes in ("[]", "{}", "<>"):
        table[ord(opens)], table[ord(closes)] = b"()"
    return bytes(table)


_SHAPE: Final = _shapes()
# Characters of a token become x, all others a space.
_RUN: Final = (
    bytes(ord("x") if chr(code).isalnum() or chr(code) in "-_" else ord(" ") for code in range(128)) + b" " * 128
)
_OUTLINE: Final = _SHAPE.translate(bytes.maketrans(_LOWER, b"a" * 26))
_GROUPS: Final = re.compile(r":[0A]{0,4}:[0A]{0,4}:[0A]{0,4}:")
_ZEROS: Final = re.compile(r"00(?<![\w.-]00)[ -]?[1-9]")  # 0049 30 ...
_DOTTED: Final = re.compile(r"0\.0{1,4}\.0")
_QUAD: Final = re.compile(r"0\.0{1,3}\.0{1,3}\.0")
_LONG: Final = "x" * 20  # no key or token of a known form is shorter


def signals(text: str) -> int:
    """The gates (a sum of the constants above) that ``text``, already folded, passes; 0 for most texts."""
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        data = text.encode(errors="surrogatepass")
    if not text.isascii():
        text = data.decode("latin-1")  # one byte a character, which is searched several times as fast as two
    shape = data.translate(_SHAPE, _LOWER).decode()
    found, low, dashed = 0, "", "-" in shape
    # A key has a hyphen or an underscore behind its prefix, or so many capitals that three come together.
    if (dashed or "_" in shape or "AAA" in shape) and _LONG in data.translate(_RUN).decode():
        found = KEY
    if ":" in shape or "=" in shape or found or "assw" in text or ("/" in shape and "ecret" in text):
        low = data.lower().decode("latin-1")
        found |= _named(low, found)
        if "::" in shape or (shape.count(":") > 6 and _GROUPS.search(shape)):
            found |= IPV6 if "::" in text or shape.count(":") > 6 else 0
    if "0" in shape:
        found |= _numbers(shape, data, low)
    if "@" in shape:
        found |= EMAIL | SPELT_EMAIL if "(@)" in shape else EMAIL
        if "://" in text:
            found |= URL
    if ("%" in shape and "%40" in text) or ("&" in shape and "&#64;" in text):
        found |= EMAIL
    if dashed and "-----" in shape and "PRIVATE KEY" in text:
        found |= PEM
    if " dot " in text or (")" in shape and ("()" in shape or "( )" in shape or "(AA)" in shape or "(  )" in shape)):
        found |= _spelt(low or data.lower().decode("latin-1"))
    return found


def _numbers(shape: str, data: bytes, low: str) -> int:
    found = 0
    grouped = "00 00" in shape or "0000000" in shape or ("-" in shape and "00-0" in shape)
    if "." in shape:
        grouped = grouped or bool(_DOTTED.search(shape))
    if grouped or ("/" in shape and "00/0000" in shape):
        found |= _grouped(shape, data, low)
    if "+" in shape and ("+0" in shape or "+(0" in shape):
        found |= PLUS_PHONE
    return found | IBAN if "AA00" in shape else found


def _grouped(shape: str, data: bytes, low: str) -> int:
    """Of texts that have a number in groups, or one of at least seven digits."""
    found = 0
    outline = data.translate(_OUTLINE).decode()  # with its letters: the digits of a checksum don't come together here
    if "000-0000" in outline or "000.0000" in outline or "000 0000" in outline or _closed(outline):
        found = AMERICAN_PHONE
    if "000-00-0000" in outline or "000 00 0000" in outline:
        found |= SSN
    if "0000000000000" in outline or "0000 000" in outline or "0000-000" in outline or "0.0000.0" in outline:
        found |= CARD
    if "aa00" in outline:
        found |= IBAN
    if "0.0" in shape and _QUAD.search(outline):
        found |= IPV4
    low = low or data.lower().decode("latin-1")
    if "00" in low and _ZEROS.search(low):
        found |= ZEROS_PHONE
    if "000000000" in shape and ("ssn" in low or "social" in low):
        found |= SSN
    return found | ANNOUNCED_PHONE if _announces_phone(low) else found


def _closed(outline: str) -> bool:
    """(415)5552671, (415) 5552671"""
    return "0)" in outline and (")0000000" in outline or ") 0000000" in outline or ")-0000000" in outline)


def _announces_phone(low: str) -> bool:
    """Whether a word announces a telephone number."""
    if "phone" in low or "fax" in low or "mob" in low or "call" in low or "cell" in low or "celular" in low:
        return True
    if "tel" in low and ("tel." in low or "tel:" in low or "tel " in low or 'tel"' in low or "tele" in low):
        return True
    if "fon" in low or "handy" in low or "whatsapp" in low or "ph:" in low or "ph." in low:
        return True
    if "rufnummer" in low or "reach me" in low:
        return True
    return not low.isascii() and ("t\xc3\xa9l" in low or "m\xc3\xb3vil" in low)  # tél, móvil in UTF-8


def _named(low: str, so_far: int) -> int:
    """True if a text mentions secrets at all."""
    found = 0
    if "pass" in low or "pwd" in low or "senha" in low or (not low.isascii() and "contras" in low):
        found = PASSWORD
    if "ke" in low and ("key" in low or "token" in low):
        return found | ASSIGNED
    if "auth" in low or ("cr" in low and ("secret" in low or "credential" in low)):
        return found | ASSIGNED
    return found | ASSIGNED if so_far and "bearer " in low else found


def _spelt(low: str) -> int:
    bracketed = "at)" in low or "at]" in low or "at}" in low or "at>" in low or "at )" in low or "at ]" in low
    return SPELT_EMAIL if bracketed or (" dot " in low and " at " in low) else 0
