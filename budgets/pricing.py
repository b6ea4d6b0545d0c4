"""The cost of a model call, in integer micro-dollars. Pure arithmetic, no Django.

A price is given per million tokens, as providers print it: $2.50 is 2,500,000 here. All of it is integer arithmetic
that rounds up once per call, so that a sum of costs never falls below the provider's bill by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

PER: Final = 1_000_000  # a price is for so many tokens


class UnknownPrice(Exception):
    """There is no price for ``model``: the call is refused, because its cost could not be bounded."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"There is no price for the model {model!r}. Set one under Budgets → Prices, import a price file,"
            " or declare the model free."
        )
        self.model = model

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model,)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model in micro-dollars per million tokens.

    ``cached_input_micros`` is the price of prompt tokens that the provider read from its cache; None: priced as input.
    ``per_call_micros`` is a surcharge in micro-dollars for each call. Raises ValueError for a negative price.
    """

    model: str
    input_micros: int
    output_micros: int
    cached_input_micros: int | None = None
    per_call_micros: int = 0

    def __post_init__(self) -> None:
        if min(self.input_micros, self.output_micros, self.cached_input_micros or 0, self.per_call_micros) < 0:
            raise ValueError(f"The price of {self.model!r} has a negative part.")

    @property
    def free(self) -> bool:
        return not (self.input_micros or self.output_micros or self.cached_input_micros or self.per_call_micros)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. Raises ValueError for a negative count.

    ``cached_tokens`` are part of ``input_tokens``, ``reasoning_tokens`` are part of ``output_tokens``.
    ``estimated``: counted by us, because the provider did not say.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens, self.cached_tokens, self.reasoning_tokens) < 0:
            raise ValueError("A token count is negative.")

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def cost_micros(price: Price, usage: Usage) -> int:
    """Micro-dollars of a call, rounded up. More cached than prompt tokens count as all of them."""
    cached = min(usage.cached_tokens, usage.input_tokens)
    at_micros = price.input_micros if price.cached_input_micros is None else price.cached_input_micros
    parts = (usage.input_tokens - cached) * price.input_micros + cached * at_micros
    parts += usage.output_tokens * price.output_micros
    return -(-parts // PER) + price.per_call_micros


def worst_case_micros(price: Price, *, prompt_tokens: int, max_tokens: int) -> int:
    """The most that a call can cost: no ``usage`` within both bounds has a higher ``cost_micros``.

    The higher of the two input prices is taken: some providers charge more for what goes through the cache.
    """
    usage = Usage(input_tokens=prompt_tokens, output_tokens=max_tokens)
    higher_input_micros = max(price.input_micros, price.cached_input_micros or 0)
    return cost_micros(Price(price.model, higher_input_micros, price.output_micros, None, price.per_call_micros), usage)
