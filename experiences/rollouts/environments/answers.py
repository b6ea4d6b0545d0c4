"""The answer within a text that a model wrote, and the form in which two answers are compared.

All scorers read answers here, so that none of them fails an answer for how it is wrapped: thoughts, "Answer:", boxes,
fences, bold marks, full-width characters, trailing punctuation.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from experiences.rollouts.thoughts import without_thoughts

MAX_ANSWER: Final = 100_000  # characters that are looked at
MAX_BOXES: Final = 5

_WORDS: Final = r"(?:answer|antwort|réponse|respuesta|risposta|resposta|ответ|答案|答え|回答)"
_MARK: Final = re.compile(
    rf"(?:^|\n)[ \t>*_#]*(?:(?:the|my)[ \t]+)?(?:(?:final|correct)[ \t]+)?{_WORDS}(?:[ \t]+is)?[*_]*[ \t]*"
    r"(?:[:=：＝][*_]*|(?<=answer is )(?=\S))",
    re.IGNORECASE,
)
# A heading, or a bold line, with nothing else on it.
_HEADED: Final = re.compile(
    rf"(?:^|\n)[ \t>]*(?:#{{1,6}}[ \t]+[*_]*|\*\*|__)(?:(?:the|my)[ \t]+)?(?:(?:final|correct)[ \t]+)?{_WORDS}"
    r"[*_]*[ \t]*\n(?=\s*\S)",
    re.IGNORECASE,
)
_GSM8K: Final = re.compile(r"(?:^|\n)####[ \t]*(?=\S[^\n]*\s*\Z)")  # on the last line: elsewhere it is a heading
_FENCE: Final = re.compile(
    r"(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<inside>.*?)(?:\n[ \t]*(?P=fence)[ \t]*|(?P=fence)[ \t]*\Z|\Z)", re.DOTALL
)
_INLINE_FENCE: Final = re.compile(r"```(?:[A-Za-z][\w+-]*[ \t]+(?=[{\[\"]))?(.+)```", re.DOTALL)
_TAGGED: Final = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[^\s{}$]+))")
_BETWEEN_BOXES: Final = re.compile(r"[\s$,;&]*(?:and|or)?[\s$,;&]*(?:[a-zA-Z](?:_\{?\w+\}?)?\s*=\s*)?[\s$]*")

# One form of each: dashes and minus signs, quotes, fraction slash, stops of Chinese and Japanese.
_ONE_FORM: Final = str.maketrans(
    "‐‑‒–—―−﹣－‘’‚‛′“”„‟″⁄∕。、\u00a0\u202f",
    "---------'''''\"\"\"\"\"//.,  ",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad",
)
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT: Final = re.compile("[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_MIXED: Final = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_PLAIN_TEXT: Final = re.compile(r"\$*\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}\$*")
_LATEX_TEXT: Final = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_STRUCK: Final = re.compile(r"(?<![~\w])~~(?=\S)[^~\n]{1,200}(?<=\S)~~(?!~)(?=.*\S)", re.DOTALL)
_TAGS: Final = re.compile(
    r"<(?P<name>b|strong|i|em|u|p|span|div|mark|code)\b[^<>]{0,200}>(?P<inside>.+)</(?P=name)>",
    re.DOTALL | re.IGNORECASE,
)
_MARKER: Final = re.compile(r"^(?:> ?)?(?:[-*•] )?(?=[^\W\d]|\*\*|[\"'`(])")  # of a quote or a list; "- 5" is a number
_THOUSANDS: Final = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,]*\d)")
_LEAD: Final = re.compile(
    rf"^(?:(?:so|thus|therefore|hence),? )?(?:the|my) (?:(?:final|correct) )?{_WORDS} (?:is|was):? ", re.IGNORECASE
)
_AROUND: Final = ("**", "__", "`", '"', "*", "_", "'", "«»")
_TRAILING: Final = ".,;:!?"


class EntireAnswer(str):
    """A text that is the answer as a whole: ``answer_in`` looks for no part of it."""

    __slots__ = ()


class MarkedAnswer(str):
    """The text behind "Answer:", whose beginning is the answer."""

    __slots__ = ()


def answer_in(text: str) -> str:
    """The answer in a text, without thoughts: what comes last between ``<answer>`` tags; of that what follows the last
    line that begins with "Answer:" (or with "####" on the last line); of that the LaTeX box, without a fence, code
    quotes and bold marks around. Where one of them is not there, the whole counts. Of a ``EntireAnswer`` only thoughts,
    and what is around all of it, are taken off."""
    whole = isinstance(text, EntireAnswer)
    answer = _unwrapped(without_thoughts(text), whole=whole)
    return EntireAnswer(answer) if whole else answer


def _unwrapped(text: str, *, whole: bool) -> str:
    tagged = None if whole else _TAGGED.findall(text)
    text = tagged[-1] if tagged else text
    if not whole and "~~" in text:
        text = _STRUCK.sub("", text)
    marks = [] if whole else _marks_in(text)
    answer = (text[marks[-1].end() :] if marks else text).strip()
    answer = unfenced(answer)
    boxed = None if whole else boxes_in(answer)
    form: type[str] = MarkedAnswer if marks and boxed is None else str
    answer = boxed if boxed is not None else answer
    if (plain := _PLAIN_TEXT.fullmatch(answer)) is not None:
        answer = plain[1].strip()
    if answer.endswith("**") and answer.count("**") == 1:  # "**Answer: 42**"
        answer = answer[:-2].strip()
    for mark in ("**", "`"):
        inside = answer[len(mark) : -len(mark)].strip()
        if inside and mark not in inside and answer == f"{mark}{answer[len(mark) : -len(mark)]}{mark}":
            answer = inside
    return form(answer)


def _marks_in(text: str) -> list[re.Match[str]]:
    """Marks in front of answers, in the order of the text."""
    found = [*_MARK.finditer(text), *_HEADED.finditer(text)]
    return sorted(found, key=lambda mark: mark.end()) or list(_GSM8K.finditer(text))


def without_latex_text(text: str) -> str:
    """The text without LaTeX's commands for text around its words."""
    return _LATEX_TEXT.sub(r"\1 ", text).strip("$ ") if "\\" in text else text


def without_tags(text: str) -> str:
    """The inside of HTML's tags for type that are around the whole text."""
    while (found := _TAGS.fullmatch(text)) is not None and f"<{found['name']}" not in found["inside"]:
        text = found["inside"].strip()
    return text


def unfenced(text: str) -> str:
    """The inside of a fence that is the whole text; else the text."""
    if not text.startswith(("```", "~~~")):
        return text
    if (fence := _FENCE.fullmatch(text)) is not None and fence["fence"] not in fence["inside"]:
        return fence["inside"].strip()
    inline = _INLINE_FENCE.fullmatch(text)
    return inline[1].strip() if inline is not None and "```" not in inline[1] else text


def fences_in(text: str) -> list[str]:
    """The insides of all fences of a text."""
    return [fence["inside"].strip() for fence in _FENCE.finditer(text)] if "```" in text or "~~~" in text else []


def boxes_in(text: str) -> str | None:
    """The content of the last LaTeX box; of several that are listed together all of them. None: there is no box."""
    found = list(_BOX.finditer(text))[-MAX_BOXES:] if "box" in text else []
    if not found:
        return None
    spans = [_boxed(text, box) for box in found]
    contents = [spans[-1][1]]
    for (_, content, end), after in zip(reversed(spans[:-1]), reversed(found[1:]), strict=True):
        if not _BETWEEN_BOXES.fullmatch(text[end : after.start()]):
            break
        contents.insert(0, content)
    return ", ".join(contents)


def _boxed(text: str, box: re.Match[str]) -> tuple[int, str, int]:
    """(where the box begins, its content, where it ends); one that is never closed ends with the text."""
    if box["bare"]:
        return box.start(), box["bare"].rstrip(".,;"), box.end()
    depth = 1
    for at in range(box.end(), len(text)):
        if text[at] in "{}" and text[at - 1] != "\\":
            depth += 1 if text[at] == "{" else -1
            if depth == 0:
                return box.start(), text[box.end() : at].strip(), at + 1
    return box.start(), text[box.end() :].strip(), len(text)


def one_form(text: str) -> str:
    """The text with one form of each character: NFKC, one minus, one quote; superscripts as powers."""
    if text.isascii():
        return text
    text = _SUPERSCRIPT.sub(lambda found: f"^{found[0].translate(_SUPERSCRIPTS)}", _MIXED.sub(" ", text))
    return unicodedata.normalize("NFKC", text.translate(_ONE_FORM)).translate(_ONE_FORM)


def comparable(text: str, *, case_sensitive: bool = False) -> str:
    """The form in which two texts are compared: one form of each character and of white space, numbers without
    thousands separators, no quotes or marks around, no punctuation behind."""
    plain = _MARKER.sub("", " ".join(one_form(without_tags(text[:MAX_ANSWER].strip())).split()))
    plain = _THOUSANDS.sub(lambda found: found[1].replace(",", ""), _LEAD.sub("", plain))
    return _bare(plain) if case_sensitive else _bare(plain).casefold()


def _bare(text: str) -> str:
    """Without marks around and punctuation behind, unless nothing is left."""
    while True:
        bare = text.rstrip(_TRAILING + " ")
        if bare[-1:].isdigit() and text[len(bare) :].lstrip().startswith("!") and not any(map(str.isalpha, bare)):
            bare += "!"  # of a number a factorial
        for mark in _AROUND:
            first, last = (mark[0], mark[1]) if mark == "«»" else (mark, mark)
            if len(bare) > len(first + last) and bare.startswith(first) and bare.endswith(last):
                inside = bare[len(first) : -len(last)]
                bare = inside.strip() if first not in inside else bare
        if bare in ("", text):
            return text
        text = bare
