"""Divisors, multiples, factors and fractions."""

from __future__ import annotations

import math
import re

from experiences.rollouts.tools.base import FunctionTool, ToolError
from experiences.rollouts.tools.text_parsing import INTEGER, PARENTHESES, integers, only_integer_list

LARGEST_FACTORED = 10**10  # trial division up to 10^5
LARGEST_MULTIPLE_BITS = 2_000

_PLAIN_FRACTION = re.compile(r"(?<![\d/.])(\d{1,100})\s*/\s*(\d{1,100})(?![\d/]|\.\d)")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(\d{1,100})\s*\}\s*\{\s*(\d{1,100})\s*\}")


def gcd_greedy(text: str) -> str:
    return str(math.gcd(*integers(text)))


def gcd_strict(text: str) -> str:
    return str(math.gcd(*only_integer_list(text)))


def lcm_greedy(text: str) -> str:
    return _multiple(integers(text))


def lcm_strict(text: str) -> str:
    return _multiple(only_integer_list(text))


def _multiple(numbers: list[int]) -> str:
    multiple = 1
    for number in numbers:
        multiple = math.lcm(multiple, number)
        if multiple.bit_length() > LARGEST_MULTIPLE_BITS:
            raise ToolError("the multiple is too large")
    return str(multiple)


def prime_factors(number: int) -> list[int]:
    """The prime factors in rising order, by trial division.

    Raises:
        ToolError: the number is below 2 or above 10^10.
    """
    if not 2 <= number <= LARGEST_FACTORED:
        raise ToolError("only numbers from 2 to 10^10 are factorised")
    factors, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    return [*factors, number] if number > 1 else factors


def factor_greedy(text: str) -> str:
    """The factors of the first integer above 1 in any text."""
    for number in integers(text):
        if number > 1:
            return _product(prime_factors(number))
    raise ToolError("no integer above 1 in the text")


def factor_strict(text: str) -> str:
    """The factors of the only integer outside parentheses."""
    outside = INTEGER.findall(PARENTHESES.sub(" ", text))
    if len(outside) != 1:
        raise ToolError("not exactly one integer in the text")
    return _product(prime_factors(integers(outside[0])[0]))


def _product(factors: list[int]) -> str:
    return " × ".join(map(str, factors))


def reduce_fraction(text: str) -> str:
    """The first a/b or LaTeX fraction in lowest terms, always written a/b. A date such as 10/28/2022 is none."""
    found = _LATEX_FRACTION.search(text) or _PLAIN_FRACTION.search(text)
    if found is None:
        raise ToolError("no fraction in the text")
    numerator, denominator = int(found.group(1)), int(found.group(2))
    if denominator == 0:
        raise ToolError("the denominator is zero")
    common = math.gcd(numerator, denominator)
    return f"{numerator // common}/{denominator // common}"


GCD_STRICT = FunctionTool("gcd", "The greatest common divisor of a list of integers.", gcd_strict)
GCD_GREEDY = FunctionTool("gcd", "The greatest common divisor of all integers in the text.", gcd_greedy)
LCM_STRICT = FunctionTool("lcm", "The least common multiple of a list of integers.", lcm_strict)
LCM_GREEDY = FunctionTool("lcm", "The least common multiple of all integers in the text.", lcm_greedy)
FACTOR_STRICT = FunctionTool("factor", "The prime factors of the text's only integer.", factor_strict)
FACTOR_GREEDY = FunctionTool("factor", "The prime factors of the first integer in the text.", factor_greedy)
REDUCE_FRACTION = FunctionTool("reduce_fraction", "A fraction in its lowest terms.", reduce_fraction)
