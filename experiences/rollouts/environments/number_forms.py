"""Numbers and units in one form each: currencies, separators, LaTeX, ranges, names of units."""

from __future__ import annotations

import re
from typing import Final

from experiences.rollouts.environments.answers import MAX_ANSWER, one_form, without_tags

_CURRENCY: Final = re.compile(r"(?:\bUS|\bC|\bA)?\\?[$€£¥₹₽₩]|\b(?:USD|EUR|GBP|INR|CAD|AUD|CHF|JPY|Rs\.?) ?(?=\d)")
_SPACES: Final = re.compile(r" {2,}")
_CALCULATOR: Final = re.compile(r"<<[^<>\n]*>>")  # of GSM8K's answers
_THIN: Final = re.compile(r",\s*\\!\s*")
_REPEATING: Final = re.compile(
    r"(?<![\d.,])(\d+)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{?(\d+)\}?|(\d{1,6}?)\4{2,}\d?(?:\.\.\.|…))"
)
_OUT_OF: Final = re.compile(r"\W*(\d+) (?:in|out of) (?:every )?(\d+)\W*")
_IN_BRACKETS: Final = re.compile(r"\( ?(\\?[$€£¥] ?[\d,.]+) ?\)")  # as accounts write what is below zero
_AND_CENTS: Final = re.compile(r"(?<!\d)(\d{1,15}) (dollar|euro)s?,? (?:and )?(\d{1,2}) cents?\b", re.IGNORECASE)
_SHORT_SCALE: Final = re.compile(r"([$€£¥₹] ?\d[\d,.]*) ?(?:(k)|(m|mn)|(b|bn))\b", re.IGNORECASE)
_MONEY: Final = {"€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "₽": "rouble", "₩": "won"}
# Names of units, of which two that differ are never the same.
_UNITS: Final = {
    name: names.split()[0]
    for names in (
        "dollar dollars usd buck bucks", "euro euros eur", "pound gbp quid", "yen jpy", "rupee rupees inr rs",
        "cent cents ¢", "mm millimeter millimeters millimetre millimetres",
        "cm centimeter centimeters centimetre centimetres", "m meter meters metre metres",
        "km kilometer kilometers kilometre kilometres", "in inch inches", "ft foot feet", "yd yard yards",
        "mi mile miles", "mg milligram milligrams", "g gram grams", "kg kilogram kilograms kgs", "lb lbs",
        "oz ounce ounces", "s sec secs second seconds", "ms millisecond milliseconds",
        "min minute minutes mins", "h hr hour hours hrs", "day days", "week weeks", "month months", "year years yrs",
        "degree degrees", "radian radians", "celsius", "fahrenheit", "kelvin",
        "l liter liters litre litres", "ml milliliter milliliters millilitre millilitres", "gal gallon gallons",
        "v volt volts", "w watt watts", "kw kilowatt kilowatts", "kwh", "amp amps ampere amperes", "ohm ohms",
        "hz hertz", "khz kilohertz", "mhz megahertz", "ghz gigahertz", "j joule joules", "kj kilojoule kilojoules",
        "n newton newtons", "pa pascal pascals", "kpa kilopascal kilopascals", "mol mole moles",
        "kcal kilocalorie kilocalories", "kb kilobyte kilobytes", "mb megabyte megabytes", "gb gigabyte gigabytes",
        "tb terabyte terabytes", "bit bits", "byte bytes", "acre acres", "hectare hectares ha", "bc bce", "ad ce",
    )
    for name in names.split()
}  # fmt: skip
_COMPOUND: Final = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h"}
_PER: Final = re.compile(r"(?<=[a-z]) per (?=[a-z])", re.IGNORECASE)
_MONEY_BEFORE: Final = re.compile(r"\b(usd|eur|gbp|inr|jpy|rs)\b", re.IGNORECASE)
_LATEX: Final = (
    (re.compile(r"\\(?:left|right|displaystyle|textstyle|big|Big)(?![a-zA-Z])|\\[,!;: ()\[\]]|~"), " "),
    (re.compile(r"\{,\}"), ","),
    (
        re.compile(r"(?:\^\s*\{?\\circ\}?|\\degree(?![a-zA-Z])|°|\bdegrees?)\s*(?:C\b|celsius\b)", re.IGNORECASE),
        " celsius ",
    ),
    (
        re.compile(r"(?:\^\s*\{?\\circ\}?|\\degree(?![a-zA-Z])|°|\bdegrees?)\s*(?:F\b|fahrenheit\b)", re.IGNORECASE),
        " fahrenheit ",
    ),
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
_SIGNS: Final = str.maketrans("×·⋅∙∗÷≈٫٬", "*****/=.,")
_LENGTH: Final = r"(?:[cdkm]?m|in|ft|yd|mi|(?:centi|kilo|milli)?met(?:er|re)s?|inch(?:es)?|f(?:oo|ee)t|yards?|miles?)"
_UNIT: Final = re.compile(
    rf"\b({_LENGTH}|(?<=/)(?:s|h|min|seconds?))\s*"
    r"(?:\^\s*\(?(?P<power>[23])\)?(?![\w^])| (?P<word>squared|cubed)\b)"
)
_SQUARE: Final = re.compile(rf"\b(?:(?P<square>square|sq\.?)|cubic|cu\.?) (?={_LENGTH}\b)", re.IGNORECASE)
_MINUS: Final = re.compile(r"\b(?:minus|negative)\s+(?=[\d.])", re.IGNORECASE)
_BY_X: Final = re.compile(r"(?<!\b0(?=[xX]))(?<=\d) ?[xX] ?(?=\d)")
_MIXED: Final = re.compile(
    r"(?<![\d.)/*^+])(?<![\d/*^+] )(?<![\w)]-)(?<![\w)] -)\b(\d+)\s+\(?(\d+)\)?/\(?(\d+)\)?(?![\d/])"
)
# A dash, and a hyphen between a smaller and a larger number, is a range; a minus sign is none.
_RANGE: Final = re.compile(r"(?<![\d.^*/+\-–])(\d+(?:\.\d+)?)(-|\s*[‒–—]\s*)(\d+(?:\.\d+)?)(?![\d.]*\d|\s*[-*/^+])")
_DATE: Final = re.compile(r"\b(\d{4})-(\d\d?)-(\d\d?)\b")
_SUBSCRIPT: Final = re.compile(r"(?<=[\d)])([₀-₉]+)")
_SEPARATED: Final = (
    re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,]*\d)"),  # 1,234,567.5
    re.compile(r"(?<![\d.,])\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?![\d,]*\d)"),  # 12,34,567 as in India
    re.compile(r"(?<![\d.,])\d{1,3}(?:[ '_]\d{3})+(?:\.\d+)?(?![\d]|[ '_]\d)"),  # 1 234 567
)
_POINTS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?!\d)|(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.]*\d)")
_COMMA: Final = re.compile(r"(?<![\d.,] )(?<![\d.,(\[{])(\d+),(\d{1,2})(?![\d,]*\d)(?!\s*[)\]}])")


def plain_numbers(text: str) -> str:
    """The text with its numbers in one form: no currency, no separators, LaTeX's fractions and powers as operators."""
    text = without_tags(text[:MAX_ANSWER])
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    if "\\!" in text:
        text = _THIN.sub(",", text)
    if (part := _OUT_OF.fullmatch(text)) is not None:
        return f"{part[1]}/{part[2]}"
    if (below := _IN_BRACKETS.fullmatch(text.strip())) is not None:
        text = f"-{below[1]}"
    text = _REPEATING.sub(_as_fraction, text)
    text = _RANGE.sub(_as_range, _SUBSCRIPT.sub(r"_\1", text))
    text = one_form(_DATE.sub(r"\1:\2:\3", text))
    if "\\" in text or "{" in text or "°" in text or "egree" in text:
        for pattern, by in _LATEX:
            text = pattern.sub(by, text)
        text = _LATEX[7][0].sub(_LATEX[7][1], text)  # a fraction within a fraction
    text = _AND_CENTS.sub(lambda found: f"{found[1]}.{found[3]:0>2} {found[2]}s", text)
    text = _SHORT_SCALE.sub(_with_scale, text)
    text = _SPACES.sub(" ", _CURRENCY.sub(" ", text).translate(_SIGNS))
    for pattern in _SEPARATED:
        text = pattern.sub(lambda found: re.sub(r"[ ,'_]", "", found[0]), text)
    text = _POINTS.sub(lambda found: found[0].replace(".", "").replace(",", "."), text)
    text = _COMMA.sub(r"\1.\2", text)
    text = _MINUS.sub("-", _SQUARE.sub(_as_power, _UNIT.sub(_with_power, _BY_X.sub("*", text))))
    return _MIXED.sub(r"(\1+\2/\3)", _PER.sub("/", text))


def _as_range(found: re.Match[str]) -> str:
    ascends = len(found[1]) < 300 > len(found[3]) and float(found[1]) < float(found[3])
    return f"{found[1]} to {found[3]}" if found[2] != "-" or ascends else found[0]


def _as_fraction(found: re.Match[str]) -> str:
    """A decimal that repeats, as an exact fraction."""
    first, again = found[2], found[3] or found[4]
    if len(found[1] + first + again) > 30:
        return found[0]
    below = (10 ** len(again) - 1) * 10 ** len(first)
    above = int(found[1] + first + again) - int(found[1] + first)
    return f"({above})/({below})"


def _with_scale(found: re.Match[str]) -> str:
    return f"{found[1]} {'thousand' if found[2] else 'million' if found[3] else 'billion'}"


def _with_power(found: re.Match[str]) -> str:
    return f"{'sq' if found['power'] == '2' or found['word'] == 'squared' else 'cub'}{found[1]}"


def _as_power(found: re.Match[str]) -> str:
    return "sq" if found["square"] else "cub"


def money_in(text: str) -> str:
    """The currency of a text that has one sign of money; "" for none. Dollars in pairs are LaTeX."""
    named = {_MONEY[sign] for sign in text if sign in _MONEY} | {
        _UNITS[found.lower()] for found in _MONEY_BEFORE.findall(text)
    }
    if "\\$" in text or text.count("$") % 2:
        named.add("dollar")
    return named.pop() if len(named) == 1 else ""


def unit_of(name: str) -> str:
    """The first name of a unit; "" where it is not known."""
    over, slash, under = _COMPOUND.get(name, name).partition("/")
    for power in ("sq", "cub"):
        if over.removeprefix(power) in _UNITS and over not in _UNITS:
            over = f"{power}{_UNITS[over.removeprefix(power)]}"
            return f"{over}/{_UNITS.get(under, under)}" if slash else over
    if slash:
        powers = next((power for power in ("sq", "cub") if under.startswith(power)), "")
        named = under.removeprefix(powers)
        return f"{_UNITS.get(over, over)}/{powers}{_UNITS.get(named, named)}"
    return _UNITS.get(name, "")
