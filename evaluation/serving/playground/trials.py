"""One answer of a candidate, by the gateway's own calls: held, settled and traced as they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from budgets.llm.transport import TextListener
from budgets.llm.types import Completion
from evaluation.serving.gateway.calls_at_once import AtOnceFull, CallSource
from evaluation.serving.gateway.consumers import Consumer
from evaluation.serving.gateway.endpoint_calls import call_worst_micros
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.loop_calls import calls_here
from evaluation.serving.gateway.passed_fields import fields_check
from evaluation.serving.gateway.refusals import CallRefused
from evaluation.serving.gateway.request import request_of
from evaluation.serving.gateway.served_models import ServedModel
from evaluation.serving.traces.content import answered
from experiences.privacy import redact
from experiences.rollouts.runtimes.chat_body import BadCall

CALLER: Final = "playground"  # in place of a key


@dataclass(frozen=True)
class Trial:
    """A question to a candidate. ``id`` becomes that of the call's trace. ``most_micros``: the limit of its cost.
    ``prompt``: the system prompt of a plain model."""

    id: UUID
    model: ServedModel
    body: Mapping[str, Any]
    most_micros: int
    prompt: str = ""


@dataclass(frozen=True)
class TrialAnswer:
    """An answer, or with ``error`` the reason why there is none. Seconds and tokens are of all requests of the call;
    ``first_seconds`` passed until the first token."""

    error: str = ""
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    seconds: float = 0.0
    first_seconds: float | None = None
    endpoint: str = ""
    completion: Completion | None = None  # of a plain model


def trial_call(trial: Trial) -> GatewayCall:
    """The call, which nothing was sent of yet. Raises BadCall: its body can't be passed on."""
    model, request = trial.model, request_of(trial.body)
    consumer = Consumer(model.organization_id, CALLER)
    call = GatewayCall(consumer, request, model, "", release=model.current, most_micros=trial.most_micros)
    call.id = trial.id
    call.render_context()
    if call.release is None:
        call.system = trial.prompt
    return call


def trial_worst_micros(trial: Trial) -> int:
    """The most that an answer can cost, in micro-dollars: that of its one request, or the limit where a release sends
    as many as it needs.

    Raises:
        BadCall, ValueError: the request can't be made.
    """
    call = trial_call(trial)
    if call.release is not None and call.release.action is not None:
        return 0
    if call.release is not None and call.release.bundle.is_played:
        return trial.most_micros
    limit = call.release.bundle.model.max_tokens if call.release is not None else 0
    request = call.request.for_model(call.upstreams[0].endpoint, call.system, limit, call.temperature)
    return min(call_worst_micros(call, request), trial.most_micros)


async def trial_pieces(trial: Trial) -> AsyncIterator[str | TrialAnswer]:
    """The texts of a model's answer as they come, and at last the whole answer. Who ends the iteration before cancels
    the call."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    answering = asyncio.ensure_future(trial_answer(trial, pieces.put_nowait))
    answering.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        yield await answering
    finally:
        answering.cancel()


async def trial_answer(trial: Trial, on_text: Callable[[str], object]) -> TrialAnswer:
    """Makes the call; its cost is settled when this returns. ``on_text`` receives a model's text as it comes."""
    async with calls_here() as calls:
        call = trial_call(trial)

        def received(text: str) -> None:
            call.token_received()
            on_text(text)

        error, done = "", None
        try:
            with calls.at_once.counted("calls", CallSource("", str(trial.model.organization_id), "")):
                fields_check(call.request.body, {one.name: one.endpoint for one in call.upstreams})
                done = await calls.answer(call, TextListener(received))
        except (CallRefused, BadCall, AtOnceFull) as refused:
            error = redact(str(refused))
    return _answer(call, done, error)


def _answer(call: GatewayCall, done: Mapping[str, Any] | None, error: str) -> TrialAnswer:
    found = answered(call.completion) if call.completion is not None else dict(call.played)
    if done is not None and not found:  # of an agent that chooses actions
        found = {"response": done["choices"][0]["message"], "finish_reason": done["choices"][0]["finish_reason"]}
    message = found.get("response") or {}
    return TrialAnswer(
        error,
        text=str(message.get("content") or ""),
        calls=[one["function"] for one in message.get("tool_calls", ())],
        steps=message.get("agentcore_steps", []),
        finish_reason=found.get("finish_reason", ""),
        input_tokens=found.get("input_tokens", 0),
        output_tokens=found.get("output_tokens", 0),
        cost_micros=call.cost_micros,
        seconds=time.perf_counter() - call.began,
        first_seconds=None if call.first is None else call.first - call.began,
        endpoint=call.endpoint,
        completion=call.completion,
    )
