"""Linear equations in one unknown, solved exactly."""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import NamedTuple

from experiences.rollouts.tools.base import FunctionTool, ToolError
from experiences.rollouts.tools.expression import parsed

_SIGNS = frozenset("0123456789+-*/() \t")


class Linear(NamedTuple):
    """slope * unknown + constant."""

    slope: Fraction
    constant: Fraction


def solve_linear(text: str) -> str:
    """The value of the unknown in the text's equation, as an integer or a/b."""
    for place in (i for i, character in enumerate(text) if character == "="):
        left, right = _side(text, place - 1, -1), _side(text, place + 1, 1)
        if left and right:
            return _solved(parsed(left), parsed(right))
    raise ToolError("no equation in the text")


def _side(text: str, start: int, direction: int) -> str:
    """The arithmetic next to an equals sign: digits, signs and single letters."""
    end = start
    while 0 <= end < len(text) and (text[end] in _SIGNS or _is_unknown(text, end)):
        end += direction
    return (text[start:end] if direction > 0 else text[end + 1 : start + 1]).strip()


def _is_unknown(text: str, place: int) -> bool:
    """A lower-case letter with no letter beside it."""
    return "a" <= text[place] <= "z" and not (
        text[place - 1 : place].isalpha() or text[place + 1 : place + 2].isalpha()
    )


def _solved(left: ast.expr, right: ast.expr) -> str:
    names = {node.id for side in (left, right) for node in ast.walk(side) if isinstance(node, ast.Name)}
    if len(names) != 1:
        raise ToolError("not an equation in one unknown")
    a, b = _linear(left), _linear(right)
    if a.slope == b.slope:
        raise ToolError("the equation does not determine its unknown")
    return str((b.constant - a.constant) / (a.slope - b.slope))


def _linear(tree: ast.expr) -> Linear:
    match tree:
        case ast.Constant(value=int(value)):
            return Linear(Fraction(0), Fraction(value))
        case ast.Name():
            return Linear(Fraction(1), Fraction(0))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _scaled(_linear(operand), Fraction(-1))
        case ast.BinOp(left=left, op=operator, right=right):
            return _combined(operator, _linear(left), _linear(right))
    raise ToolError("not a linear equation")


def _combined(operator: ast.operator, left: Linear, right: Linear) -> Linear:
    match operator:
        case ast.Add():
            return Linear(left.slope + right.slope, left.constant + right.constant)
        case ast.Sub():
            return Linear(left.slope - right.slope, left.constant - right.constant)
        case ast.Mult() if left.slope == 0:
            return _scaled(right, left.constant)
        case ast.Mult() if right.slope == 0:
            return _scaled(left, right.constant)
        case ast.Div() if right.slope == 0 and right.constant != 0:
            return _scaled(left, 1 / right.constant)
    raise ToolError("not a linear equation")


def _scaled(term: Linear, factor: Fraction) -> Linear:
    return Linear(term.slope * factor, term.constant * factor)


SOLVE_LINEAR = FunctionTool("solve_linear", "Solves a linear equation in one unknown.", solve_linear)
