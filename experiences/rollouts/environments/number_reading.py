"""Numbers as people and models write them, read exactly: signs, fractions, powers, LaTeX, currencies, separators."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final

from experiences.rollouts.environments.number_forms import money_in, plain_numbers, unit_of
from experiences.rollouts.environments.number_words import with_digits
from experiences.rollouts.environments.short_answers import shortened
from experiences.rollouts.tools.base import ToolError
from experiences.rollouts.tools.expression import applied, folded, parsed

MAX_DIGITS: Final = 400
MAX_BITS: Final = 20_000
CLOSE: Final = Fraction(1, 10**9)  # relative: the digits that a number of floating point keeps, with room
NOISE: Final = Fraction(1, 10**6)  # absolute, beside a whole number

MAX_FACTORIAL: Final = 1_000
NEAR: Final = 200  # characters before a number that can change it
MAX_BETWEEN: Final = 60  # characters of words around two numbers that are offered together

_SCALES: Final = {
    "k": 10**3, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12, "lakh": 10**5, "crore": 10**7,
}  # fmt: skip
_WORD: Final = re.compile(r"\s*([a-z¢]+(?:/[a-z]+)?)", re.IGNORECASE)
_LEADING_ZEROS: Final = re.compile(r"(?<![\d.])0+(?=\d)")  # Python's parser refuses them
_NUMBER: Final = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}(?![\w.]))?"
_EXPRESSION: Final = re.compile(
    rf"(?:[-+] ?)?\(?(?:[-+] ?)?\(?{_NUMBER}\){{0,3}}(?:\s*(?:\*\*|[-+*/^])\s*\({{0,3}}[-+]?{_NUMBER}\){{0,3}})*"
)
_SCALED: Final = re.compile(rf"\s*((?i:{'|'.join(list(_SCALES)[1:])}))s?\b|(k)\b")
_FACTORIAL: Final = re.compile(r"\s*!(?![!=])|\s*factorial\b", re.IGNORECASE)
_PERCENT: Final = re.compile(r"\s*(?:%|percent\b|per cent\b|pct\b)", re.IGNORECASE)
_PERCENT_SIGN: Final = re.compile(rf"(?<=\d)(?:\\(?=%))?{_PERCENT.pattern}", re.IGNORECASE)
_ASKS_FOR_PERCENT: Final = re.compile(
    r"\b(?:what|which|how many|the) (?:(?:is|was|the|total|exact|approximate|overall) )*percent(?:age)?s?\b"
    r"|\b(?:as an?|in) (?:\w+ )?percent(?:age)?\b|\((?:in )?%\)",
    re.IGNORECASE,
)
_RELATION: Final = re.compile(r"[<>≤≥≠≮≯∈±]|\\(?:le|ge|ne|pm|in)q?(?![a-zA-Z])|!=")
_SYMBOLS: Final = re.compile(
    r"\\|[√π∞θ_^{}|⌊⌋⌈⌉]|\b(?:sqrt|pi|log|lg|ln|exp|sin|cos|tan|infinity|mod)(?![a-z])", re.IGNORECASE
)
# Words and signs beside a number by which a text says something else: a bound, a range, a denial, an operation.
_UNCLEAR_BEFORE: Final = re.compile(
    r"(?:\bnot|n't|\bno longer|\b(?:can't|cannot|not) be|\bmod|\bthan|\bat (?:least|most)|\bup to|\balmost"
    r"|\bnearly|\bover|\bunder|\babove|\bbelow"
    r"|\broot of|\bhalf of|\btwice|\bdouble|\btriple|\btimes|\bplus|\bdivided by|\bmultiplied by|\d\s+choose"
    r"|\d\s+to|\d\s+(?:out\s+)?of|(?<![-=])[<>]=?|[≤≥≠≮≯±]|!=|\+/?)\s*$|\bbetween\b[^.;]*\band\s*$|\d[:.~_]*$|[a-zA-Z]{2}$",
    re.IGNORECASE,
)
_UNCLEAR_AFTER: Final = re.compile(
    r"\s*(?:!!|‰|per ?mille?\b|basis points?\b|bps\b|squared\b|cubed\b|hal(?:f|ves)\b|thirds?\b|fifths?\b|tenths?\b"
    r"|hundredths?\b|(?:four|six|seven|eigh|nin)ths?\b|s\b(?<=[1-9]\d0s)|thousandths?\b|choose\b"
    r"|to the (?:power|\w+ power)\b"
    r"|(?:is|was|would be)(?:n't|\s+(?:not|wrong|incorrect|false))\b"
    r"|or (?:more|less|fewer|higher|lower|above|below)\b|at (?:least|most)\b|can(?:'t|not) be\b)"
    r"|\s?[-+]\s*$|\s*mod\b|[:_]\d|\.\.|[KMB]\b|bn\b|mn\b|[abcnxyz]{2,4}\b|[xb][\da-f]"
)
_TOUCHED_BEFORE: Final = re.compile(
    r"(?:\b(?:log|lg|ln|exp|sin|cos|tan|sqrt)(?:_\{?\w+\}?|\d+)?(?: of)?|\\[a-zA-Z]+|[√_^{⌊⌈\\]\s*|\|(?=$))[(\[{]*\s*$",
    re.IGNORECASE,
)
_TOUCHED_AFTER: Final = re.compile(
    r"\|(?!\s*$)|\s*(?:[!_⌋⌉√π]|pi\b|[-+*/^]\s*[a-zA-Z]\b|[nxyz]\b)|(?![mghsLJNWVKC]\b)[a-zA-Z](?![a-zA-Z])"
)
_UNKNOWN: Final = re.compile(r"[-+*/^(]?\s*[a-zA-Zπ]\s*(?:[-+*/^)]|$)|[a-zA-Z]\(")
_LETTER_UNIT: Final = re.compile(r"\s?(?:[mghsLNJWVK]|[mg]/[a-zA-Z]{1,3})[\s.]*$")
_SIZE: Final = r"(?:large|big|small|high|low|much|many|few|little|long|short|great|far|early|late|heavy)"
_IS: Final = r"(?:is|was|are|were|would be|will be|seems?|seemed|looks?|turns out to be)"
# Words behind a number, and behind its noun, by which a text says that the number is not the answer.
_NOUN: Final = r"(?:\s+(?!is\b|was\b|are\b|were\b)[a-z]+){0,2}?"
_MUCH: Final = r"(?:(?:\w+ly|much|far|way|just|still|also)\s+)?"
_DENIED_AFTER: Final = re.compile(
    rf"{_NOUN}\s+{_IS}\s+{_MUCH}(?:too\s+{_SIZE}\b|ruled out|excluded|impossible|invalid|incorrect|wrong|false\b|out of"
    r"|insufficient|a wrong|the wrong|not (?:enough|possible|right|correct|valid|allowed|the answer))"
    rf"|{_NOUN}\s+(?:does|do|did|would|will|could|can)(?:n['’]?t| not|not)\s+"
    r"(?:work|fit|hold|satisfy|solve|count|qualify)"
    r"|(?:\s+[a-z]+)?\s+(?:fails?|failed)\b"
    r"|,?\s+(?:but|which|that|and that)\s+(?:it |that |this )?(?:is|was|does|did)"
    r"(?:n['’]?t|\s+(?:not|wrong|incorrect|false|impossible|too))\b",
    re.IGNORECASE,
)
_SENTENCE_ENDS: Final = re.compile(r"[.;!?]\s+|\n")
_FIRST_SENTENCE: Final = re.compile(r"([^\n]{1,80}?)[.!]\s+(?=[A-Z(])(.*)", re.DOTALL)
# Text behind a first sentence that is only a number, where the text does not explain it: numbered steps, a conclusion.
_GOES_ON: Final = re.compile(
    r"(?:^|\s)\(?2[.)]\s|\b(?:answer|total|therefore|thus|hence|so|result|finally|wait|actually|correction|sorry)\b",
    re.IGNORECASE,
)
_REASON: Final = re.compile(
    r"[,;.(]?\s+(?:because|since|as|so(?![^\n]*= *-?[\d.]+[\s.)]*$)|which|where)\b|\s\((?=[^()]*\)[\s.]*$)"
    r"|(?<!\bis)(?<!\bwas),?\s+(?:not|rather than|instead of)\s+[-+$]?\d",
    re.IGNORECASE,
)
# A sentence that ends with a number and its noun, and explains them: "It takes 160 minutes (2 hours and 40 minutes)".
_GLOSSED: Final = re.compile(
    r"([^()]*\d(?: [a-zA-Z]+){0,2}) \((?![^()]*\b(?:total|altogether|sum|answer|so|or|wrong)\b)[^()=]*\d[^()=]*\)[\s.]*"
)
# A text by which its number is no answer: there is none.
_REFUSED: Final = re.compile(
    r"\b(?:(?:can(?:not|['’]t| not)|could(?:n['’]t| not)|unable to|impossible to|not (?:able|possible) to|no way to)\s+"
    r"(?:\w+ly )?(?:be )?(?:determined?|answer(?:ed)?|say|know|computed?|calculated?|help|solved?|found|find"
    r"|conclude|decide|provide|give)|(?:not|isn['’]t|without) enough (?:information|data|context)"
    r"|insufficient (?:information|data|context))\b"
    r"(?:(?!\b(?:but|so|therefore|thus|hence|however|still|guess|answer is|estimate)\b|[=.;]).)*$",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED_AFTER: Final = re.compile(
    r"[^.;=\d]{0,60},?\s+(?:so|and|but|therefore),? (?:i|we) (?:can(?:not|['’]t)|am unable|do(?:n['’]t| not) know)\b",
    re.IGNORECASE,
)
_HEDGE: Final = (
    r"(?:maybe|perhaps|possibly|even|either|both|the|answers?|solutions?|values?|are|is|it|they|[a-z]\s*=|[:\s])*"
)
_ALTERNATIVE: Final = re.compile(rf"(?:\bor|/|\bvs\.?){_HEDGE}$", re.IGNORECASE)
_LISTED: Final = re.compile(rf"\s*[,;&]?\s*(?:and)?\s*{_HEDGE}", re.IGNORECASE)
_LIST_BEGINS: Final = re.compile(rf"\W*{_HEDGE}\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NumberReading:
    """A number in a text. ``alone``: nothing else is there but a unit, ``bare``: not even that; ``surely``: no symbol
    beside it changes what the text says; ``touched``: such a symbol is at the number itself; ``unclear``: the text
    offers more than one, bounds it or denies it; ``denied``: it says that this is not the answer. ``unit`` is "" where
    there is none that is known."""

    value: Fraction
    percent: bool = False
    alone: bool = False
    bare: bool = False
    surely: bool = True
    touched: bool = False
    unclear: bool = False
    unit: str = ""
    denied: bool = False


def reading_of(text: str) -> NumberReading | None:
    """The number that a text gives as its answer: of a first line or sentence that is a number that one, else the last
    of all."""
    text = type(text)(with_digits(text))
    for part in (*shortened(text), text):
        found = _reading(plain_numbers(part.strip()))
        if found is not None and (found.alone or part is text):
            return replace(found, unit=found.unit or money_in(part))
    return None


def same_number(one: Fraction, other: Fraction, allowed: Fraction | float = 0) -> bool:
    """Whole numbers are the same if they are equal; others within a relative 1e-9; all within ``allowed``."""
    if one == other or abs(one - other) <= allowed:
        return True
    if one.denominator == 1 and other.denominator == 1:
        return False
    apart = abs(one - other)
    return apart <= CLOSE * max(abs(one), abs(other)) and (
        apart < NOISE or (one.denominator > 1 and other.denominator > 1)
    )


def same_reading(expected: NumberReading, answer: NumberReading, allowed: Fraction | float = 0) -> bool:
    """Whether an answer gives the expected number, or one within ``allowed`` of it. 7 % is 0.07, and the number 7 only
    where 7 % is expected: there an answer may leave out the sign. Units that are known have to be the same where both
    have one."""
    if units_differ(expected, answer):
        return False
    expected, answer = _in_dollars(expected, answer), _in_dollars(answer, expected)
    if expected.percent == answer.percent:
        return same_number(expected.value, answer.value, allowed)
    if answer.percent:
        return same_number(expected.value, answer.value / 100, allowed)
    return same_number(expected.value, answer.value, allowed) or same_number(
        expected.value / 100, answer.value, allowed and allowed / 100
    )


def asks_for_percent(query: str) -> bool:
    """Whether a question asks for a percentage, so that the number 7 and 7 % are the same answer to it."""
    return bool(_ASKS_FOR_PERCENT.search(query))


def without_percent(text: str) -> str:
    """The text without the percent signs behind its numbers."""
    return _PERCENT_SIGN.sub("", text)


def units_differ(one: NumberReading, other: NumberReading) -> bool:
    """Whether both have a unit that is known, and not the same."""
    units = {one.unit, other.unit}
    if "bc" in units:
        return len(units) > 1
    return bool(one.unit and other.unit) and len(units) > 1 and units != {"cent", "dollar"}


def _in_dollars(reading: NumberReading, other: NumberReading) -> NumberReading:
    """Cents beside dollars as dollars."""
    if (reading.unit, other.unit) != ("cent", "dollar"):
        return reading
    return replace(reading, value=reading.value / 100, unit="dollar")


def _reading(text: str) -> NumberReading | None:
    first, _, rest = text.partition("\n")
    if first != text and (found := _read(first)) is not None and found.alone:
        second = _read(rest.strip().split("\n", 1)[0])
        another = second is not None and second.bare and second.value != found.value
        return replace(found, unclear=found.unclear or another)
    sentence = _FIRST_SENTENCE.match(text)
    if sentence is not None and not _GOES_ON.search(sentence[2]):
        found = _read(sentence[1])
        if found is not None and found.bare:
            return found
    cut = _REASON.search(text)
    if cut is not None and not _DENIED_AFTER.match(text, cut.start()):
        found = _read(text[: cut.start()])
        if found is not None and found.alone and not found.denied:
            return found
        if found is not None and (gloss := _GLOSSED.fullmatch(text)) is not None:
            head = _read(gloss[1])
            if head is not None and head.surely and not (head.denied or head.unclear):
                return head
    return _read(text)


def _read(text: str) -> NumberReading | None:
    found = _last(text)
    if found is None:
        return None
    value, start, end = found
    percent = _PERCENT.match(text, end)
    end = percent.end() if percent else end
    before, after = text[:start], text[end:]
    denied = bool(_DENIED_AFTER.match(after))
    if denied and (ends := list(_SENTENCE_ENDS.finditer(before))) and (earlier := _read(before[: ends[-1].start()])):
        return earlier  # a sentence that speaks of another number is no answer
    near = before[-NEAR:]
    rest = f"{before} {after}"
    touched = bool(
        _TOUCHED_BEFORE.search(near)
        or _TOUCHED_AFTER.match(after)
        or re.search(r"[a-zA-Z)]\s*[*/^]\s*$|(?<![a-zA-Z])[a-zA-Z]$|\b[a-zA-Z]\s*[-+]\s*$", near)
    )
    surely = not (
        touched
        or _SYMBOLS.search(rest)
        or _RELATION.search(rest)
        or (_UNKNOWN.match(after.lstrip(")] ")) and not _LETTER_UNIT.match(after))
        or before.rstrip()[-1:] in ("(", "[")
    )
    lone = not re.search(r"[\d=:]", rest) and len(rest.split()) <= 3
    bare = not rest.strip(" .,;:!*_`\"'()")
    word = _WORD.match(after)
    unit = word[1].lower() if word else ""
    return NumberReading(
        value,
        percent is not None,
        lone and surely,
        bare and surely,
        surely,
        touched,
        denied
        or bool(_REFUSED.search(near) or _REFUSED_AFTER.match(after))
        or bool(_UNCLEAR_BEFORE.search(near) or _UNCLEAR_AFTER.match(after))
        or _several(before, after, value),
        unit_of(unit),
        denied,
    )


def _several(before: str, after: str, value: Fraction) -> bool:
    """Whether another number is offered beside the last one: "4 or 5", "4, 5"."""
    if _last(after) is not None:
        return True
    if (other := _last(before)) is None:
        return False
    first, between = before[: other[1]], before[other[2] :]
    listed = max(len(first), len(between)) <= MAX_BETWEEN and bool(
        _LISTED.fullmatch(between) and _LIST_BEGINS.fullmatch(first)
    )
    return other[0] != value and bool(_ALTERNATIVE.search(between[-MAX_BETWEEN:]) or listed)


def _last(text: str) -> tuple[Fraction, int, int] | None:
    """(value, start, end) of the last expression of numbers."""
    for match in reversed(list(_EXPRESSION.finditer(text))):
        start, written = match.start(), match.group()
        if written[0] in "+-" and start and text[start - 1].isalnum():  # the hyphen of a word
            start, written = start + 1, written[1:]
        value, written = _value(written)
        if value is not None:
            end = start + len(written)
            if scaled := _SCALED.match(text, end):
                value, end = value * _SCALES[(scaled[1] or scaled[2]).lower()], scaled.end()
            simple = value.denominator == 1 and 0 <= value <= MAX_FACTORIAL and written.isdecimal()
            if simple and (factorial := _FACTORIAL.match(text, end)):
                value, end = Fraction(math.factorial(int(value))), factorial.end()
            return value, start, end
    return None


def _value(written: str) -> tuple[Fraction | None, str]:
    """(value, the part of the text that it is of). A bracket that belongs to the text around is left out."""
    while written.count(")") > written.count("(") and written.endswith(")"):
        written = written[:-1]
    opened = written.count("(") - written.count(")")
    source = written.replace("(", "", opened) if opened > 0 else written
    if sum(map(str.isdigit, source)) > MAX_DIGITS:
        return None, written
    source = _LEADING_ZEROS.sub("", source.replace("^", "**").strip())
    try:
        return Fraction(Decimal(source)), written
    except (InvalidOperation, ValueError, OverflowError):
        pass
    try:
        return _exact(parsed(source), source), written
    except (ToolError, InvalidOperation, ValueError, OverflowError, ZeroDivisionError):
        return None, written


def _exact(tree: ast.expr, source: str) -> Fraction:
    def number(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float()):
                return Fraction(Decimal(ast.get_source_segment(source, node) or "NaN"))
        raise ToolError("not an expression of numbers")

    return folded(tree, number, _with_powers)


def _with_powers(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case ast.Add() | ast.Sub() | ast.Mult() | ast.Div():
            return applied(operator, left, right)
        case ast.Pow():
            size = max(left.numerator.bit_length(), left.denominator.bit_length())
            if right.denominator == 1 and size * abs(right) <= MAX_BITS:
                return left ** int(right)
    raise ToolError("an operator that is not known here, or a value that is too large")
