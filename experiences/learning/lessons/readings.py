"""Ways in which a model may read a text: as it is, with look-alike letters folded, and decoded.

A sign of injection that is hidden from a search by other letters is not hidden from a model.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# Cyrillic and Greek letters that look like Latin ones, from the confusables of Unicode UTS 39. Full-width letters and
# mathematical alphabets are folded by NFKC.
_LOOK_ALIKES: Final = str.maketrans(
    "авекмнорстухіјѕһԁԛԝαβεηικνορτυχωıłø",
    "abekmhopctyxijshdqwabenikvoptuxwilo",
)
_DIGITS: Final = str.maketrans("013457@$", "oieastas")
_WITH_DIGITS: Final = re.compile(r"(?<![\w@$])(?=[\d@$]*[a-z])[\w@$]{2,40}(?![\w@$])")
_EMPHASIS: Final = re.compile(r"[*~`]|(?<!\w)_+|_+(?!\w)")
_CUT: Final = re.compile(r"(?<=\w)-(?=\w)")
_WORD: Final = re.compile(r"[^\W\d_]+")
_FULL_WIDTH: Final = re.compile(r"[\uff41-\uff5a]{3}")
FEWEST_FOREIGN: Final = 4  # letters of a decoded text without a space, as Chinese has none
SHORTEST_MIXED: Final = 4  # letters; units such as kΩ are shorter
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")


def readings(text: str) -> Iterator[str]:
    """The text in lower case, its skeleton, the skeleton without emphasis and with words that were cut by hyphens put
    together, and all that with digits read as letters. Folding turns Cyrillic words into Latin letters too, so that
    words are put together in the plain text as well."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    skeleton = _without_marks(plain).translate(_LOOK_ALIKES)
    whole = _joined(skeleton)
    yield from dict.fromkeys(
        (plain, skeleton, _joined(plain), whole, _WITH_DIGITS.sub(lambda found: found[0].translate(_DIGITS), whole))
    )


def is_disguised(text: str) -> bool:
    """Whether a word mixes Latin letters with Cyrillic or Greek ones, or many letters are full-width ones."""
    return bool(_FULL_WIDTH.search(text)) or any(_is_mixed(word) for word in _WORD.findall(text))


def _is_mixed(word: str) -> bool:
    latin = sum("a" <= char.casefold() <= "z" for char in word)
    other = sum("\u0370" <= char <= "\u052f" for char in word)
    return latin > 0 and other > 0 and latin + other >= SHORTEST_MIXED


def _joined(text: str) -> str:
    return _CUT.sub("", _EMPHASIS.sub("", text))


def decoded(text: str) -> str:
    """The base64 content of the text, as far as it decodes to words; "" if there is none."""
    return " ".join(filter(None, map(_words_of, _ENCODED.findall(text))))


def _without_marks(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def _words_of(encoded: str) -> str:
    """The decoded words; "" where the bytes are none: long names look like base64 too."""
    plain = encoded.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    is_text = " " in found or sum(ord(char) > 127 for char in found) >= FEWEST_FOREIGN
    return found if is_text and found.isprintable() else ""
