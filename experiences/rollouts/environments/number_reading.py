"""Numbers as people and models write them, read exactly: signs, fractions, powers, LaTeX, currencies, separators."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final

from experiences.rollouts.environments.answers import MAX_ANSWER, one_form
from experiences.rollouts.tools.base import ToolError
from experiences.rollouts.tools.expression import applied, folded, parsed

MAX_DIGITS: Final = 400
MAX_BITS: Final = 20_000
CLOSE: Final = Fraction(1, 10**9)  # relative: the digits that a number of floating point keeps, with room
NOISE: Final = Fraction(1, 10**6)  # absolute, beside a whole number

_SCALES: Final = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_CURRENCY: Final = re.compile(r"(?:\bUS|\bC|\bA)?\\?[$€£¥₹₽₩]")
_LATEX: Final = (
    (re.compile(r"\\(?:left|right|displaystyle|textstyle|big|Big)(?![a-zA-Z])|\\[,!;: ()\[\]]|~"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\^\s*\{?\\circ\}?|\\degree(?![a-zA-Z])|°"), " degrees "),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)(?!\d)"), r" (\1)/(\2) "),
    (re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r" (\1)/(\2) "),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\\approx(?![a-zA-Z])"), "="),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\^\s*\{([^{}]*)\}"), r"^(\1)"),
)
_SIGNS: Final = str.maketrans("×·⋅∙∗÷≈", "*****/=")
_UNIT: Final = re.compile(r"\b([cdkm]?m|in|ft|yd|mi)\s*\^\s*\(?[23]\)?(?![\w^])")
_MINUS: Final = re.compile(r"\b(?:minus|negative)\s+(?=[\d.])", re.IGNORECASE)
_BY_X: Final = re.compile(r"(?<=\d) ?[xX] ?(?=\d)")
_MIXED: Final = re.compile(r"(?<![\d.)/*^+-])(?<![\d/*^+] )\b(\d+)\s+\(?(\d+)\)?/\(?(\d+)\)?(?![\d/])")
_SEPARATED: Final = (
    re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,]*\d)"),  # 1,234,567.5
    re.compile(r"(?<![\d.,])\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?![\d,]*\d)"),  # 12,34,567 as in India
    re.compile(r"(?<![\d.,])\d{1,3}(?:[ '_]\d{3})+(?:\.\d+)?(?![\d]|[ '_]\d)"),  # 1 234 567
)
_POINTS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?!\d)|(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.]*\d)")
_COMMA: Final = re.compile(r"(?<![\d.,] )(?<![\d.,(\[{])(\d+),(\d{1,2})(?![\d,]*\d)(?!\s*[)\]}])")

_LEADING_ZEROS: Final = re.compile(r"(?<![\d.])0+(?=\d)")  # Python's parser refuses them
_NUMBER: Final = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}(?![\w.]))?"
_EXPRESSION: Final = re.compile(
    rf"(?:[-+] ?)?\(?(?:[-+] ?)?\(?{_NUMBER}\){{0,3}}(?:\s*(?:\*\*|[-+*/^])\s*\({{0,3}}[-+]?{_NUMBER}\){{0,3}})*"
)
_SCALED: Final = re.compile(rf"\s*({'|'.join(_SCALES)})s?\b", re.IGNORECASE)
_PERCENT: Final = re.compile(r"\s*(?:%|percent\b|per cent\b|pct\b)", re.IGNORECASE)
_RELATION: Final = re.compile(r"[<>≤≥≠≮≯∈±]|\\(?:le|ge|ne|pm|in)q?(?![a-zA-Z])|!=")
_SYMBOLS: Final = re.compile(r"\\|[√π∞θ_^{}|]|\b(?:sqrt|pi|log|ln|sin|cos|tan|infinity|mod)\b", re.IGNORECASE)
_DENIED: Final = re.compile(r"(?:\bnot|n't|\bno longer)\s*$|\bbetween\b[^.;]*\band\s*$", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"[-+*/^(]?\s*[a-zA-Zπ]\s*(?:[-+*/^)]|$)|[a-zA-Z]\(")
_REASON: Final = re.compile(r"[,;.(]?\s+(?:because|since|as|so|which|where)\b|\s\((?=[^()]*\)[\s.]*$)", re.IGNORECASE)
_ALTERNATIVE: Final = re.compile(r"\s*(?:,\s*)?(?:or|/|\bvs\.?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NumberReading:
    """A number in a text. ``alone``: nothing else is there but a unit, ``bare``: not even that; ``surely``: no symbol
    beside it changes what the text says; ``several``: the text offers more than one, or denies it."""

    value: Fraction
    percent: bool = False
    alone: bool = False
    bare: bool = False
    surely: bool = True
    several: bool = False

    @property
    def values(self) -> set[Fraction]:
        return {self.value, self.value / 100} if self.percent else {self.value}


def plain_numbers(text: str) -> str:
    """The text with its numbers in one form: no currency, no separators, LaTeX's fractions and powers as operators."""
    text = one_form(text[:MAX_ANSWER])
    if "\\" in text or "{" in text or "°" in text:
        for pattern, by in _LATEX:
            text = pattern.sub(by, text)
        text = _LATEX[5][0].sub(_LATEX[5][1], text)  # a fraction within a fraction
    text = _CURRENCY.sub(" ", text).translate(_SIGNS)
    for pattern in _SEPARATED:
        text = pattern.sub(lambda found: re.sub(r"[ ,'_]", "", found[0]), text)
    text = _POINTS.sub(lambda found: found[0].replace(".", "").replace(",", "."), text)
    text = _COMMA.sub(r"\1.\2", text)
    text = _MINUS.sub("-", _UNIT.sub(r"\1", _BY_X.sub("*", text)))
    return _MIXED.sub(r"(\1+\2/\3)", text)


def number_in(text: str) -> Fraction | None:
    """The last number of a text, an expression of numbers as its value, a percent sign aside; None: there is none."""
    found = _last(plain_numbers(text))
    return None if found is None else found[0]


def reading_of(text: str) -> NumberReading | None:
    """The number that a text gives as its answer: of a first line that is a number that one, else the last of all."""
    text = plain_numbers(text.strip())
    first = text.split("\n", 1)[0]
    if first != text and (found := _read(first)) is not None and found.alone:
        return found
    cut = _REASON.search(text)
    if cut is not None and (found := _read(text[: cut.start()])) is not None and found.alone:
        return found
    return _read(text)


def same_number(one: Fraction, other: Fraction) -> bool:
    """Whole numbers are the same if they are equal; others within a relative 1e-9."""
    if one == other:
        return True
    if one.denominator == 1 and other.denominator == 1:
        return False
    apart = abs(one - other)
    return apart <= CLOSE * max(abs(one), abs(other)) and (
        apart < NOISE or (one.denominator > 1 and other.denominator > 1)
    )


def same_reading(expected: NumberReading, answer: NumberReading) -> bool:
    """Whether an answer gives the expected number. A percentage is its number or a hundredth, but two are compared as
    they are."""
    if expected.percent and answer.percent:
        return same_number(expected.value, answer.value)
    return any(same_number(one, other) for one in expected.values for other in answer.values)


def _read(text: str) -> NumberReading | None:
    found = _last(text)
    if found is None:
        return None
    value, start, end = found
    percent = _PERCENT.match(text, end)
    end = percent.end() if percent else end
    before, after = text[:start], text[end:]
    rest = f"{before} {after}"
    surely = not (
        _SYMBOLS.search(rest)
        or _RELATION.search(rest)
        or _UNKNOWN.match(after.lstrip(")] "))
        or before.rstrip()[-1:] in ("(", "[")
        or re.search(r"[a-zA-Z)]\s*[*/^]\s*$|(?<![a-zA-Z])[a-zA-Z]$|\b[a-zA-Z]\s*[-+]\s*$", before)
    )
    lone = not re.search(r"[\d=:]", rest) and len(rest.split()) <= 3
    several = bool(_DENIED.search(before)) or _several(before, after, value)
    bare = not rest.strip(" .,;:!*_`\"'()")
    return NumberReading(value, percent is not None, lone and surely, bare and surely, surely, several)


def _several(before: str, after: str, value: Fraction) -> bool:
    """Whether another number is offered beside the last one: "4 or 5", "4, 5"."""
    if _last(after) is not None:
        return True
    if (other := _last(before)) is None:
        return False
    between = before[other[2] :]
    listed = bool(re.fullmatch(r"\s*[,;&]?\s*(?:and)?\s*", between)) and not re.search(r"[a-zA-Z]{2}", before)
    return other[0] != value and bool(_ALTERNATIVE.search(between) or listed)


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
                value, end = value * 10 ** _SCALES[scaled[1].lower()], scaled.end()
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
