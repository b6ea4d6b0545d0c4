"""Number systems: converting between bases, and writing hexadecimal literals as decimal ones."""

from __future__ import annotations

import re

from experiences.rollouts.tools.base import FunctionTool, ToolError

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAMED_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
_BASE = r"(?:base[- ](?P<{0}_base>\d{{1,2}})|(?P<{0}_name>binary|octal|decimal|hexadecimal))"
_FROM, _TO = _BASE.format("from"), _BASE.format("to")
_VALUE = r"(?P<value>[0-9a-zA-Z]*)"
_CONVERSIONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_FROM} (?:number|numeral|value) {_VALUE}\s+(?:written )?(?:to|in|into|as) {_TO}",
        rf"{_FROM}[^.\n:]*:\s*{_VALUE}\b[^\n]*?{_TO}",
        rf"\b{_VALUE},? (?:is |which is |written |given )+in {_FROM}\b.*?{_TO}",
        rf"\b{_VALUE} from {_FROM} (?:to|into) {_TO}",
    )
)
_HEX_EXPRESSION = re.compile(r"(?:0x[0-9a-fA-F]+|[()+\-*/\s]|<<|>>|\b\d+\b)+")
_HEX_LITERAL = re.compile(r"0x([0-9a-fA-F]{1,400})")


def convert_base(text: str) -> str:
    """The value the text names in one base, written in the other base it names.

    A missing value is read as zero: that is how some texts print it.
    """
    for pattern in _CONVERSIONS:
        found = pattern.search(text)
        if found is not None:
            number = _value(found["value"] or "0", _base(found["from_base"], found["from_name"]))
            return _digits(number, _base(found["to_base"], found["to_name"]))
    raise ToolError("no number and two bases in the text")


def _base(number: str | None, name: str | None) -> int:
    base = int(number) if number else _NAMED_BASES[(name or "").lower()]
    if not 2 <= base <= 36:
        raise ToolError("bases go from 2 to 36")
    return base


def _value(written: str, base: int) -> int:
    if len(written) > 400:
        raise ToolError("the number is too long")
    try:
        return int(written, base)
    except ValueError:
        raise ToolError(f"not a number in base {base}") from None


def _digits(number: int, base: int) -> str:
    written = ""
    while number:
        number, digit = divmod(number, base)
        written = DIGITS[digit] + written
    return written or "0"


def numerals(text: str) -> str:
    """The text's main expression with its hexadecimal literals written as decimal numbers, not evaluated."""
    found = max(_HEX_EXPRESSION.findall(text), key=_hex_length, default="")
    if not _hex_length(found):
        raise ToolError("no hexadecimal literal in the text")
    return " ".join(_HEX_LITERAL.sub(lambda literal: str(int(literal.group(1), 16)), found).split())


def _hex_length(piece: str) -> int:
    return sum(map(len, _HEX_LITERAL.findall(piece)))


CONVERT_BASE = FunctionTool("convert_base", "Converts a number from one base to another.", convert_base)
NUMERALS = FunctionTool("numerals", "Writes hexadecimal literals of an expression as decimals.", numerals)
