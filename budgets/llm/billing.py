"""The cost of an attempt: the provider's own figure, else its tokens at our prices, else tokens that we counted.

Where it can't be known, the whole hold is the bill: a time-out after the request was sent, a cancelled task, a lost
connection, an answer above the limit. It may be more than the provider's bill and is never less.

A broken answer (cut, empty, a page, an error in it) is billed at what can be measured: the prompt and what came or
was announced of the answer, each counted high, at most the hold. The hold would be many times that, and a proxy that
breaks every answer would use up a budget in minutes. It may fall short of the bill of a provider that went on
generating after the cut: by one answer a call, and the circuit breaker and the pause of the job bound how many such
calls there are.
"""

from __future__ import annotations

from dataclasses import replace

from budgets.llm import tokens
from budgets.llm.errors import LLMError
from budgets.llm.types import Answer, ReportedUsage
from budgets.meter_port import Bill
from budgets.pricing import Price, Usage, cost_micros

ERROR_LENGTH = 300


def bill_of_answer(
    price: Price, answer: Answer, *, prompt: str, latency_ms: int, images: int = 0
) -> tuple[Bill, Usage]:
    """A good answer's bill. Parts of the usage that are missing are estimated, and the usage marked."""
    reported = answer.usage
    usage = _usage(reported)
    if usage is None:
        guess = tokens.estimate(prompt, _generated(answer), images)
        usage = replace(
            reported.tokens(
                guess.input_tokens if reported.input_tokens is None else reported.input_tokens,
                guess.output_tokens if reported.output_tokens is None else reported.output_tokens,
            ),
            estimated=True,
        )
    if reported.cost_micros is not None:
        return Bill(reported.cost_micros, usage, "provider", latency_ms), usage
    return Bill(cost_micros(price, usage), usage, "estimate" if usage.estimated else "table", latency_ms), usage


def bill_of_error(
    price: Price, error: LLMError, *, prompt: str, hold_micros: int, latency_ms: int, images: int = 0
) -> Bill:
    """A failed attempt's bill: its reported cost; nothing where that is certain; what can be measured of a
    broken answer; else the whole hold."""
    message = f"{type(error).__name__}: {error.message}"[:ERROR_LENGTH]
    reported = error.usage or ReportedUsage()
    usage = _usage(reported)
    if reported.cost_micros is not None:
        return Bill(reported.cost_micros, usage, "provider", latency_ms, message)
    if usage is not None and usage.total_tokens:  # a count of nothing says nothing of an answer that got lost
        return Bill(cost_micros(price, usage), usage, "table", latency_ms, message)
    if error.unbilled:
        return Bill(0, None, "none", latency_ms, message)
    if error.received is not None:
        measured = _measured(reported, prompt, error.received, images)
        return Bill(min(hold_micros, cost_micros(price, measured)), measured, "estimate", latency_ms, message)
    return Bill(hold_micros, None, "estimate", latency_ms, message)


def bill_of_break(*, sent: bool, hold_micros: int, latency_ms: int, why: str) -> Bill:
    """An attempt that was broken off from our side: the hold if the request can have reached the provider."""
    return Bill(hold_micros, None, "estimate", latency_ms, why) if sent else Bill(0, None, "none", latency_ms, why)


def _usage(reported: ReportedUsage) -> Usage | None:
    if reported.input_tokens is None or reported.output_tokens is None:
        return None
    return reported.tokens(reported.input_tokens, reported.output_tokens)


def _measured(reported: ReportedUsage, prompt: str, received: int, images: int) -> Usage:
    """Tokens of an answer of which ``received`` bytes came: what it said of them, else counted high."""
    sent = tokens.most_of(tokens.upper_bytes(prompt)) + tokens.IMAGE_USUAL * images
    return Usage(
        input_tokens=sent if reported.input_tokens is None else reported.input_tokens,
        output_tokens=max(tokens.most_of(received), reported.output_tokens or 0),
        estimated=True,
    )


def _generated(answer: Answer) -> str:
    calls = "".join(call.name + (call.raw or str(dict(call.arguments))) for call in answer.tool_calls)
    return answer.reasoning + answer.text + calls
