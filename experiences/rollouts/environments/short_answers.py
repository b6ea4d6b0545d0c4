"""Ways to write one short answer in words: with an explanation behind, yes and no, dates, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from experiences.rollouts.environments.answers import MarkedAnswer, comparable

MAX_SHORT: Final = 200  # characters of a text that may be an answer and its reason

_EXPLAINS: Final = re.compile(
    r"\s*[*_#>(-]*\s*(?:explanation|explained|reasoning|reasons?|rationale|justification|because|why|note|details?"
    r"|steps?|this is|here'?s|let me know|confidence|calculation|working|check)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"(?P<first>[^\n]{1,200}?[^\s.])[.!]\s+(?P<rest>[A-Z(].*)", re.DOTALL)
_BECAUSE: Final = re.compile(r"[,;]?\s+(?:because|since)\b|\s+[—–]\s+|\s+-\s+(?=[a-z])|;\s+(?=check\b)", re.IGNORECASE)
_RETRACTED: Final = re.compile(
    r"\b(?:wait|actually|correct(?:ion|ed)|sorry|on second thought|scratch that|oops|mistake|instead"
    r"|(?:that|this|it)(?:'s| is| was) (?:wrong|incorrect|not))\b",
    re.IGNORECASE,
)
_YES: Final = ("yes", "true", "yeah", "yep", "yup")
_NO: Final = ("no", "false", "nope", "nah")
_UNDECIDED: Final = r"but|maybe|perhaps|both|neither|either|depends"
_BETWEEN: Final = re.compile(r"\s*[,;]\s*(?:and\s+|or\s+|&\s*)?|\s+(?:and|&)\s+|\n+(?:[-*]\s+)?")
_EQUALS: Final = re.compile(r"\s*=\s*")
_LETTERS: Final = re.compile(r"[A-J]{2,10}")


def shortened(answer: str) -> Iterator[str]:
    """The beginning of an answer that explains itself: its first line, its first sentence, the words before the reason.
    Of a text without "Answer:" in front only a first line whose explanation is named counts."""
    first, _, rest = answer.strip().partition("\n")
    marked = isinstance(answer, MarkedAnswer)
    if (
        rest.strip()
        and not _RETRACTED.search(rest)
        and (_EXPLAINS.match(rest) or (marked and not rest.split("\n")[0].strip()))
    ):
        yield first
    if not marked:
        return
    if (found := _SENTENCE.match(first)) is not None and not _RETRACTED.search(f"{found['rest']} {rest}"):
        yield found["first"]
    if (reason := _BECAUSE.search(first)) is not None and not _RETRACTED.search(first[reason.start() :] + rest):
        yield first[: reason.start()]


def is_polar(wanted: str, said: str, *, short: bool) -> bool:
    """True if the text says the wanted one of yes and no (true, false) and not the other. Both are ``comparable``."""
    mine, others = (_YES, _NO) if wanted in _YES else (_NO, _YES)
    if not (short or len(said) <= MAX_SHORT):
        return False
    begins = re.match(
        rf"(?:(?:the answer|it|this|that|the statement|the claim) is |it's )?(?:{'|'.join(mine)})"
        r"(?:[.,;:!]| - | because\b| since\b|$)",
        said,
    )
    return begins is not None and not re.search(rf"\b(?:{'|'.join(others)}|{_UNDECIDED})\b", said)


def items_in(text: str) -> list[str]:
    """The items of a text that lists several, each ``comparable``; none of another text."""
    inside = text.strip()
    lines = inside.split("\n")
    if len(lines) > 1 and all(line.lstrip().startswith((f"{at}. ", f"{at}) ")) for at, line in enumerate(lines, 1)):
        inside = "\n".join(line.split(" ", 1)[1] for line in map(str.lstrip, lines))
    if inside[:1] in ("[", "(", "{") and inside[-1:] in ("]", ")", "}"):
        inside = inside[1:-1]
    items = [_EQUALS.sub("=", comparable(one)) for one in _BETWEEN.split(inside.strip(" .-*"))]
    return items if len(items) > 1 and all(items) else []


def letters_in(text: str) -> str:
    """Letters of several choices, "AC" or "A, C"; "" for other texts."""
    items = [one.strip("()[]") for one in items_in(text)]
    joined = "".join(items).upper() if items else text.strip()
    if not _LETTERS.fullmatch(joined) or any(len(one) > 1 for one in items) or len(set(joined)) < len(joined):
        return ""
    return "".join(sorted(joined))
