"""Formats of price files: our own, LiteLLM's, and the data of the package genai-prices.

Numbers are read as decimals, so that nothing is lost on the way to micro-dollars; what is left over is rounded up.
Prices are those of a plain call: priority, flex and batch processing have others, which no call of ours asks for.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_CEILING, Decimal
from importlib.metadata import version
from typing import Any, Final

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import MICROS
from budgets.ledger.values import storable
from budgets.pricing import HIGHEST, KINDS, MOST_TIERS

CHAT: Final = ("chat", "completion", "responses")  # LiteLLM's modes of what is paid by tokens in and out
BOOK: Final = "genai-prices"
SINCE: Final = date(2020, 1, 1)  # of a price of the book that has no first day

AMOUNTS: Final = ("input_micros", "output_micros", *KINDS)
# LiteLLM's field, in dollars per token, of each kind. A tier's field has the suffix "_above_200k_tokens".
OF_LITELLM: Final = {
    "input_micros": "input_cost_per_token",
    "output_micros": "output_cost_per_token",
    "cached_input_micros": "cache_read_input_token_cost",
    "cache_write_micros": "cache_creation_input_token_cost",
    "cache_write_1h_micros": "cache_creation_input_token_cost_above_1hr",
    "audio_input_micros": "input_cost_per_audio_token",
    "image_input_micros": "input_cost_per_image_token",
    "reasoning_micros": "output_cost_per_reasoning_token",
    "audio_output_micros": "output_cost_per_audio_token",
    "image_output_micros": "output_cost_per_image_token",
}
# genai-prices' field, in dollars per million tokens, of each kind.
OF_BOOK: Final = {
    "input_micros": "input_mtok",
    "output_micros": "output_mtok",
    "cached_input_micros": "cache_read_mtok",
    "cache_write_micros": "cache_write_mtok",
    "cache_write_1h_micros": "cache_write_1h_mtok",
    "audio_input_micros": "input_audio_mtok",
    "image_input_micros": "input_image_mtok",
    "reasoning_micros": "output_reasoning_mtok",
    "audio_output_micros": "output_audio_mtok",
    "image_output_micros": "output_image_mtok",
}
# Providers whose own names of models count first where several sell a model by one name.
MAKERS: Final = (
    *("openai", "anthropic", "google", "mistral", "deepseek", "x-ai", "moonshotai", "zai", "minimax", "cohere"),
    *("meta", "perplexity", "groq", "openrouter"),
)
_TIER: Final = re.compile(r"_above_(\d+)k_tokens$")

Amounts = dict[str, int | None]


@dataclass(frozen=True, slots=True)
class PriceFileLine:
    """A price of a file, in micro-dollars per million tokens, or the reason ``why`` it can't be used."""

    model: str
    valid_from: date | None = None
    input_micros: int = 0
    output_micros: int = 0
    cached_input_micros: int | None = None
    per_call_micros: int = 0
    rates: dict[str, int] = field(default_factory=dict)
    tiers: list[dict[str, Any]] = field(default_factory=list)
    free: bool = False
    source: str = ""
    why: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The values that make two prices equal: their source is not compared."""
        names = ("input_micros", "cached_input_micros", "output_micros", "per_call_micros", "rates", "tiers", "free")
        return {name: getattr(self, name) for name in names}


def parse(raw: bytes, *, name: str) -> Iterator[PriceFileLine]:
    """The lines of a file of our own or LiteLLM's format.

    Raises:
        Invalid: it is no JSON, or of neither format.
    """
    try:
        value = json.loads(raw, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{name} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid(f"{name} is a list or a bare value, not an object of models.")
    return _own(value, name) if isinstance(value.get("providers"), list) else _litellm(value, name)


def _own(value: Mapping[str, Any], name: str) -> Iterator[PriceFileLine]:
    try:
        day = date.fromisoformat(str(value["as_of"]))
    except (KeyError, ValueError) as error:
        raise Invalid(f"{name} needs as_of, a date like 2025-08-15.") from error
    try:
        entries = [
            (provider["source"], entry, model)
            for provider in value["providers"]
            for entry in provider["models"]
            for model in (entry["model"], *entry.get("aliases", ()))
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"{name} is not of our format: see budgets/prices/prices.json.") from error
    for source, entry, model in entries:
        note = f"; {entry['note']}" if entry.get("note") else ""
        base = {kind: scaled(entry.get(kind.removesuffix("_micros")), MICROS) for kind in AMOUNTS}
        call_micros = scaled(entry.get("per_call"), MICROS) or 0
        yield line_of(model, day, f"{source} as of {day}, approximate{note}", {0: base}, call_micros)


def _litellm(value: Mapping[str, Any], name: str) -> Iterator[PriceFileLine]:
    for model, entry in value.items():
        if model == "sample_spec":
            continue  # the file's own documentation
        if not isinstance(entry, dict):
            yield PriceFileLine(model, why="it is no object")
            continue
        mode = entry.get("mode", "chat")
        if mode not in CHAT:
            yield PriceFileLine(model, why=f"its mode is {mode!r}, not paid by tokens in and out")
            continue
        call_micros = scaled(entry.get("input_cost_per_request"), MICROS) or 0
        yield line_of(model, None, str(entry.get("source") or f"LiteLLM: {name}"), _steps(entry), call_micros)


def _steps(entry: Mapping[str, Any]) -> dict[int, Amounts]:
    """A model's prices by the number of tokens of the prompt above which they apply."""
    ranges = entry.get("tiered_pricing")
    if isinstance(ranges, list) and all(isinstance(one, dict) for one in ranges) and len(ranges) <= MOST_TIERS:
        starts = [scaled((one.get("range") or [None])[0], 1) for one in ranges]
        if 0 in starts and None not in starts:
            return {start or 0: _plain(one) for start, one in zip(starts, ranges, strict=True)}
    steps: defaultdict[int, Amounts] = defaultdict(dict, {0: _plain(entry)})
    for kind, field_name in OF_LITELLM.items():
        for key in entry:
            if key.startswith(field_name) and (found := _TIER.fullmatch(key, len(field_name))):
                amount = scaled(entry[key], MICROS * MICROS)
                if amount is not None:
                    steps[int(found[1]) * 1000][kind] = amount
    return dict(steps)


def _plain(entry: Mapping[str, Any]) -> Amounts:
    return {kind: scaled(entry.get(name), MICROS * MICROS) for kind, name in OF_LITELLM.items()}


def book_source() -> str:
    """The package and its version, as sources of prices begin."""
    return f"{BOOK} {version(BOOK)}"


def book(today: date) -> Iterator[PriceFileLine]:
    """The prices of the installed package genai-prices: those in force on ``today``, and those announced for later.
    Nothing is loaded from the network.

    Where several providers sell a model by one name, the price of its maker counts, else the most expensive one. Of
    prices by the hour of the day the highest counts.
    """
    from genai_prices.data import providers  # half a second

    rank = {name: place for place, name in enumerate(MAKERS)}
    chosen: dict[str, tuple[int, int, list[PriceFileLine]]] = {}
    for provider in providers:
        for model in provider.models:
            lines = list(_dated(model, f"{book_source()}, {provider.name}"[:200], today))
            if not lines or lines[-1].why:
                continue
            place = rank.get(provider.id, len(rank))
            key = (place, -lines[-1].output_micros)
            if model.id not in chosen or key < chosen[model.id][:2]:
                chosen[model.id] = (*key, lines)
    for _, _, lines in chosen.values():
        yield from lines


def _dated(model: Any, source: str, today: date) -> Iterator[PriceFileLine]:
    prices = model.prices if isinstance(model.prices, list) else [model.prices]
    days: dict[date, Any] = {}
    hours = []
    for one in prices:
        constraint = getattr(one, "constraint", None)
        start = getattr(constraint, "start_date", None)
        if constraint is None or start is not None:
            days[start or SINCE] = getattr(one, "prices", one)
        else:
            hours.append(one.prices)
    days = {day: max([one, *hours], key=_answers) for day, one in days.items()}
    past = [day for day in sorted(days) if day <= today]
    in_force = {today: days[past[-1]]} if past else {}
    days = in_force | {day: one for day, one in days.items() if day > today}
    for day in sorted(days):
        steps: defaultdict[int, Amounts] = defaultdict(dict)
        for kind, name in OF_BOOK.items():
            amount = getattr(days[day], name)
            steps[0][kind] = scaled(getattr(amount, "base", amount), MICROS)
            for tier in getattr(amount, "tiers", ()):
                steps[tier.start][kind] = scaled(tier.price, MICROS)
        per_thousand = days[day].requests_kcount
        call_micros = 0 if per_thousand is None else scaled(per_thousand / 1000, MICROS) or 0
        yield line_of(model.id, day, source, dict(steps), call_micros)


def _answers(prices: Any) -> Decimal:
    """The price of answers, to find the most expensive hour of a day."""
    amount = getattr(prices.output_mtok, "base", prices.output_mtok)
    return Decimal(0) if amount is None else amount


def line_of(model: Any, day: date | None, source: str, steps: Mapping[int, Amounts], call_micros: int) -> PriceFileLine:
    """A line of prices by length, or the reason why they are none. What a tier does not say is as in the first one."""
    name = storable(str(model).strip())
    base = steps[0]
    if not name or len(name) > 200:
        return PriceFileLine(str(model)[:60], why="its name is empty or longer than 200 characters")
    if base.get("input_micros") is None or base.get("output_micros") is None:
        return PriceFileLine(name, why="the price of a token in or out is missing or no number")
    amounts = [amount for step in steps.values() for amount in step.values() if amount is not None]
    if min(*amounts, call_micros) < 0 or max(*amounts, call_micros) > HIGHEST:
        return PriceFileLine(name, why="a price is negative or beyond reason")
    if not any((*amounts, call_micros)):
        return PriceFileLine(name, why="all its prices are zero: declare it free by hand if it is")
    first = _step(base)
    tiers = [
        {"above_tokens": above} | _step(base | {kind: one for kind, one in steps[above].items() if one is not None})
        for above in sorted(steps)[:MOST_TIERS]
        if above
    ]
    return PriceFileLine(
        name,
        day,
        first["input_micros"],
        first["output_micros"],
        first["rates"].pop("cached_input_micros", None),
        call_micros,
        first["rates"],
        [tier for tier in tiers if tier != {"above_tokens": tier["above_tokens"]} | _step(base)],
        source=storable(source),
    )


def _step(amounts: Amounts) -> dict[str, Any]:
    rates = {kind: amounts[kind] for kind in KINDS if amounts.get(kind) is not None}
    return {"input_micros": amounts["input_micros"], "output_micros": amounts["output_micros"], "rates": rates}


def scaled(value: Any, factor: int) -> int | None:
    """A decimal of the file times ``factor``, rounded up; None where it is no number."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    return int((value * factor).to_integral_value(rounding=ROUND_CEILING)) if value.adjusted() < 20 else HIGHEST + 1


def lines_of(source: bytes | None, *, name: str, today: date) -> Iterable[PriceFileLine]:
    """The lines of a file; None: of the book."""
    return book(today) if source is None else parse(source, name=name)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no price")
