"""The letter of a choice in an answer, in words around it or with its text behind it."""

from __future__ import annotations

import re
from typing import Final

_LETTER: Final = r"[(\[]?(?<![a-z0-9'])([a-j])(?![a-z0-9'])[)\]]?"
_STATED: Final = r"(?:(?:the )?(?:correct |right |best |final )?(?:option|choice|answer)(?: is)?:? "
_CHOOSES: Final = (
    r"(?:i (?:would |will )?|i'd |i'll |my )?(?:go with|choose|pick|select|say|choice is|answer is) "
    r"(?:option |answer )?)"
)
_BEGINS: Final = re.compile(
    rf"(?:{_STATED}|{_CHOOSES})?(?:[(\[]([a-j])[)\]]|([a-j])(?:[).:]|$|,? because\b)|\*\*([a-j])\*\*)"
)
_ENDS: Final = re.compile(
    r"(?P<before>.*)\b(?:(?:answer|option|choice)(?: is| would be|:)(?: option)?|leaves|must be|has to be) "
    rf"(?:not {_LETTER} but )?{_LETTER}",
    re.DOTALL,
)
_CORRECT: Final = re.compile(
    rf"(?:so |thus |therefore,? )?(?:option |choice |answer )?{_LETTER} is (?:the )?(?:correct|right|best)"
    r"(?: (?:answer|option|choice|one))?(?:[,.]? (?:because|since|as) .*)?"
)
_OF_CHINA: Final = re.compile(
    r"(?:正确|正確)?(?:答案|选项|選項|答え|正解|정답|选择|選擇|选|選)(?:是|为|為|は|은|:)? ?"
    + _LETTER
    + r"(?![a-z]).{0,3}"
)
_ANOTHER: Final = re.compile(
    r"\b(?:answer|option|choice)\b.{0,20}\b[a-j]\b|\b(?:wait|actually|sorry|instead|correction)\b"
)


def choice_in(said: str, first_line: str, rest: str) -> str:
    """The letter that a ``comparable`` answer chooses, "" for none. ``first_line`` and ``rest``: of the same answer."""
    if (found := _BEGINS.match(said)) is not None:
        return next(letter for letter in found.groups() if letter)
    for form in (_CORRECT, _OF_CHINA):
        if (found := form.fullmatch(said)) is not None:
            return found[1]
    if (found := _ENDS.fullmatch(said)) is not None and not re.search(r"\b(?:not|n't)\W*$", found["before"]):
        return found.groups()[-1]
    alone = re.fullmatch(rf"(?:option |choice )?{_LETTER}", first_line)
    return alone[1] if alone is not None and rest and not _ANOTHER.search(rest) else ""
