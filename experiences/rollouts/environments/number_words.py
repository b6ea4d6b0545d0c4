"""Numbers in English words as digits: "seventy-two", "half a dozen", "two thirds"."""

from __future__ import annotations

import re
from typing import Final

MAX_WORDS: Final = 500  # characters of a text that is looked at

_SMALL: Final = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS: Final = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES: Final = {"dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS: Final = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4,
    "fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7, "eighth": 8, "eighths": 8,
    "ninth": 9, "ninths": 9, "tenth": 10, "tenths": 10,
}  # fmt: skip
_COUNT: Final = "|".join(sorted({*_SMALL, *_TENS}, key=len, reverse=True))
_SCALE: Final = "|".join(_SCALES)
_NUMBER: Final = (
    rf"(?:(?:{_COUNT})|(?:half )?an? (?:{_SCALE}|hundred))\b(?:(?:-|,? and |,? )(?:{_COUNT}|hundred|{_SCALE})\b)*"
    rf"(?: point(?: (?:{_COUNT}))+)?"
)
_FOUND: Final = re.compile(rf"(?<![\w-]){_NUMBER}(?![\w]|-\w)", re.IGNORECASE)
_WHOLE: Final = re.compile(rf"\W*(?P<number>{_NUMBER})(?: (?P<part>{'|'.join(_PARTS)}))?(?P<more> [a-z]+)?\W*", re.I)
_PART: Final = re.compile(rf"\W*(?:(?P<count>an?|{_COUNT})[ -])?(?P<part>{'|'.join(_PARTS)})\W*", re.IGNORECASE)
# "the two", "which one": words that point at things and count nothing.
_SHARE: Final = re.compile(r" (?:in|out of) \w+\W*$", re.IGNORECASE)  # "one in four"
_POINTS: Final = re.compile(
    r"\b(?:the|these|those|both|all|any|which|either|no|of|other|some|every|each)\s+$", re.IGNORECASE
)


def with_digits(text: str) -> str:
    """``text`` with its numbers in digits, where they are words only and leave no doubt."""
    if len(text) > MAX_WORDS or any(map(str.isdigit, text)):
        return text
    if (part := _PART.fullmatch(text)) is not None and (part["count"] or part["part"].lower() == "half"):
        count = (part["count"] or "a").lower()
        return f"{_SMALL.get(count, _TENS.get(count, 1))}/{_PARTS[part['part'].lower()]}"
    if (whole := _WHOLE.fullmatch(text)) is not None and not whole["part"]:
        written = _digits(whole["number"])
        return text if written is None else text.replace(whole["number"], written)
    return _FOUND.sub(lambda found: _in_prose(text, found), text)


def is_number(text: str) -> bool:
    """True if a text is a number in words and nothing else."""
    written = with_digits(text)
    return written != text and not re.search(r"[a-zA-Z]", written)


def _in_prose(text: str, found: re.Match[str]) -> str:
    written = _digits(found[0])
    if found[0].lower() == "one" and not _SHARE.match(text, found.end()):
        return found[0]
    if written is None or (len(written) < 3 and _POINTS.search(text[: found.start()])):
        return found[0]
    return written


def _digits(words: str) -> str | None:
    """The number of these words in digits; None where they are none."""
    whole, _, behind = words.lower().partition(" point ")
    names = re.split(r"[\s,-]+", whole)
    value = _value([name for name in names if name != "and"])
    decimals = [_SMALL.get(name, 10) for name in behind.split()]
    if value is None or any(digit > 9 for digit in decimals):
        return None
    return f"{value}.{''.join(map(str, decimals))}" if decimals else str(value)


def _value(names: list[str]) -> int | None:
    """The sum of the groups before each scale; None: these names are no number, such as "two three"."""
    if names[:2] in (["half", "a"], ["half", "an"]):
        found = _value(["one", *names[2:]])
        return found // 2 if found is not None and found % 2 == 0 else None
    total, group, least = 0, 0, 10**15  # ``least``: what the next name has to be below
    for at, name in enumerate(names):
        if name in ("a", "an") and at == 0:
            group = 1
        elif name in _SCALES:
            if group == 0 or _SCALES[name] >= least:
                return None
            total, group, least = total + group * _SCALES[name], 0, _SCALES[name]
        elif name == "hundred":
            if not 0 < group < 100:
                return None
            group *= 100
        else:
            added = _SMALL.get(name, _TENS.get(name, 0))
            last = group % 100
            fits = last == 0 or (last >= 20 and last % 10 == 0 and 0 < added < 10)
            if not fits or (at and added == 0):
                return None
            group += added
    return total + group
