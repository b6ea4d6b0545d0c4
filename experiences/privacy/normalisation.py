"""One spelling for what looks the same: full-width and other digits, typographic hyphens, spaces and quotes.

Every character becomes exactly one, so that a place in the folded text is the same place in the original.
"""

from __future__ import annotations

import re
import unicodedata
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Final, NamedTuple

_HYPHENS: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63"
_SPACES: Final = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_UNSEEN: Final = "\u00ad\u200b\u2060\ufeff"  # of no width; the joiner, which replaces them, is a part of a word
_SINGLE: Final = "\u2018\u2019\u201a\u2039\u203a"
_DOUBLE: Final = "\u201c\u201d\u201e\u00ab\u00bb"


def _table() -> dict[int, str]:
    table = {0xFEE0 + ord(sign): sign for sign in "+-./:=@_#()" + ascii_letters}  # full-width ASCII
    table[0x130] = "I"  # İ: the one character whose lower-case form is longer
    for signs, plain in ((_HYPHENS, "-"), (_SPACES, " "), (_SINGLE, "'"), (_DOUBLE, '"'), (_UNSEEN, "\u200d")):
        table |= dict.fromkeys(map(ord, signs), plain)
    for code in range(0x80, 0x10000):  # a class within the basic plane is one look-up
        sign = chr(code)
        if sign.isdecimal():
            table[code] = str(unicodedata.decimal(sign))
    return table


_TABLE: Final = _table()
_FOLDS: Final = re.compile("[" + "".join(map(chr, sorted(_TABLE))) + "]")


def folded(text: str) -> str:
    """The same object where there is nothing to fold."""
    if "\\" in text:
        # In a JSON string "\nann@example.org" is a line break and an address.
        text = text.replace("\\n", "  ").replace("\\t", "  ").replace("\\r", "  ")
    if text.isascii() or not _FOLDS.search(text):
        return text
    return _FOLDS.sub(lambda found: _TABLE[ord(found[0])], text)


class Reading(NamedTuple):
    """A folded text in the three spellings that detectors search; a place in one is the same place in the others."""

    text: str
    low: str  # in lower case
    outline: str  # digits as 0, letters as A and a, other scripts as ?


_OUTLINE: Final = bytes.maketrans(
    (digits + ascii_uppercase + ascii_lowercase).encode(), b"0" * 10 + b"A" * 26 + b"a" * 26
)


def read(plain: str) -> Reading:
    """``plain`` is folded already."""
    return Reading(plain, plain.lower(), plain.encode("ascii", "replace").translate(_OUTLINE).decode())
