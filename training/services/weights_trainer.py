"""Trains weights on a model server; each call is reserved and settled in the ledger like a model call.

A training call costs its tokens at the price of ``<model>/train``, or of the model's input where the table has none.
Its seconds cost the endpoint's ``gpu_usd_per_hour``. So a job's budget also caps its training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from budgets.meter_port import Bill, BudgetRefused, CallKey, MeterFailure, SpendingRateFull, UnknownPrice
from budgets.metering.patient_meter import PatientMeter
from budgets.metering.price_book import TRAIN
from budgets.pricing import Price, Usage, cost_micros
from experiences.agents.endpoint_config import GPU_PRICE
from experiences.agents.model_server_client import CALL_SECONDS
from experiences.agents.runtime_factory import RuntimeFactory
from experiences.rollouts.captured import TokenRow
from experiences.rollouts.own_weights import Weights
from experiences.rollouts.runtimes.base import Halted
from training.weights.dialect import datum, logprobs_in, weighted

BASE: Final = "base"
HOUR: Final = 3_600.0


class MeteredTrainer:
    """``WeightsTrainer`` at the endpoint of the agent that ``factory`` plays. ``attempt`` makes the keys its own."""

    def __init__(self, factory: RuntimeFactory, attempt: str) -> None:
        self._factory = factory
        # A following slice has the same attempt number: the time keeps their calls apart.
        self._prefix = f"{factory.job_id}/{attempt}/train/{time.time_ns()}"
        endpoint = factory.agent.endpoint
        self._rate = float((endpoint.options if endpoint else {}).get(GPU_PRICE, 0.0))
        self._meter: PatientMeter | None = None
        self._calls = 0

    # -- the trainer ---------------------------------------------------------------------------------------------------

    async def open(self, start: Weights, *, rank: int, seed: int) -> str:
        server = self._factory.model_server
        session = await server.train("create_session", tags=[], user_metadata=None, sdk_version="agentcore")
        base = server.endpoint.model.partition("@")[0]
        asked = {"session_id": session["session_id"], "model_seq_id": 0, "base_model": base}
        made = await server.train("create_model", **asked, lora_config={"rank": rank, "seed": seed})
        if start.digest:
            await self._bring(start)
            await server.train("load_weights", model_id=made["model_id"], path=start.digest, optimizer=True)
        return str(made["model_id"])

    async def close(self, model: str) -> Weights:
        found = await self._factory.model_server.get(model)
        await self._factory.model_server.train("unload_model", model_id=model)
        return found

    async def logprobs(self, weights: Weights | str, rows: Sequence[TokenRow]) -> list[list[float]]:
        model = weights if isinstance(weights, str) else weights.digest or BASE
        if isinstance(weights, Weights) and weights.digest:
            await self._bring(weights)
        data = [datum(row.ids, [float(step >= 0) for step in row.step]) for row in rows]
        found = await self._paid("forward", rows, model_id=model, forward_input=weighted(data))
        return logprobs_in(found)

    async def forward_backward(self, model: str, rows: Sequence[TokenRow], pulls: Sequence[Sequence[float]]) -> None:
        # The dialect minimises -sum(weight * log-probability).
        data = [datum(row.ids, [-one for one in pull]) for row, pull in zip(rows, pulls, strict=True)]
        await self._paid("forward_backward", rows, model_id=model, forward_backward_input=weighted(data))

    async def optim_step(self, model: str, adam: Mapping[str, float]) -> dict[str, float]:
        given = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **adam}
        found = await self._paid("optim_step", (), model_id=model, adam_params=given)
        return {name: float(value) for name, value in (found.get("metrics") or {}).items()}

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _bring(self, weights: Weights) -> None:
        if not await self._factory.model_server.knows(weights.digest):
            await self._factory.model_server.put(weights)

    async def _paid(self, call: str, rows: Sequence[TokenRow], **asked: Any) -> dict[str, Any]:
        """Makes a call under a hold of its tokens and of its maximum duration, and settles it by the actual usage."""
        price, tokens = self._priced(), sum(len(row.ids) for row in rows)
        usage = Usage(tokens, 0)
        if self._meter is None:
            self._meter = self._factory.clients.meter()
        meter = self._meter
        self._calls += 1
        key = CallKey(f"{self._prefix}/{self._calls}", "training", price.model)
        try:
            await meter.reserve(key, cost_micros(price, usage) + self._seconds_micros(CALL_SECONDS))
        except SpendingRateFull as error:
            raise Halted("spending_rate", str(error), error.retry_after) from error
        except BudgetRefused as error:
            raise Halted("budget_exceeded", str(error)) from error
        except MeterFailure as error:
            raise Halted("waiting_for_llm" if error.passing else "spends_too_fast", str(error)) from error
        began, seconds = time.perf_counter(), None
        try:
            found = await self._factory.model_server.train(call, **asked)
            seconds = float((found.get("metrics") or {}).get("compute_seconds:sum", time.perf_counter() - began))
            return found
        finally:
            took = time.perf_counter() - began
            amount_micros = cost_micros(price, usage) + self._seconds_micros(took if seconds is None else seconds)
            source = "estimate" if seconds is None else "table"
            await meter.settle(key, Bill(amount_micros, usage, source, round(took * 1000)))

    def _seconds_micros(self, seconds: float) -> int:
        return round(seconds * self._rate / HOUR * 1e6)

    def _priced(self) -> Price:
        prices, model = self._factory.clients, self._factory.model.partition("@")[0]
        try:
            return prices.price(f"{model}{TRAIN}")
        except UnknownPrice:
            try:
                return prices.price(model)
            except UnknownPrice as error:
                raise Halted("llm_refused", str(error)) from error
