"""Tokens and cost that an answer reports, checked before they are believed.

A count that is negative, no number or above a milliard is no count; it is left open and estimated later. A cost that
the provider reports wins over our table, where it can be believed at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from agentcore_site.lib.money import micros
from budgets.llm.types import ReportedUsage

MOST_TOKENS: Final = 10**9
MOST_DOLLARS: Final = 100_000.0  # dearer than any call: above it the number is a mistake


def read_usage(value: object, notes: list[str]) -> ReportedUsage:
    """``value`` is the answer's ``usage``, of any shape; what is dropped is said in ``notes``. Raises nothing.

    Some providers leave reasoning out of the completion's tokens and show it in ``total_tokens`` only (xAI, Gemini's
    compatible address), and bill it as output: the larger of the two readings is taken.
    """
    if value is None:
        return ReportedUsage()
    if not isinstance(value, Mapping):
        notes.append(f"usage is {kind(value)}")
        return ReportedUsage()
    read = _UsageReader(value, notes)
    prompt = read.count("prompt_tokens", "input_tokens")
    output = read.count("completion_tokens", "output_tokens")
    total = read.count("total_tokens")
    if prompt is not None and output is not None and total is not None and total > prompt + output:
        notes.append("usage.total_tokens is more than its parts: the rest counts as output")
        output = total - prompt
    cached = read.count("prompt_cache_hit_tokens")
    cached = (
        cached
        if cached is not None
        else read.detail("prompt_tokens_details", "input_tokens_details", of="cached_tokens")
    )
    reasoning = read.detail("completion_tokens_details", "output_tokens_details", of="reasoning_tokens")
    return ReportedUsage(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=min(cached, prompt) if prompt is not None else 0,
        reasoning_tokens=min(reasoning, output) if output is not None else 0,
        cost_micros=read.cost_micros(),
    )


def without_zeros(usage: ReportedUsage, notes: list[str]) -> ReportedUsage:
    """The usage of an answer that says something: a count of nothing can't be right, and is left open."""
    if usage.input_tokens != 0 and usage.output_tokens != 0:
        return usage
    notes.append("usage counts no tokens of an answer that has some: they are estimated")
    return replace(usage, input_tokens=usage.input_tokens or None, output_tokens=usage.output_tokens or None)


class _UsageReader:
    def __init__(self, value: Mapping[str, Any], notes: list[str]) -> None:
        self._value = value
        self._notes = notes

    def count(self, *names: str) -> int | None:
        """The first of these fields that is there."""
        for name in names:
            if (found := self._value.get(name)) is not None:
                count = as_count(found)
                if count is None:
                    self._notes.append(f"usage.{name} is no count of tokens")
                return count
        return None

    def detail(self, *names: str, of: str) -> int:
        for name in names:
            details = self._value.get(name)
            if isinstance(details, Mapping) and details.get(of) is not None:
                count = as_count(details[of])
                if count is None:
                    self._notes.append(f"usage.{name}.{of} is no count of tokens")
                return count or 0
        return 0

    def cost_micros(self) -> int | None:
        """Micro-dollars. With a key of one's own OpenRouter's ``cost`` is its fee; the provider's bill comes on top."""
        found = self._value.get("cost")
        if found is None:
            return None
        cost = as_dollars(found)
        if cost is None:
            self._notes.append("usage.cost is no amount")
            return None
        total_micros, details = micros(cost), self._value.get("cost_details")
        if self._value.get("is_byok") is True and isinstance(details, Mapping):
            total_micros += micros(as_dollars(details.get("upstream_inference_cost")) or 0.0)
        return total_micros


def as_count(value: object) -> int | None:
    if type(value) is int and 0 <= value <= MOST_TOKENS:  # what nearly all are
        return value
    number = as_number(value)
    if number is None or not 0 <= number <= MOST_TOKENS or number != int(number):
        return None
    return int(number)


def as_dollars(value: object) -> float | None:
    number = as_number(value)
    return number if number is not None and 0 <= number <= MOST_DOLLARS else None


def as_number(value: object) -> float | None:
    """A finite number, also one that is written as a text; None for anything else. True is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def kind(value: object) -> str:
    """Names the kind of a JSON value."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
