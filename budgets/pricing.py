"""The cost of a model call, in integer micro-dollars. Pure arithmetic, no Django.

A price is given per million tokens, as providers print it: $2.50 is 2,500,000 here. All of it is integer arithmetic
that rounds up once per call, so that a sum of costs never falls below the provider's bill by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

PER: Final = 1_000_000  # a price is for so many tokens
HIGHEST: Final = 10**12  # a million dollars per million tokens
MOST_TIERS: Final = 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRates:
    """Prices of kinds of tokens in micro-dollars per million. None: priced as ``FALLS_BACK_TO`` says.

    ``cached_input_micros``: prompt tokens that the provider read from its cache; ``cache_write_micros`` and
    ``cache_write_1h_micros``: those that it wrote into it, for five minutes or for an hour.
    """

    cached_input_micros: int | None = None
    cache_write_micros: int | None = None
    cache_write_1h_micros: int | None = None
    audio_input_micros: int | None = None
    image_input_micros: int | None = None
    reasoning_micros: int | None = None
    audio_output_micros: int | None = None
    image_output_micros: int | None = None


KINDS: Final = tuple(one.name for one in fields(TokenRates))
# The price of a kind of tokens that has none of its own.
FALLS_BACK_TO: Final = {
    "cached_input_micros": "input_micros",
    "cache_write_micros": "input_micros",
    "cache_write_1h_micros": "cache_write_micros",
    "audio_input_micros": "input_micros",
    "image_input_micros": "input_micros",
    "reasoning_micros": "output_micros",
    "audio_output_micros": "output_micros",
    "image_output_micros": "output_micros",
}
OF_INPUT: Final = ("input_micros", *KINDS[:5])
OF_OUTPUT: Final = ("output_micros", *KINDS[5:])


@dataclass(frozen=True, slots=True)
class Tier:
    """Prices of calls whose prompt has more than ``above_tokens`` tokens: of all their tokens, and not of the rest."""

    above_tokens: int
    input_micros: int
    output_micros: int
    rates: TokenRates = TokenRates()

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Tier:
        """A tier as a row of prices stores it."""
        return cls(row["above_tokens"], row["input_micros"], row["output_micros"], TokenRates(**row["rates"]))

    def of(self, kind: str) -> int:
        """The price of a kind of tokens."""
        found: int | None = getattr(self if kind in ("input_micros", "output_micros") else self.rates, kind)
        return self.of(FALLS_BACK_TO[kind]) if found is None else found


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model in micro-dollars per million tokens.

    ``cached_input_micros`` is the price of prompt tokens that the provider read from its cache; None: priced as input.
    ``per_call_micros`` is a surcharge in micro-dollars for each call. ``rates`` are those of other kinds of tokens;
    ``tiers`` replace all of these for long prompts. Raises ValueError for a negative price.
    """

    model: str
    input_micros: int
    output_micros: int
    cached_input_micros: int | None = None
    per_call_micros: int = 0
    rates: TokenRates = TokenRates()
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        amounts = [self.per_call_micros, self.cached_input_micros or 0]
        for tier in self.steps:
            amounts += [tier.above_tokens, tier.input_micros, tier.output_micros]
            amounts += [getattr(tier.rates, kind) or 0 for kind in KINDS]
        if min(amounts) < 0:
            raise ValueError(f"The price of {self.model!r} has a negative part.")

    @property
    def steps(self) -> tuple[Tier, ...]:
        """All tiers by length, the first of which begins at 0."""
        base = replace(self.rates, cached_input_micros=self.cached_input_micros)
        first = Tier(0, self.input_micros, self.output_micros, base)
        return (first, *sorted(self.tiers, key=lambda tier: tier.above_tokens))

    def tier_of(self, prompt_tokens: int) -> Tier:
        """The tier that a prompt of so many tokens is settled by."""
        return [step for step in self.steps if step.above_tokens < max(prompt_tokens, 1)][-1]

    @property
    def free(self) -> bool:
        kinds = ("input_micros", "output_micros", *KINDS)
        return not (self.per_call_micros or any(tier.of(kind) for tier in self.steps for kind in kinds))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. Raises ValueError for a negative count.

    ``cached_tokens``, ``cache_write_tokens`` (of which ``cache_write_1h_tokens`` for an hour), ``audio_input_tokens``
    and ``image_input_tokens`` are part of ``input_tokens``; ``reasoning_tokens``, ``audio_output_tokens`` and
    ``image_output_tokens`` are part of ``output_tokens``. ``estimated``: counted by us, because the provider did not
    say.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    audio_output_tokens: int = 0
    image_output_tokens: int = 0

    def __post_init__(self) -> None:
        if min(getattr(self, one.name) for one in fields(self)) < 0:
            raise ValueError("A token count is negative.")

    def __add__(self, other: Usage) -> Usage:
        """Tokens of several calls; they can't be priced together, since each call has its tier."""
        counts = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return Usage(**(counts | {"estimated": self.estimated or other.estimated}))

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def cost_micros(price: Price, usage: Usage) -> int:
    """Micro-dollars of a call by the tier of its prompt, rounded up. Parts of the tokens that are together more than
    the whole count as all of it."""
    tier = price.tier_of(usage.input_tokens)
    hour = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
    parts = _parts(
        tier,
        usage.input_tokens,
        "input_micros",
        (
            (usage.cached_tokens, "cached_input_micros"),
            (hour, "cache_write_1h_micros"),
            (usage.cache_write_tokens - hour, "cache_write_micros"),
            (usage.audio_input_tokens, "audio_input_micros"),
            (usage.image_input_tokens, "image_input_micros"),
        ),
    )
    parts += _parts(
        tier,
        usage.output_tokens,
        "output_micros",
        (
            (usage.audio_output_tokens, "audio_output_micros"),
            (usage.image_output_tokens, "image_output_micros"),
            (usage.reasoning_tokens, "reasoning_micros"),
        ),
    )
    return -(-parts // PER) + price.per_call_micros


def _parts(tier: Tier, total: int, kind: str, parts: Sequence[tuple[int, str]]) -> int:
    """The price of ``total`` tokens, of which some are of other kinds, times ``PER``."""
    amount_micros, left = 0, total
    for count, of in parts:
        counted = min(count, left)
        amount_micros += counted * tier.of(of)
        left -= counted
    return amount_micros + left * tier.of(kind)


def worst_case_micros(price: Price, *, prompt_tokens: int, max_tokens: int) -> int:
    """The most that a call can cost: no ``usage`` within both bounds has a higher ``cost_micros``.

    Of all tiers that a prompt within its bound can reach, and all kinds of tokens, the most expensive counts: some
    providers charge more for what goes through the cache.
    """
    steps = [step for step in price.steps if step.above_tokens < max(prompt_tokens, 1)]
    input_micros = max(step.of(kind) for step in steps for kind in OF_INPUT)
    output_micros = max(step.of(kind) for step in steps for kind in OF_OUTPUT)
    return -(-(prompt_tokens * input_micros + max_tokens * output_micros) // PER) + price.per_call_micros
