"""Truncates without splitting a secret or an address: half of one is not recognised when the text is redacted."""

from __future__ import annotations

import re
from typing import Final

from experiences.privacy.redaction import find

_BREAKS: Final = " \t\r\n\"'<>()[]{},;"
_BREAK: Final = re.compile(f"[{re.escape(_BREAKS)}]")
_LONGEST_WORD: Final = 512  # longer ones are cut in two: they hold no value that is not found as a whole
_BEHIND: Final = 12_288  # characters behind the cut: the longest value that is found, a JWT, has as many


def cut_short(text: str, most: int) -> str:
    """The first characters of ``text``, at most so many, up to the last whole word; a personal value or a secret that
    begins there and ends behind the cut is left out. What is there in full is not redacted here."""
    if len(text) <= most:
        return text
    end = most
    if text[most] not in _BREAKS:
        word = max(text.rfind(sign, 0, most) for sign in _BREAKS) + 1
        ends = _BREAK.search(text, most, word + _LONGEST_WORD + 1)
        if ends or len(text) <= word + _LONGEST_WORD:
            end = word
    crossing = (span.start for span in find(text[: most + _BEHIND]) if span.start < end < span.end)
    return text[: min(crossing, default=end)].rstrip()
