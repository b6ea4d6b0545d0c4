"""Tools for everyday questions. No family of the embedded environment needs them; given to it, they are distractors."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from experiences.rollouts.tools.base import FunctionTool, ToolError

_ROMAN = re.compile(r"\b(?=[MDCLXVI]{2})M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_QUANTITY = re.compile(r"\b(\d{1,15}(?:\.\d{1,15})?) ?(\w+) (?:in|into|to) (\w+)\b")
_PERCENTAGE = re.compile(r"\b(\d{1,15}(?:\.\d{1,15})?) ?(?:%|percent) of (\d{1,15}(?:\.\d{1,15})?)")
_CLOCK = re.compile(r"\b([01]?\d|2[0-3]):([0-5]\d)\b")

_UNITS = {
    "length": {"mm": "0.001", "cm": "0.01", "m": "1", "km": "1000", "inches": "0.0254", "feet": "0.3048",
               "yards": "0.9144", "miles": "1609.344"},
    "mass": {"mg": "0.000001", "g": "0.001", "kg": "1", "tonnes": "1000", "ounces": "0.028349523125",
             "pounds": "0.45359237"},
    "time": {"seconds": "1", "minutes": "60", "hours": "3600", "days": "86400", "weeks": "604800"},
}  # fmt: skip
_SIZE_OF = {unit: (kind, Fraction(size)) for kind, units in _UNITS.items() for unit, size in units.items()}


def roman_numeral(text: str) -> str:
    """The value of the first Roman numeral of at least two signs."""
    found = next((match.group() for match in _ROMAN.finditer(text) if match.group()), "")
    if not found:
        raise ToolError("no Roman numeral in the text")
    values = [_ROMAN_VALUES[sign] for sign in found]
    following = [*values[1:], 0]
    return str(sum(-one if one < after else one for one, after in zip(values, following, strict=True)))


def convert_units(text: str) -> str:
    """ "5 km in miles": a length, mass or time in another unit, to six significant digits."""
    for amount, source, target in _QUANTITY.findall(text):
        if source in _SIZE_OF and target in _SIZE_OF:
            (kind, size), (other_kind, other_size) = _SIZE_OF[source], _SIZE_OF[target]
            if kind == other_kind:
                return f"{float(Fraction(amount) * size / other_size):.6g} {target}"
    raise ToolError("no quantity with two units of one kind in the text")


def percentage(text: str) -> str:
    """ "15 % of 80": the part."""
    found = _PERCENTAGE.search(text)
    if found is None:
        raise ToolError("no percentage of a number in the text")
    return f"{(Decimal(found.group(1)) * Decimal(found.group(2)) / 100).normalize():f}"


def time_between(text: str) -> str:
    """ "from 9:40 to 11:05": the time from the first to the second, past midnight if need be."""
    times = [60 * int(hours) + int(minutes) for hours, minutes in _CLOCK.findall(text)]
    if len(times) != 2:
        raise ToolError("not two times of day in the text")
    hours, minutes = divmod((times[1] - times[0]) % (24 * 60), 60)
    return f"{hours}:{minutes:02d}"


ROMAN_NUMERAL = FunctionTool("roman_numeral", "The value of a Roman numeral.", roman_numeral)
CONVERT_UNITS = FunctionTool("convert_units", "A length, mass or time in another unit.", convert_units)
PERCENTAGE = FunctionTool("percentage", "A percentage of a number.", percentage)
TIME_BETWEEN = FunctionTool("time_between", "The time between two times of day.", time_between)
