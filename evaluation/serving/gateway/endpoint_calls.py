"""Requests of calls to the endpoints of their release or model: one after another until one answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from budgets.llm.errors import BadRequest, ContextTooLong, LLMError
from budgets.llm.request import ModelRequest
from budgets.llm.transport import Listener
from budgets.llm.types import Completion, Endpoint
from budgets.meter_port import BudgetRefused, CallKey, MeterFailure, SpendingRateFull, UnknownPrice
from budgets.pricing import worst_case_micros
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.gateway_clients import Payers
from evaluation.serving.gateway.key_limits import KeyHolds
from evaluation.serving.gateway.refusals import CallRefused, limit_refusal, refusal_of, spent_refusal
from evaluation.serving.models import ArmName

log = logging.getLogger(__name__)

NO_RETRY = (BadRequest, ContextTooLong)  # another endpoint would refuse the request as well


class EndpointCalls:
    """Belongs to one event loop."""

    def __init__(self, payers: Payers, holds: KeyHolds) -> None:
        self._payers, self._holds = payers, holds

    async def answer(
        self,
        call: GatewayCall,
        made: Callable[[Endpoint], ModelRequest],
        *,
        listener: Listener | None = None,
        number: int = 0,
        spent_micros: int = 0,
    ) -> Completion:
        """Sends what ``made`` makes for an endpoint. ``number`` and ``spent_micros``: of the requests of this call
        before it.

        Raises:
            CallRefused: the request could not be paid for, or can't be made.
            LLMError: the last endpoint's, with the attempts at all of them.
        """
        model, upstreams = call.model, call.upstreams
        assert model.prices is not None
        payer = self._payers.payer(call.payer, model.prices, while_away_micros=model.while_away_micros)
        attempts = 0
        for at, upstream in enumerate(upstreams):
            last = at == len(upstreams) - 1
            call.endpoint = upstream.name
            client = self._payers.client(call.payer, payer, upstream, last=last)
            try:
                request = made(upstream.endpoint)
            except ValueError as error:
                raise CallRefused(400, f"The request can't be passed on: {error}.", "invalid_request_error") from None
            if at == 0:
                await self._hold(call, request, spent_micros)
            try:
                key = CallKey(f"{call.id}/{number + at}", call.purpose, upstream.priced)
                found = await client.send(request, key=key, listener=listener)
                return replace(found, attempts=found.attempts + attempts)
            except LLMError as error:
                attempts += error.attempts
                if last or error.final or isinstance(error, NO_RETRY):
                    error.attempts = attempts
                    raise
                log.info("endpoint %s does not answer, the next one is called: %s", upstream.name, error.message)
            except SpendingRateFull as error:
                raise CallRefused(429, str(error), "rate_limit_exceeded", wait=error.retry_after) from None
            except BudgetRefused as error:
                raise CallRefused(402, str(error), "insufficient_quota") from None
            except UnknownPrice as error:
                if last:
                    raise CallRefused(400, str(error), "no_price") from None
            except MeterFailure as error:
                raise CallRefused(503, str(error), "unavailable", wait=5.0) from None
        raise AssertionError("the last endpoint answered or raised")

    async def _hold(self, call: GatewayCall, request: ModelRequest, spent_micros: int) -> None:
        """Counts the call's worst case against the month of its key, or the limit of a trial: that of ``request``, and
        what it spent before. Raises CallRefused."""
        consumer = call.consumer
        if call.most_micros is not None:
            if (wanted_micros := spent_micros + call_worst_micros(call, request)) > call.most_micros:
                raise limit_refusal(wanted_micros, call.most_micros)
            return
        if consumer.key_id is None or consumer.monthly_micros is None or call.arm == ArmName.SHADOW:
            return
        worst_micros = call_worst_micros(call, request)
        room_micros, read_at = consumer.monthly_micros - consumer.spent_micros, consumer.read_at
        if spent_micros >= room_micros:
            raise spent_refusal(consumer.monthly_micros)
        if call.held:
            await self._holds.end(consumer.key_id, call.id, 0)
        call.held = True  # before it is known: a caller may leave while Redis is asked
        most_micros = spent_micros + worst_micros
        if not await self._holds.take(consumer.key_id, call.id, most_micros, room_micros=room_micros, read_at=read_at):
            call.held = False
            raise spent_refusal(consumer.monthly_micros, under_way=True)


def call_worst_micros(call: GatewayCall, request: ModelRequest) -> int:
    """The highest cost of a request at any of the call's endpoints, in micro-dollars."""
    assert call.model.prices is not None
    worst_micros = 0
    for upstream in call.upstreams:
        with suppress(UnknownPrice):
            price = call.model.prices.price(upstream.priced)
            tokens = {"prompt_tokens": request.prompt_tokens, "max_tokens": request.max_tokens}
            worst_micros = max(worst_micros, worst_case_micros(price, **tokens))
    return worst_micros


def refused_by(error: LLMError) -> CallRefused:
    """The caller's refusal, with its attempts."""
    refused = refusal_of(error)
    refused.attempts = error.attempts
    return refused
