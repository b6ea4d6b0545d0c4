"""The two calculators: integers (with shifts) and decimals."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from experiences.rollouts.tools.base import FunctionTool, ToolError
from experiences.rollouts.tools.expression import (
    DECIMAL_SPAN,
    INTEGER_SPAN,
    candidates,
    evaluated,
    evaluated_decimal,
    has_operation,
    parsed,
)
from experiences.rollouts.tools.text_parsing import NUMBER


def int_calc(text: str) -> str:
    """The value of the longest integer expression in the text. It sees digits and operators only, so it reads
    "4.5 + 1.2" as 5 + 1."""
    for expression in candidates(text, INTEGER_SPAN):
        try:
            tree = parsed(expression)
            if has_operation(tree):
                return _written(evaluated(tree))
        except ToolError:
            continue
    raise ToolError("no integer expression in the text")


def _written(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.6g}"


def dec_calc_strict(text: str) -> str:
    """The value of the longest expression that holds a decimal point."""
    for expression in candidates(text, DECIMAL_SPAN):
        if "." in expression:
            try:
                return f"{evaluated_decimal(expression):f}"
            except ToolError:
                continue
    raise ToolError("no decimal expression in the text")


def dec_calc_greedy(text: str) -> str:
    """As the strict one; without such an expression it adds up every number of the text."""
    try:
        return dec_calc_strict(text)
    except ToolError:
        numbers = NUMBER.findall(text)
    if not numbers:
        raise ToolError("no number in the text")
    return f"{sum(map(Decimal, numbers), Decimal()):f}"


INT_CALC = FunctionTool(
    "int_calc", "Evaluates an integer expression of the last result or of the question.", int_calc, reads_last=True
)
DEC_CALC_STRICT = FunctionTool("dec_calc", "Evaluates a decimal expression.", dec_calc_strict)
DEC_CALC_GREEDY = FunctionTool("dec_calc", "Evaluates a decimal expression, or adds up the numbers.", dec_calc_greedy)
