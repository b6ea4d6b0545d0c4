"""Tokens and cost that an answer reports, checked before they are believed.

A count that is negative, no number or above a milliard is no count; it is left open and estimated later. A cost that
the provider reports wins over our table, where it can be believed at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from agentcore_site.lib.money import micros
from budgets.llm.types import ReportedUsage

MOST_TOKENS: Final = 10**9
MOST_FIELDS: Final = 200  # of a usage
MOST_DOLLARS: Final = 100_000.0  # dearer than any call: above it the number is a mistake
# Where providers report tokens: details of the prompt and of the answer, and fields beside the totals.
INPUT_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details", "prompt_token_details", "input_token_details")
OUTPUT_DETAILS: Final = (
    *("completion_tokens_details", "output_tokens_details"),
    *("completion_token_details", "output_token_details"),
)
CACHED: Final = (
    "prompt_cache_hit_tokens",  # DeepSeek
    "cached_tokens",  # Kimi
    "cache_read_input_tokens",  # Anthropic
    "num_cached_tokens",  # Mistral
    "cachedContentTokenCount",  # Gemini
    "cacheReadInputTokens",  # Bedrock
    "cacheReadInputTokenCount",
    "cached_prompt_tokens",
    "cache_read_tokens",
)
CACHED_DETAILS: Final = tuple(
    (place, of) for place in INPUT_DETAILS for of in ("cached_tokens", "cache_read_tokens", "cache_read")
)
REASONING_DETAILS: Final = tuple((place, of) for place in OUTPUT_DETAILS for of in ("reasoning_tokens", "reasoning"))
WRITTEN: Final = (
    "cache_creation_input_tokens",  # Anthropic
    "cacheWriteInputTokens",  # Bedrock
    "cacheWriteInputTokenCount",
    "cache_write_tokens",
    "cache_creation_tokens",
)
# Objects with the tokens that stay in the cache for 5 minutes, and for an hour.
BY_LIFETIME: Final = ("cache_creation", "cache_creation_token_details")
WRITTEN_DETAILS: Final = tuple(
    (place, of)
    for place in INPUT_DETAILS
    for of in ("cache_creation_tokens", "cache_write_tokens", "cache_creation_input_tokens", "cache_creation")
)
OWN_FORM: Final = (  # of Anthropic and Bedrock
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cacheReadInputTokens",
    "cacheReadInputTokenCount",
)
USAGES: Final = ("usage", "usageMetadata", "usage_metadata")
OLLAMA: Final = ("prompt_eval_count", "eval_count")
COSTS: Final = ("cost", "total_cost", "estimated_cost")
TICKS: Final = 10**10  # of xAI's cost in a dollar


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
    for part in (value.get("billed_units"), value.get("tokens")):  # Cohere's own form
        value = {**part, **value} if isinstance(part, Mapping) else value
    read = _UsageReader(value, notes)
    prompt = read.count("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens", OLLAMA[0])
    output = read.count("completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens", OLLAMA[1])
    total = read.count("total_tokens", "totalTokenCount", "totalTokens")
    cached = read.first(CACHED, CACHED_DETAILS)
    written, hour = read.written()
    if prompt is None and output is not None and total is not None and total >= output:
        prompt = total - output
    if prompt is not None and read.leaves_cache_out(prompt, cached + written):
        prompt += cached + written  # Anthropic's own form: input_tokens are what came neither from nor to the cache
    reasoning = read.first(("thoughtsTokenCount", "reasoning_tokens"), REASONING_DETAILS)
    if output is not None and total is None and reasoning > output:
        notes.append("usage counts more tokens of thoughts than of the answer: they are added to it")
        output += reasoning
    if prompt is not None and total is not None and total > prompt + (output or 0):
        if output is not None:  # Gemini leaves the field out where thoughts took all of the answer
            notes.append("usage.total_tokens is more than its parts: the rest counts as output")
        output = total - prompt
    most, most_output = prompt or 0, output or 0
    return ReportedUsage(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=min(cached, most),
        reasoning_tokens=min(reasoning, most_output),
        cost_micros=read.cost_micros(),
        cache_write_tokens=min(written, most),
        cache_write_1h_tokens=min(hour, written, most),
        audio_input_tokens=min(read.detail(*INPUT_DETAILS, of="audio_tokens"), most),
        image_input_tokens=min(read.detail(*INPUT_DETAILS, of="image_tokens"), most),
        audio_output_tokens=min(read.detail(*OUTPUT_DETAILS, of="audio_tokens"), most_output),
        image_output_tokens=min(read.detail(*OUTPUT_DETAILS, of="image_tokens"), most_output),
    )


def usage_in(value: Mapping[str, Any]) -> object:
    """The usage of an answer or of a chunk of one, wherever its provider puts it: at the top, in Groq's own object, in
    the choice (Kimi) or in its message, under Gemini's own name, or as Ollama counts. None without one."""
    beside = value.get("x_groq")
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    places: list[object] = [value, beside, choice]
    if isinstance(choice, Mapping):
        places += [choice.get("message"), choice.get("delta")]
    found = (place.get(name) for place in places if isinstance(place, Mapping) for name in USAGES)
    usual = next((one for one in found if one), None) or value.get("usage")
    if usual is None and any(name in value for name in OLLAMA):  # beside the message
        return {name: value.get(name) for name in OLLAMA}
    return usual


def merged_usage(before: object, further: object) -> object:
    """The usage of a stream after one more report: a later one counts, but no zero takes a count away."""
    if not (isinstance(before, Mapping) and isinstance(further, Mapping)) or len(before) > MOST_FIELDS:
        return further
    return {**before, **{name: one for name, one in further.items() if one or not before.get(name)}}


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

    def first(self, names: Sequence[str], details: Sequence[tuple[str, str]]) -> int:
        """The first count above zero of these fields, and of these fields of details."""
        found = (self.count(name) for name in names)
        beside = (self.detail(name, of=of) for name, of in details)
        return next((count for count in chain(found, beside) if count), 0)

    def written(self) -> tuple[int, int]:
        """(tokens that were written to the cache, those of them that stay for an hour)."""
        beside = [self._value, *(self._value.get(name) for name in INPUT_DETAILS)]
        found = (place.get(name) for place in beside if isinstance(place, Mapping) for name in BY_LIFETIME)
        parts = next((part for part in found if isinstance(part, Mapping)), {})
        five, hour = (as_count(parts.get(f"ephemeral_{name}_input_tokens")) or 0 for name in ("5m", "1h"))
        return max(self.first(WRITTEN, WRITTEN_DETAILS), five + hour), hour

    def leaves_cache_out(self, prompt: int, through_cache: int) -> bool:
        """Whether the count of the prompt leaves out what went through the cache: in Anthropic's own form, and where
        the parts are more than the whole (proxies that rename Anthropic's fields)."""
        form = any(self._value.get(name) for name in OWN_FORM)
        details = any(isinstance(self._value.get(name), Mapping) for name in INPUT_DETAILS)
        own = "prompt_tokens" not in self._value and form and not details
        return own or (prompt < through_cache and (form or details))

    def cost_micros(self) -> int | None:
        """Micro-dollars. With a key of one's own OpenRouter's ``cost`` is its fee; the provider's bill comes on top.
        Perplexity's ``cost`` has a ``total_cost``; DeepInfra estimates; xAI counts ticks."""
        ticks = as_number(self._value.get("cost_in_usd_ticks"))
        if ticks is not None and 0 <= ticks / TICKS <= MOST_DOLLARS:
            return micros(ticks / TICKS)
        found = next((self._value[name] for name in COSTS if self._value.get(name) is not None), None)
        if isinstance(found, Mapping):
            found = found.get("total_cost")
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
