"""The metered clients by which one job asks its models: all on one account, those of one endpoint at one pace.

Made for one slice of work and one event loop.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from budgets.endpoint_limits import SharedPace, breaker_of
from budgets.llm.client import MeteredChatClient
from budgets.llm.concurrency_limits import ConcurrencyLimits
from budgets.llm.types import Endpoint
from budgets.metering.database_meter import DatabaseMeter, LedgerUnavailable
from budgets.metering.patient_meter import PatientMeter
from budgets.metering.price_book import DatabasePriceBook
from budgets.pricing import Price
from experiences.agents.endpoint_config import BadEndpoint, endpoint_of_agent, endpoint_of_reflector
from experiences.models import Agent
from experiences.rollouts.runtimes.base import Halted

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Line:
    """Shared state of the clients of one endpoint."""

    pace: SharedPace
    gates: ConcurrencyLimits


class JobClients:
    """Clients of an agent's models, charged to its organisation, itself and the job."""

    def __init__(self, agent: Agent, *, job_id: uuid.UUID) -> None:
        self._agent, self._job_id = agent, job_id
        self._prices = DatabasePriceBook.load(agent.organization_id)
        self._meter: DatabaseMeter | None = None
        self._lines: dict[Any, _Line] = {}  # by the id of the endpoint's row
        self._clients: dict[tuple[str, str], MeteredChatClient] = {}

    def own(self, model: str = "") -> MeteredChatClient:
        """Client of the agent's own model, or of another model at the same endpoint.

        Raises:
            Halted: the endpoint can't be used.
        """
        return self._client("own", model, lambda: (self._agent.endpoint_id, endpoint_of_agent(self._agent, model)))

    def reflector(self) -> MeteredChatClient:
        """Client of the model that reflects on the agent's attempts.

        Raises:
            Halted: the endpoint can't be used.
        """
        agent = self._agent
        at = agent.reflector_id or agent.endpoint_id
        return self._client("reflector", "", lambda: (at, endpoint_of_reflector(agent)))

    def meter(self) -> PatientMeter:
        """The job's account, made in the running loop."""
        if self._meter is None:
            agent = self._agent
            self._meter = DatabaseMeter(organization_id=agent.organization_id, agent_id=agent.id, job_id=self._job_id)
        return PatientMeter(self._meter)

    def price(self, model: str) -> Price:
        """Raises UnknownPrice."""
        return self._prices.price(model)

    async def flush(self) -> None:
        """Waits until what was answered by now is settled."""
        if self._meter is not None:
            await self._meter.flush()

    async def aclose(self) -> None:
        """Waits until every settlement is written. Where the database is away for too long, the holds that are left are
        charged when they expire: no reason to fail the work that was done."""
        clients, lines, meter = self._clients, self._lines, self._meter
        self._clients, self._lines, self._meter = {}, {}, None
        for client in clients.values():
            await client.aclose()
        for line in lines.values():
            await line.pace.aclose()
        if meter is not None:
            try:
                await meter.close()
            except LedgerUnavailable as error:
                log.error("job %s: %s", self._job_id, error)

    def _client(self, whose: str, model: str, found: Callable[[], tuple[Any, Endpoint]]) -> MeteredChatClient:
        if (whose, model) not in self._clients:
            try:
                at, endpoint = found()
            except BadEndpoint as error:
                raise Halted("llm_refused", str(error)) from error
            self._clients[whose, model] = self._made(at, endpoint)
        return self._clients[whose, model]

    def _made(self, at: Any, endpoint: Endpoint) -> MeteredChatClient:
        organization = self._agent.organization_id
        if at not in self._lines:
            pace = SharedPace(organization, endpoint.url)
            self._lines[at] = _Line(pace, ConcurrencyLimits(endpoint, pace=pace))
        return MeteredChatClient(
            endpoint,
            self.meter(),
            self._prices,
            breaker=breaker_of(organization, endpoint.url),
            gates=self._lines[at].gates,
        )
