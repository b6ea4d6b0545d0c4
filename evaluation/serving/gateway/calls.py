"""One call: draws its arm, renders its context, calls an endpoint, and stores the trace."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any, Final

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.read_cache import ReadCache
from agentcore_site.lib.row_scope import everything
from agentcore_site.lib.storable import storable
from budgets.llm.errors import LLMError
from budgets.llm.stream import StreamDelta
from budgets.llm.transport import Listener
from budgets.llm.types import Answer, Completion
from budgets.meter_port import MeterFailure
from evaluation.serving.gateway.calls_at_once import CallsAtOnce
from evaluation.serving.gateway.consumers import Consumer
from evaluation.serving.gateway.endpoint_calls import EndpointCalls, refused_by
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.gateway_clients import Payers
from evaluation.serving.gateway.key_limits import KeyHolds, KeyRates, RecentSpending, calls_ended
from evaluation.serving.gateway.played import completion_of, played
from evaluation.serving.gateway.refusals import CallRefused, spent_refusal
from evaluation.serving.gateway.request import ChatRequest
from evaluation.serving.gateway.served_models import ServedModel, ServedRelease, served_model
from evaluation.serving.models import ArmName, TraceStatus
from evaluation.serving.traces.content import answered, is_long, kept, session_name
from evaluation.serving.traces.journal import Journal
from evaluation.serving.traces.recovery import recover
from evaluation.serving.traces.writing import PendingTrace, TraceWriter
from experiences.privacy import redact, redact_value
from experiences.rollouts.captured import SampledTokens
from experiences.rollouts.runtimes.base import RolloutFailure
from experiences.rollouts.tools.connection_pool import ConnectionPool

log = logging.getLogger(__name__)

MODEL_SECONDS: Final = 1.0  # lifetime of a cached served model
RECOVER_SECONDS: Final = 2.0


class Calls:
    """Makes the calls of one process. Belongs to one event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.journal = Journal(folder)
        self._rates, self._holds, self._spending = KeyRates(), KeyHolds(), RecentSpending()
        self._traces = TraceWriter(self.journal, written=self._spending.written)
        self._payers = Payers(self.journal)
        self._endpoints = EndpointCalls(self._payers, self._holds)
        self._models: ReadCache[tuple[uuid.UUID, str], ServedModel] = ReadCache(lasting=True)
        self.at_once = CallsAtOnce()
        self._connections: ConnectionPool[Any] = ConnectionPool()  # to tool servers
        self._background: set[asyncio.Task[Any]] = set()
        self._ends: set[asyncio.Task[Any]] = set()
        self._run_in_background(self.at_once.exchange_always())
        self._run_in_background(self._recovering())

    async def admit(self, consumer: Consumer) -> None:
        """Raises CallRefused: the key's monthly spending limit or its rate limit is reached."""
        key, most_micros, rate = consumer.key_id, consumer.monthly_micros, consumer.per_minute
        if key is None:
            return
        if (
            most_micros is not None
            and consumer.spent_micros + self._spending.since(key, consumer.read_at) >= most_micros
        ):
            raise spent_refusal(most_micros)
        if rate is not None and (wait := await self._rates.turn(key, rate)) > 0:
            raise CallRefused(429, f"This key may make {rate:,} calls a minute.", "rate_limit_error", wait=wait)

    async def model(self, organization: uuid.UUID, name: str) -> ServedModel:
        """The model or agent that is served under a name. Raises CallRefused."""
        key = (organization, name)
        found = await self._models.get(key, MODEL_SECONDS, lambda: served_model(organization, name))
        if found is None:  # the database is unavailable: use the last known model, if the agent's rule allows it
            found = self._models.fresh(key, math.inf)
            if found is None or not found.while_away_micros:
                raise CallRefused(503, "The database is unavailable: nothing can be served.", "unavailable", wait=5.0)
        if found.fault:
            raise CallRefused(found.status, found.fault, "model_not_found" if found.status == 404 else "not_served")
        return found

    def begin(self, consumer: Consumer, request: ChatRequest, model: ServedModel, session: str) -> GatewayCall:
        """Draws the arm. Raises CallRefused: the release can't be served."""
        call = GatewayCall(consumer, request, model, session)
        if model.agent_id is not None:
            call.session = session or str(call.id)
            call.arm, call.release = ArmName.CURRENT, model.current
            if model.new is not None and not model.shadow:
                if model.current is not None:
                    call.share = model.share
                if model.current is None or drawn(model.salt, call.session) < model.share:
                    call.arm, call.release = ArmName.NEW, model.new
            if call.release is None:
                raise CallRefused(409, f"No release of {model.name} is deployed yet.", "not_served")
            if call.release.fault:
                raise CallRefused(503, call.release.fault, "not_served")
        call.render_context()
        return call

    async def answer(self, call: GatewayCall, listener: Listener) -> dict[str, Any] | None:
        """Answers the call and stores its trace in any case; ``listener`` receives a model's answer as it comes.
        Returns the whole answer of an agent that takes steps here, else None.

        Raises:
            CallRefused: the call got no answer; has the error for the caller.
        """
        known = self._row(call)
        begun = self.journal.begin({"t": "call", "row": known})
        row: dict[str, Any] = {}
        done = None
        try:
            if call.release is not None and call.release.action is not None:
                done = await self._call_action_agent(call, call.release)
                row = {"status": TraceStatus.OK, "response": done["choices"][0]["message"]}
            elif call.release is not None and call.release.bundle.is_played:
                assert call.release.tools is not None
                tools = partial(call.release.tools, pool=self._connections)
                row = {"status": TraceStatus.OK, **await played(call, self._endpoints, tools)}
                done = completion_of(call, row)
            else:
                call.completion = await self._call_model(call, listener)
                row = {"status": TraceStatus.OK, **answered(call.completion)}
        except CallRefused as refused:
            status = TraceStatus.FAILED if refused.failed else TraceStatus.REFUSED
            row = {"status": status, "http_status": refused.status, "error": refused.message}
            row["attempts"] = max(refused.attempts, call.played.get("attempts", 0))
            raise
        except asyncio.CancelledError:
            row = {"status": TraceStatus.INTERRUPTED, "http_status": 0, "error": "the caller went away"}
            raise
        except Exception as error:
            row = {"status": TraceStatus.FAILED, "http_status": 500, "error": f"{type(error).__name__} at the gateway"}
            raise
        finally:
            self._store(call, known | call.played | row, begun)
            if call.held:
                assert call.consumer.key_id is not None
                self._run_in_background(self._holds.end(call.consumer.key_id, call.id, call.cost_micros), self._ends)
            if call.model.shadow and call.model.new is not None and call.arm == ArmName.CURRENT:
                self._start_shadow(call)
        return done

    async def aclose(self) -> None:
        """Cancels background tasks and writes all pending traces."""
        await asyncio.gather(*self._ends)
        for task in self._background:
            task.cancel()
        try:
            await self._payers.aclose()
        except MeterFailure as error:
            log.warning("the next process settles what this one could not: %s", error)
        await self._connections.aclose()
        await self._rates.aclose()
        await self._holds.aclose()
        await self.at_once.aclose()
        await asyncio.to_thread(self._traces.close)
        self.journal.close()

    # -- calling -----------------------------------------------------------------------------------------------------

    async def _call_model(self, call: GatewayCall, listener: Listener) -> Completion:
        """Passes the request on with the release's prompt and context. Raises CallRefused."""
        limit = call.release.bundle.model.max_tokens if call.release is not None else 0
        made = partial(call.request.for_model, system=call.system, limit=limit, temperature=call.temperature)
        try:
            return await self._endpoints.answer(call, made, listener=listener)
        except LLMError as error:
            raise refused_by(error) from None

    async def _call_action_agent(self, call: GatewayCall, release: ServedRelease) -> dict[str, Any]:
        assert release.action is not None
        try:
            found = await release.action.answer(call.request.query, seed=call.id.int % 2**32)
        except (RolloutFailure, TimeoutError) as error:
            raise CallRefused(500, f"The agent failed: {error}", "agent_error") from None
        return {"id": f"chatcmpl-{call.id.hex}", **found}

    # -- storing -----------------------------------------------------------------------------------------------------

    def _row(self, call: GatewayCall) -> dict[str, Any]:
        """The columns of a trace that are known when the call begins, as JSON."""
        model, trial = call.model, call.most_micros is not None
        row = {
            "id": str(call.id),
            "organization_id": str(model.organization_id),
            # A trial is no traffic: monitoring, learning and the evidence of releases read the calls of their agent.
            "agent_id": str(model.agent_id) if model.agent_id and not trial else None,
            "release_id": str(call.release.id) if call.release and not trial else None,
            "deployment_id": str(model.deployment_id) if model.deployment_id else None,
            "arm": call.arm.value,
            "share": call.share,
            "key": call.consumer.prefix,
            "key_id": str(call.consumer.key_id) if call.consumer.key_id else None,
            "session": session_name(call.session if model.agent_id else ""),
            "model": redact(call.priced or model.name)[:200],
            "streamed": call.request.stream,
            "told": call.lesson_handles[:200],
            "temperature": call.temperature,
            "safety": None,
            "cost_micros": 0,
            "duration_ms": 0.0,
            "created_at": call.at.isoformat(),
        }
        return storable(row)

    def _store(self, call: GatewayCall, found: dict[str, Any], begun: Any) -> None:
        found["hold"], found["cost_micros"] = self._payers.paid(call.payer, call.id)
        call.cost_micros = found["cost_micros"]
        found["endpoint"] = call.endpoint[:80]
        found["duration_ms"] = (time.perf_counter() - call.began) * 1e3
        found["first_token_ms"] = None if call.first is None else (call.first - call.began) * 1e3
        found["error"] = redact(found.get("error", ""))
        if call.consumer.monthly_micros is not None:
            self._spending.add(found)
        if call.model.records and is_long(call.request.body, found.get("response")):
            self._run_in_background(asyncio.to_thread(self._store_words, call, found, begun), self._ends)
        else:
            self._store_words(call, found, begun)

    def _store_words(self, call: GatewayCall, found: dict[str, Any], begun: Any) -> None:
        """Redacts what was said, and hands the trace to the thread that writes."""
        if call.model.records:
            found["metadata"] = redact_value(call.request.metadata)
            content = kept(call.request.body, call.request.query, found.get("response", {}))
            found |= {"request": content.request, "response": content.response, "safety": content.safety}
            if content.whole and call.completion is not None and (tokens := call.completion.tokens) is not None:
                found["sampled"] = SampledTokens(tokens.prompt_ids, tokens.token_ids, tokens.logprobs).packed(None)
        else:
            found["response"] = {}
        found = storable(found)
        self.journal.note({"t": "answer", "row": found})
        self._traces.put(PendingTrace(found, begun))

    def _start_shadow(self, call: GatewayCall) -> None:
        """Sends a share of the sessions to the new release too, in the background, after the answer."""
        model = call.model
        if drawn(model.salt, call.session) >= model.share or model.new is None or model.new.fault:
            return
        copy = GatewayCall(call.consumer, call.request, model, call.session, ArmName.SHADOW, model.new)
        copy.render_context()
        self._run_in_background(self._answer_shadow(copy))

    async def _answer_shadow(self, call: GatewayCall) -> None:
        try:
            await self.answer(call, DiscardedAnswer())
        except CallRefused as refused:
            log.info("the shadow of a call failed: %s", refused.message)

    async def _recovering(self) -> None:
        """Finishes the journals of killed processes, periodically."""
        while True:
            try:
                await asyncio.to_thread(_recover, self._folder)
            except TROUBLE as error:
                log.info("journals wait for the database: %s", error)
            except Exception:
                log.exception("a journal could not be finished")
            await asyncio.sleep(RECOVER_SECONDS)

    def _run_in_background(self, work: Any, tasks: set[asyncio.Task[Any]] | None = None) -> None:
        tasks = self._background if tasks is None else tasks
        tasks.add(task := asyncio.ensure_future(work))
        task.add_done_callback(tasks.discard)


class DiscardedAnswer:
    """Ignores the answer of a shadow."""

    def event(self, delta: StreamDelta) -> bool:
        return False

    def whole(self, body: bytes, answer: Answer) -> None:
        return None


def drawn(salt: bytes, session: str) -> float:
    """The session's draw from 0 to 1, the same for all its requests in a deployment."""
    digest = hashlib.blake2b(session.encode("utf-8", "replace"), key=salt, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@everything()
def _recover(folder: Path) -> int:
    from django.db import connection

    try:
        return recover(folder, calls_ended)
    finally:
        connection.close()
