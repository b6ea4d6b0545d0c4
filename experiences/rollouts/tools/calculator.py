"""The calculator of agents with a language model: a whole expression, exact where it can be, or a reason.

It reads the expression itself and evaluates it as fractions; there is no ``eval``. Each number on the way is bounded,
so that no expression takes long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, DecimalException, localcontext
from fractions import Fraction
from typing import Final, NamedTuple

from experiences.rollouts.tools.base import FunctionTool, ToolError

MAX_LENGTH: Final = 2_000  # characters
MAX_NESTING: Final = 40
MAX_BITS: Final = 10_000  # of a number's numerator and denominator: about 3,000 digits
MAX_EXPONENT: Final = 3_000  # decimal places of a number that is written with e, or computed
MAX_FACTORIAL: Final = 1_000
DIGITS: Final = 20  # of a result that does not end
PRECISION: Final = 60  # digits of what is irrational, before it is rounded

_NUMBER = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?![\d,])(?:\.\d+)?|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_PLAIN = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"[a-z][a-z0-9]*", re.IGNORECASE)
_SIGNS = {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "√": "sqrt"}
_OPERATORS = ("**", "//", "+", "-", "*", "/", "%", "(", ")", ",")


class Token(NamedTuple):
    kind: str  # "number" | "name" | "sign" | "end"
    text: str


def calculator(text: str) -> str:
    """The value of the expression that the whole text is.

    Raises:
        ToolError: it is none, it is not defined, or it is too large.
    """
    if len(text) > MAX_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_LENGTH:,} characters")
    try:
        return _written(_TokenReader(_tokens(text)).whole())
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (ArithmeticError, ValueError):  # of Decimal and math: the logarithm of -1, the exponential of a million
        raise ToolError("not computable: undefined, or too large") from None


class _TokenReader:
    """Reads the tokens by precedence: sums, products, signs, powers (from the right), values."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Fraction:
        value = self._sum()
        if self._now.kind != "end":
            raise _unexpected(self._now.text)
        return value

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _takes(self, *signs: str) -> str:
        """The sign at this place, if it is one of these; "" otherwise."""
        if self._now.kind != "sign" or self._now.text not in signs:
            return ""
        self._at += 1
        return self._tokens[self._at - 1].text

    def _sum(self) -> Fraction:
        value = self._product()
        while sign := self._takes("+", "-"):
            other = self._product()
            value = _limited(value + other if sign == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while sign := self._takes("*", "/", "//", "%"):
            value = _limited(_PRODUCTS[sign](value, self._signed()))
        return value

    def _signed(self) -> Fraction:
        negative = False
        while sign := self._takes("+", "-"):
            negative ^= sign == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Fraction:
        base = self._value()
        return _power(base, self._deeper(self._signed)) if self._takes("**") else base

    def _value(self) -> Fraction:
        kind, text = self._now
        if self._takes("("):
            value = self._deeper(self._sum)
            self._close()
            return value
        self._at += kind != "end"
        if kind == "number":
            return _number(text)
        if kind == "name":
            return self._named(text.lower())
        raise _unexpected(text) if text else ToolError("the expression ends too early")

    def _named(self, name: str) -> Fraction:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            raise ToolError(f"{name[:40]!r} is not known here; functions: {', '.join(FUNCTIONS)}; constants: pi, e")
        if not self._takes("("):
            raise ToolError(f"write {name}(...)")
        given = [self._deeper(self._sum)]
        while self._takes(","):
            given.append(self._deeper(self._sum))
        self._close()
        function, fewest, most = FUNCTIONS[name]
        if not fewest <= len(given) <= most:
            raise ToolError(f"{name} does not take {len(given)} numbers")
        return _limited(function(*given))

    def _close(self) -> None:
        if not self._takes(")"):
            raise ToolError("a parenthesis is not closed")

    def _deeper(self, read: Callable[[], Fraction]) -> Fraction:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ToolError(f"it is nested more than {MAX_NESTING} deep")
        value = read()
        self._depth -= 1
        return value


def _unexpected(text: str) -> ToolError:
    return ToolError(f"not an arithmetic expression: {text!r} is not expected there")


def _tokens(text: str) -> list[Token]:
    """Raises ToolError: there is something that no expression holds."""
    found: list[Token] = []
    calls: list[bool] = []  # for each open parenthesis whether a function's numbers are in it
    at = 0
    text = "".join(_SIGNS.get(character, character) for character in text)
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        # Between the numbers of a function a comma parts them: max(1,234) has two.
        number = (_PLAIN if any(calls) else _NUMBER).match(text, at)
        name = _NAME.match(text, at)
        sign = next((operator for operator in _OPERATORS if text.startswith(operator, at)), "")
        if number is not None:
            token = Token("number", number.group())
        elif name is not None:
            token = Token("name", name.group())
        elif sign:
            token = Token("sign", sign)
        else:
            raise ToolError(f"not an arithmetic expression: {text[at]!r} at character {at + 1}")
        if sign == "(":
            calls.append(bool(found) and found[-1].kind == "name")
        elif sign == ")" and calls:
            calls.pop()
        found.append(token)
        at += len(token.text)
    return [*found, Token("end", "")]


def _number(text: str) -> Fraction:
    digits, _, exponent = text.replace(",", "").lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) > MAX_EXPONENT):
        raise ToolError("a number is too large or too small")
    return _limited(Fraction(digits.rstrip(".")) * Fraction(10) ** int(exponent or 0))


def _limited(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise ToolError("a number on the way is too large, or has too many digits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return _power(root, Fraction(exponent.numerator))
        if base < 0:
            raise ToolError("a root of a negative number is not defined here")
        return _decimal(lambda: _as_decimal(base) ** _as_decimal(exponent))
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) == 1:
        return base ** (exponent.numerator % 2)
    if bits * abs(exponent) > MAX_BITS:
        return _decimal(lambda: _as_decimal(base) ** _as_decimal(exponent))
    return base**exponent.numerator


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    """The root where it is a fraction; None where it is irrational, or not worth the search."""
    if degree > 64 or value < 0:
        return None
    parts = [_whole_root(part, degree) for part in (value.numerator, value.denominator)]
    exact = (parts[0] ** degree, parts[1] ** degree) == (value.numerator, value.denominator)
    return Fraction(parts[0], parts[1]) if exact else None


def _whole_root(number: int, degree: int) -> int:
    """The largest whole number whose power is not above ``number``."""
    if degree == 2:
        return math.isqrt(number)
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle)
    return low


def _decimal(compute: Callable[[], Decimal]) -> Fraction:
    """A value that has no exact form, to ``PRECISION`` digits. The thread's decimal context stays unchanged."""
    with localcontext() as context:
        context.prec = PRECISION
        try:
            value = compute()
        except DecimalException:
            raise ToolError("not computable: undefined, or too large") from None
    if not value.is_finite() or value.adjusted() > MAX_EXPONENT:
        raise ToolError("not computable: undefined, or too large")
    return Fraction(0) if value.adjusted() < -MAX_EXPONENT else Fraction(value)


def _as_decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _round(value: Fraction, places: Fraction = Fraction(0)) -> Fraction:
    """Half is rounded away from zero, as at school."""
    if places.denominator != 1 or abs(places) > 100:
        raise ToolError("round takes a whole number of places, at most 100")
    unit = Fraction(10) ** -places.numerator
    size = math.floor(abs(value) / unit + Fraction(1, 2)) * unit
    return -size if value < 0 else size


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        raise ToolError(f"factorial takes a whole number from 0 to {MAX_FACTORIAL:,}")
    return Fraction(math.factorial(value.numerator))


def _log(value: Fraction, base: Fraction | None = None) -> Fraction:
    if value <= 0 or (base is not None and (base <= 0 or base == 1)):
        raise ToolError("the logarithm is not defined there")
    if base is None:
        return _decimal(lambda: _as_decimal(value).ln())
    return _decimal(lambda: _as_decimal(value).ln() / _as_decimal(base).ln())


def _by_float(function: Callable[[float], float]) -> Callable[..., Fraction]:
    return lambda value: Fraction(repr(round(function(float(value)), 15)))


def _whole(function: Callable[[int, int], int]) -> Callable[..., Fraction]:
    def of(*values: Fraction) -> Fraction:
        if any(value.denominator != 1 for value in values):
            raise ToolError("it takes whole numbers only")
        found = values[0].numerator
        for value in values[1:]:
            found = function(found, value.numerator)
            _limited(Fraction(found))
        return Fraction(abs(found))

    return of


_PRODUCTS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "//": lambda left, right: Fraction(left // right),
    "%": lambda left, right: left % right,
}
MANY: Final = 1_000
FUNCTIONS: Mapping[str, tuple[Callable[..., Fraction], int, int]] = {
    "sqrt": (lambda value: _power(value, Fraction(1, 2)), 1, 1),
    "cbrt": (lambda value: _power(abs(value), Fraction(1, 3)) * (-1 if value < 0 else 1), 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "floor": (lambda value: Fraction(math.floor(value)), 1, 1),
    "ceil": (lambda value: Fraction(math.ceil(value)), 1, 1),
    "min": (min, 2, MANY),
    "max": (max, 2, MANY),
    "gcd": (_whole(math.gcd), 2, MANY),
    "lcm": (_whole(math.lcm), 2, MANY),
    "factorial": (_factorial, 1, 1),
    "exp": (lambda value: _decimal(lambda: _as_decimal(value).exp()), 1, 1),
    "ln": (_log, 1, 1),
    "log": (_log, 1, 2),
    "log10": (lambda value: _log(value, Fraction(10)), 1, 1),
    "log2": (lambda value: _log(value, Fraction(2)), 1, 1),
    "sin": (_by_float(math.sin), 1, 1),
    "cos": (_by_float(math.cos), 1, 1),
    "tan": (_by_float(math.tan), 1, 1),
}
CONSTANTS: Mapping[str, Fraction] = {
    "pi": Fraction("3.14159265358979323846264338327950288419716939937510582097494"),
    "e": Fraction("2.71828182845904523536028747135266249775724709369995957496697"),
}


def _written(value: Fraction) -> str:
    """All digits of a number that ends within a reasonable length, else ``DIGITS`` of them."""
    if value.denominator == 1:
        return str(value.numerator)
    places = _places(value.denominator)
    with localcontext() as context:
        context.prec = PRECISION
        if places is not None and places <= PRECISION - len(str(abs(value.numerator) // value.denominator)):
            exact = _as_decimal(value)
            if exact == exact.quantize(Decimal(1).scaleb(-places)):
                return _decimal_text(exact) if places <= 2 * DIGITS else _rounded(exact)
        return _rounded(_as_decimal(value))


def _rounded(value: Decimal) -> str:
    with localcontext() as context:
        context.prec = DIGITS
        return _decimal_text(+value)


def _decimal_text(value: Decimal) -> str:
    value = value.normalize() if value else Decimal(0)
    return f"{value:f}" if -DIGITS < value.adjusted() < 2 * PRECISION else f"{value:E}"


def _places(denominator: int) -> int | None:
    """Number of decimal places of a fraction with this denominator; None if it does not end."""
    twos = (denominator & -denominator).bit_length() - 1
    rest, fives = denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


CALCULATOR: Final = FunctionTool(
    "calculator",
    "Evaluates one arithmetic expression and nothing else: numbers (1,234.5 or 1e6), + - * / // % **, parentheses, pi,"
    f" e, {', '.join(FUNCTIONS)}. Exact; results that do not end are rounded to {DIGITS} digits. Angles are in"
    " radians, log is the natural logarithm, half is rounded away from zero.",
    calculator,
)
