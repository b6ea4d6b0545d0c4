"""The ways in which a model may read a text: as it stands, with look-alike letters folded, and decoded.

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
_WITH_DIGITS: Final = re.compile(r"(?<![\w@$])(?=[\d@$]*[a-z])[\w@$]{4,40}(?![\w@$])")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")


def readings(text: str) -> Iterator[str]:
    """The text in lower case, its skeleton, and the skeleton with digits read as letters."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    skeleton = _without_marks(plain).translate(_LOOK_ALIKES)
    yield plain
    yield skeleton
    yield _WITH_DIGITS.sub(lambda found: found[0].translate(_DIGITS), skeleton)


def decoded(text: str) -> str:
    """What the text holds in base64, as far as that is words; "" if it holds none."""
    return " ".join(filter(None, map(_words_of, _ENCODED.findall(text))))


def _without_marks(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def _words_of(encoded: str) -> str:
    """Long names are base64 too, but of bytes that are no words."""
    plain = encoded.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return found if " " in found and found.isprintable() else ""
