"""The short answer in one sentence about it: "The capital is Paris.", "not Lyon but Paris", "Paris, not Lyon"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MAX_SENTENCE: Final = 200  # characters of a sentence that is looked at

# Words by which a sentence denies, doubts, or speaks of something beside the answer.
_DOUBTS: Final = re.compile(
    r"n't\b|\b(?:not|no|never|nor|neither|wrong|incorrect|false|mistaken|mistake|if|unless|except|other|than|instead"
    r"|second|runner|claim\w*|myth|says?|said|think|thought|believed?|may|maybe|perhaps|possibly|might|could|would"
    r"|either|or|but|however|although|though|while|whether|used to|former\w*|once|longer|opposite|tempting|close"
    r"|common|popular|guess|trap|distractor|unsure|unclear|unknown|actually|wait|sorry|also|only|both|doubt\w*"
    r"|nicht|kein\w*|pas|non|não|nunca)\b|[不没沒]|ない"
)
_IS: Final = re.compile(
    r" (?:is|was|are|were|be)(?: called| named| known as)? | (?:ist|lautet|est|es|è|é) |(?:是|は) ?"
)
_NAMED: Final = re.compile(
    r"(?:(?:final|predicted|correct|my) )?(?:labels?|class|category|classification|sentiment|prediction|verdict|result"
    r"|solution|output|topic|intent|ans|a): "
)
_WHERE: Final = re.compile(r"(?:in|at|on|from|by) ")
_SO: Final = re.compile(r".*(?:,|;) (?:so|therefore|thus|hence)[:,]? (?:it(?:'s| is) )?(?P<answer>[^,;:]+)")
_ENDS: Final = re.compile(r"(?:です|だ|입니다)$")
_SUBJECT: Final = re.compile(r"(?:so|thus|therefore|hence|finally),? |i (?:believe|think) (?:that )?(?=it|the)")
_ANSWER_FIRST: Final = re.compile(r"(?P<head>.{1,100}?) (?:is|was|are|were) (?P<rest>the\b.*|correct|right)")
_NOT_BUT: Final = re.compile(
    r"(?:it(?:'s| is| was) |the answer is )?not (?:(?!\bbut\b|\bnot\b).){1,80}?"
    r"(?:,? but(?: rather)? (?:it(?:'s| is) )?|[,;.-]+ (?:it(?:'s| is) (?:actually )?))(?P<answer>.+)"
)
_NOT_THAT: Final = re.compile(
    r"(?:it(?:'s| is| was) )?(?P<answer>.{1,100}?),? \(?"
    r"(?:not (?!(?:sure|certain|really|necessarily|always|exactly|quite|entirely|only|just|applicable|in|at|by|for"
    r"|to|if)\b)"
    r"|rather than |instead of |as opposed to )\S.{0,80}"
)
_GLOSS: Final = re.compile(r"(?P<answer>.{1,100}?) \((?P<gloss>[^()]{1,80})\)")
_APPOSITION: Final = re.compile(r"(?P<answer>[^,]{1,100}), (?P<gloss>(?:the|an?|who|which) .{1,120})")


_RETRACTS: Final = re.compile(
    r"\b(?:wait|actually|correction|sorry|instead|oops|mistake|wrong|incorrect|answer|alternatively|however)\b",
    re.IGNORECASE,
)


def answers_in(said: str) -> Iterator[str]:
    """Texts that a ``comparable`` sentence may give as its answer; none of one that denies or doubts it."""
    if len(said) > MAX_SENTENCE:
        return
    said = _ENDS.sub("", _SUBJECT.sub("", said, count=1) if _SUBJECT.match(said) else said)
    for lead in (_NAMED, _WHERE):
        if (match := lead.match(said)) is not None:
            yield said[match.end() :]
    if (match := _SO.fullmatch(said)) is not None and not re.search(r"\b(?:if|unless|whether)\b", said):
        yield match["answer"]
    for found in _IS.finditer(said):
        subject = said[: found.start()]
        if not _DOUBTS.search(subject) and not re.search(r"[,;:.!?]", subject):
            yield said[found.end() :]
    for form in (_NOT_BUT, _NOT_THAT):
        if (match := form.fullmatch(said)) is not None:
            yield match["answer"]
    for form in (_GLOSS, _APPOSITION):
        if (match := form.fullmatch(said)) is not None and not _DOUBTS.search(match["gloss"]):
            yield match["answer"]
    if (match := _ANSWER_FIRST.fullmatch(said)) is not None and not _DOUBTS.search(match["rest"]):
        yield match["head"]


def first_line_in(answer: str) -> str:
    """The first line of an answer that a paragraph of whole sentences explains; "" where there is none."""
    first, _, rest = answer.strip().partition("\n\n")
    explains = "\n" not in first and len(first) <= MAX_SENTENCE and len(rest.split("\n")[0].split()) >= 4
    return first if explains and not _RETRACTS.search(rest) else ""
