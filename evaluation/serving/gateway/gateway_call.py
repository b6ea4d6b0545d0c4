"""One call of the gateway, while it is under way."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agentcore_site.ids import uuid7
from budgets.llm.types import Completion
from evaluation.serving.gateway.consumers import Consumer
from evaluation.serving.gateway.gateway_clients import PRODUCTION, SHADOW, TEST, PayerName
from evaluation.serving.gateway.request import ChatRequest
from evaluation.serving.gateway.served_models import ServedModel, ServedRelease, Upstream
from evaluation.serving.models import ArmName
from experiences.rollouts.runtimes.llm.agent import prompt_with


@dataclass
class GatewayCall:
    """A call under way."""

    consumer: Consumer
    request: ChatRequest
    model: ServedModel
    session: str
    arm: ArmName = ArmName.NONE
    release: ServedRelease | None = None
    share: float | None = None  # of the new release when the session's arm was drawn; None without a draw
    id: uuid.UUID = field(default_factory=uuid7)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.perf_counter)
    first: float | None = None  # time of the first token
    system: str = ""
    lesson_handles: list[str] = field(default_factory=list)
    endpoint: str = ""
    completion: Completion | None = None  # of a model
    played: dict[str, Any] = field(default_factory=dict)  # of a release that makes several calls: columns of its trace
    held: bool = False  # whether its worst case counts against its key's month
    cost_micros: int = 0  # once it has ended
    on_step: Callable[[], None] = lambda: None  # of an agent that takes several
    most_micros: int | None = None  # of a person's trial, which is no traffic of its agent; None: a call of a program

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        found = [(b"x-agentcore-trace-id", str(self.id).encode())]
        if self.release is not None:
            found += [
                (b"x-agentcore-release", str(self.release.number).encode()),
                (b"x-agentcore-arm", self.arm.value.encode()),
            ]
        if left_out := self.request.left_out([one.endpoint for one in self.upstreams[:1]]):
            found.append((b"x-agentcore-left-out", ", ".join(left_out).encode()))
        return found

    @property
    def priced(self) -> str:
        upstreams = self.upstreams
        return upstreams[0].priced if upstreams else ""

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        return self.model.upstreams if self.release is None else self.release.upstreams

    @property
    def payer(self) -> PayerName:
        return PayerName(self.model.organization_id, self.model.agent_id, trial=self.most_micros is not None)

    @property
    def purpose(self) -> str:
        """The call's purpose in the ledger."""
        if self.most_micros is not None:
            return TEST
        return SHADOW if self.arm == ArmName.SHADOW else PRODUCTION

    @property
    def temperature(self) -> float | None:
        """The caller's, else that with which the release was measured."""
        if self.request.temperature is not None or self.release is None or self.release.bundle.play is None:
            return self.request.temperature
        return self.release.bundle.play.temperature

    def token_received(self) -> None:
        if self.first is None:
            self.first = time.perf_counter()

    def render_context(self) -> None:
        """Renders the release's context for the query."""
        if self.release is not None:
            bundle, query = self.release.bundle, self.request.query
            lessons = bundle.context.lessons_for(query)
            self.lesson_handles = [lesson.handle for lesson in lessons]
            self.system = prompt_with(bundle.system, bundle.context.text_for(query))
