"""Tries of an endpoint in the forms in which jobs call it, and the options with which its service answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentcore_site.ids import uuid7
from budgets.llm.client import MeteredChatClient
from budgets.llm.errors import LLMError, Malformed
from budgets.llm.remedies import correction, merged, remedies, with_step
from budgets.llm.request import encode
from budgets.llm.retry import RetryPolicy
from budgets.llm.types import Completion, Endpoint, Message
from budgets.meter_port import Meter, PriceBook
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm.calls import CallOptions, Conversation, ModelFailure, ModelRefused, Sampling
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS
from experiences.rollouts.tools.base import AgentTool
from experiences.rollouts.tools.llm_tools import offered
from experiences.rollouts.tools.toolset import TextTool, Toolset
from experiences.rollouts.tools.written_calls import HINT

TOKENS: Final = 256  # of an answer; a model that thinks needs most of them
SECONDS: Final = 30.0  # for an answer
MOST_CHANGES: Final = 8  # of options, in one test
TEMPERATURE: Final = 0.7
READY: Final = "Say in one short sentence that you are ready."
SUM: Final = "What is 17 * 25? Use the calculator."
JSON: Final = 'Reply with one JSON object: {"ready": true}'
SHAPE: Final = {
    "type": "json_schema",
    "json_schema": {
        "name": "ready",
        "schema": {"type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"]},
        "strict": False,
    },
}


@dataclass(frozen=True)
class TrialPart:
    """One form of call. ``refused``: the service refuses it, so that jobs that need the form fail."""

    name: str
    ok: bool
    message: str
    refused: bool = False


@dataclass
class EndpointTrial:
    """The tries of one endpoint. ``found``: options with which the service takes what it refused at first."""

    endpoint: Endpoint
    meter: Meter
    prices: PriceBook
    found: dict[str, Any] = field(default_factory=dict)
    parts: list[TrialPart] = field(default_factory=list)
    first: Completion | None = None
    spent_micros: int = 0
    _changes: int = 0

    async def run(self, *, tools: bool = True, more: bool = True) -> None:
        """Tries a plain call, then calls with tools, and with ``more`` JSON and a stream. All others need a plain
        answer."""
        if not await self._part("chat", self._chat()):
            return
        if tools:
            await self._part("tools", self._tools())
        if more:
            await self._part("json", self._json())
            await self._part("stream", self._stream())

    @property
    def as_it_is(self) -> bool:
        """Whether jobs can call the endpoint as it is saved."""
        return not self.found and bool(self.parts) and self.parts[0].ok

    async def _part(self, name: str, trial: Any) -> bool:
        try:
            part = TrialPart(name, True, await trial)
        except (ModelFailure, Malformed, Halted, ValueError) as error:
            refused = isinstance(error, ModelRefused) or getattr(error, "reason", "") == "llm_refused"
            cause = error.error if isinstance(error, ModelRefused) else error.__cause__
            part = TrialPart(name, False, with_step(str(error), correction(cause)), refused)
        self.parts.append(part)
        return part.ok

    async def _chat(self) -> str:
        self.first = await self._call(self._messages(READY))
        return "It answers."

    async def _tools(self) -> str:
        messages = self._messages(SUM, INSTRUCTIONS.react)
        answer = await self._call(messages, tools=True)
        if not answer.tool_calls:
            if HINT in answer.notes:
                raise ModelFailure(HINT)
            return "It takes tools, and called none."
        await self._call([*messages, *await self._talk(self.endpoint).use_tools(answer, SUM)], tools=True)
        return "It calls a tool, and takes its result."

    async def _json(self) -> str:
        try:
            await self._call(self._messages(JSON), response_format=SHAPE)
        except ModelRefused:
            await self._call(self._messages(JSON))
            return "It takes no JSON schema: the schema is given in words."
        return "It takes a JSON schema."

    async def _stream(self) -> str:
        pieces: list[str] = []
        await self._call(self._messages(READY), on_delta=pieces.append)
        return f"It streams ({len(pieces)} piece{'' if len(pieces) == 1 else 's'})."

    async def _call(self, messages: Sequence[Message], *, tools: bool = False, **options: Any) -> Completion:
        """The answer, with options changed until the service takes the call or names no further parameter.

        Raises:
            ModelFailure, Malformed, Halted: there is no answer.
        """
        endpoint = self.endpoint
        while True:
            try:
                return await self._once(endpoint, messages, tools=tools, **options)
            except ModelRefused as refused:
                changes = (
                    [] if "response_format" in options else self._remedies(endpoint, refused.error, messages, tools)
                )
                if not changes:
                    raise
                if len(changes) > 1:  # nothing is named: the first change that helps
                    return await self._guessed(endpoint, changes, refused, messages, tools=tools, **options)
                endpoint = self._taken(endpoint, changes[0])

    async def _guessed(
        self,
        endpoint: Endpoint,
        changes: list[dict[str, Any]],
        refused: ModelRefused,
        messages: Sequence[Message],
        *,
        tools: bool,
        **options: Any,
    ) -> Completion:
        for change in changes:
            if self._changes >= MOST_CHANGES:
                break
            self._changes += 1
            try:
                answer = await self._once(_changed(endpoint, change), messages, tools=tools, **options)
            except ModelRefused:
                continue
            self._taken(endpoint, change)
            return answer
        raise refused

    def _remedies(
        self, endpoint: Endpoint, error: LLMError, messages: Sequence[Message], tools: bool
    ) -> list[dict[str, Any]]:
        specs = _toolset().specs if tools else ()
        sent = encode(
            endpoint, messages, max_tokens=TOKENS, stream=True, tools=specs, temperature=TEMPERATURE, seed=1
        ).body
        found = remedies(error, json.loads(sent))
        new = [change for change in found if _changed(endpoint, change) != endpoint]
        return new if self._changes + 1 < MOST_CHANGES else []

    def _taken(self, endpoint: Endpoint, change: dict[str, Any]) -> Endpoint:
        self._changes += 1
        before = {"leave_out": list(self.endpoint.leave_out)} if self.endpoint.leave_out else {}
        self.found = merged({**before, **self.found}, change)
        self.endpoint = _changed(endpoint, change)
        return self.endpoint

    async def _once(
        self, endpoint: Endpoint, messages: Sequence[Message], *, tools: bool = False, **options: Any
    ) -> Completion:
        given: CallOptions = options  # type: ignore[assignment]
        async with MeteredChatClient(
            replace(endpoint, timeout_s=min(endpoint.timeout_s, SECONDS)),
            self.meter,
            self.prices,
            retry=RetryPolicy(max_retries=0, total_s=SECONDS),
        ) as client:
            talk = self._talk(endpoint, client)
            try:
                answer = await talk.once(messages, tools=_toolset().specs if tools else (), **given)
            except ModelRefused as refused:
                self.spent_micros += refused.error.spent_micros
                raise
            except Malformed as error:
                self.spent_micros += error.spent_micros
                raise
        self.spent_micros += answer.spent_micros or answer.cost_micros
        return answer

    def _talk(self, endpoint: Endpoint, client: Any = None) -> Conversation:
        """A rollout's calls, which leave no steps."""
        sampling = Sampling(endpoint.model, TEMPERATURE, TOKENS)
        return Conversation(
            client, sampling, _toolset(), f"test/{uuid7()}", "test", 7, record=lambda _: None, check=lambda: None
        )

    def _messages(self, question: str, *parts: str) -> list[Message]:
        system = "\n\n".join(("You are a helpful assistant.", *parts))
        return [Message("system", system), Message("user", question)]


def _toolset() -> Toolset:
    calculator = offered("calculator")
    return Toolset([calculator if isinstance(calculator, AgentTool) else TextTool(calculator)])


def _changed(endpoint: Endpoint, change: dict[str, Any]) -> Endpoint:
    options: dict[str, Any] = merged({"leave_out": list(endpoint.leave_out)}, change)
    return replace(endpoint, **options)
