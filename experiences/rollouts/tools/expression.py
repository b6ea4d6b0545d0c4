"""Arithmetic expressions: found in a text, parsed by Python's own parser, evaluated by us. Never ``eval``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from decimal import Decimal, DivisionByZero, InvalidOperation, localcontext
from fractions import Fraction

from experiences.rollouts.tools.base import ToolError

MAX_LENGTH = 2_000  # characters of an expression
MAX_NESTING = 40
MAX_BITS = 20_000  # of any intermediate integer
MAX_SHIFT = 256

INTEGER_SPAN = re.compile(r"[\d\s()+\-*/<>]+")
DECIMAL_SPAN = re.compile(r"[\d\s()+\-*/.]+")
_LEADING_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")
_EDGE = " \t\r\n+*/<>"


def candidates(text: str, span: re.Pattern[str]) -> list[str]:
    """Stretches of the text that look like expressions with an operator in them, longest first."""
    found = []
    for match in span.finditer(text):
        piece = " ".join(match.group().split()).removeprefix(". ").removesuffix(".")
        piece = piece.strip(_EDGE).rstrip("-").rstrip()
        if any(sign in piece.lstrip("-") for sign in "+-*/<>") and any(c.isdigit() for c in piece):
            found.append(piece)
    return sorted(found, key=len, reverse=True)


def parsed(expression: str) -> ast.expr:
    """The syntax tree of an expression.

    Raises:
        ToolError: it is too long, too deep, or no expression.
    """
    if len(expression) > MAX_LENGTH or expression.count("(") > MAX_NESTING:
        raise ToolError("the expression is too long")
    try:
        return ast.parse(_LEADING_ZEROS.sub("", expression), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError("not an arithmetic expression") from None


def has_operation(tree: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) for node in ast.walk(tree))


def evaluated(tree: ast.expr) -> Fraction:
    """The exact value of an integer expression with + - * / << >>.

    Raises:
        ToolError: a division by zero, something that is not arithmetic, or a value beyond the limits.
    """
    return folded(tree, _integer, lambda operator, left, right: _limited(applied(operator, left, right)))


def folded(
    tree: ast.expr,
    leaf: Callable[[ast.expr], Fraction],
    operation: Callable[[ast.operator, Fraction, Fraction], Fraction],
) -> Fraction:
    """The value of a tree of signs and binary operators. ``leaf`` gets each other node, and raises for what has no
    value."""
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -folded(operand, leaf, operation)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return folded(operand, leaf, operation)
        case ast.BinOp(left=left, op=operator, right=right):
            return operation(operator, folded(left, leaf, operation), folded(right, leaf, operation))
    return leaf(tree)


def _integer(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Fraction(value)
    raise ToolError("not an integer expression")


def applied(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    """Raises ToolError: a division by zero, a shift that is too far, or an operator that is none of + - * / << >>."""
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            if right == 0:
                raise ToolError("division by zero")
            return left / right
        case ast.LShift() | ast.RShift():
            return _shifted(left, right, up=isinstance(operator, ast.LShift))
    raise ToolError("an operator that is not known here")


def _shifted(left: Fraction, right: Fraction, *, up: bool) -> Fraction:
    if left.denominator != 1 or right.denominator != 1 or not 0 <= right <= MAX_SHIFT:
        raise ToolError("only integers are shifted, by at most 256 places")
    return Fraction(int(left) << int(right) if up else int(left) >> int(right))


def _limited(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise ToolError("the value is too large")
    return value


def evaluated_decimal(expression: str) -> Decimal:
    """The value of a decimal expression with + - * /, to 50 digits.

    The thread's decimal context stays as it was: other code of this process counts money.

    Raises:
        ToolError: as ``evaluated``.
    """
    tree = parsed(expression)
    with localcontext() as context:
        context.prec = 50
        try:
            return _decimal(tree, expression)
        except (InvalidOperation, DivisionByZero, OverflowError):
            raise ToolError("not computable") from None


def _decimal(tree: ast.expr, source: str) -> Decimal:
    match tree:
        case ast.Constant(value=int() | float()):
            # The literal's own characters: a float would have lost the trailing digits.
            return Decimal(ast.get_source_segment(_LEADING_ZEROS.sub("", source), tree) or "NaN")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_decimal(operand, source)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _decimal(left, source) + _decimal(right, source)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _decimal(left, source) - _decimal(right, source)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _decimal(left, source) * _decimal(right, source)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _decimal(left, source) / _decimal(right, source)
    raise ToolError("not a decimal expression")
