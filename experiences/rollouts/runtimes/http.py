"""The ``http`` runtime: an agent of others, called over HTTP. Its code stays as it is; only the address of its model
is ours (``experiences.rollouts.runtimes.gateway``), so that its calls are metered and recorded.

What is sent: {"query", "base_url", "api_key", "model", "rollout", "seed", "max_steps", "system"}.
What has to come back: {"answer": "..."}, a JSON object with the final answer as text. "system" is for the agent to put
before its own prompt; whether it does is seen in its calls (``runtimes.arrival``). Of an agent that can't, the
gateway puts it there in each call (``inject``), and "system" is empty.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentcore_site.outbound import OutboundClient, OutboundError
from budgets.llm.errors import LLMError, Malformed
from budgets.llm.transport import OnDelta
from budgets.llm.types import Completion, Message
from experiences.rollouts.environments.base import TextEpisode
from experiences.rollouts.runtimes.action import described
from experiences.rollouts.runtimes.arrival import Arrival
from experiences.rollouts.runtimes.base import EnvironmentFailure, Halted, PromptContext, RolloutAttempt, RolloutFailure
from experiences.rollouts.runtimes.chat_body import BadCall, ChatBody
from experiences.rollouts.runtimes.gateway import RolloutGateway, Session
from experiences.rollouts.runtimes.llm.calls import ChatModel, Conversation, ModelFailure, Sampling, failed
from experiences.rollouts.tools.toolset import Toolset
from experiences.rollouts.types import RolloutKey

MAX_ANSWER: Final = 2**20
CONNECT_SECONDS: Final = 10.0


class AgentFailure(RolloutFailure):
    """The foreign agent can't be reached, or answers with something else than an answer."""

    boundary = "agent"


@dataclass
class HTTPRuntime:
    """Hands each rollout to the agent at ``url``.

    ``gateway`` belongs to the running loop. ``max_steps`` bounds the model calls of a rollout: further ones are
    refused, and the agent may still answer. ``context`` gives each rollout's context besides ``system``; ``inject``:
    both are put into the agent's calls instead of being sent to it.
    """

    url: str
    gateway: RolloutGateway
    model: ChatModel
    sampling: Sampling
    system: str = ""
    context: Callable[[RolloutKey, str], PromptContext] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_steps: int = 20
    key_prefix: str = "run"
    purpose: str = "training"
    inject: bool = False

    async def play(self, attempt: RolloutAttempt) -> bool:
        """Returns whether the episode ended by itself.

        Raises:
            RolloutFailure, Halted: as ``Runtime`` says.
        """
        key, episode = attempt.key, attempt.episode
        if not isinstance(episode, TextEpisode) or not episode.one_answer:
            raise EnvironmentFailure("an agent over HTTP gives one answer; this environment wants a conversation")
        context = PromptContext("", {}) if self.context is None else self.context(key, attempt.scenario.query)
        arrival = Arrival(context)
        prefix = f"{self.key_prefix}/{key.path}"
        seed = int(attempt.rng.integers(2**31))
        talk = Conversation(
            model=self.model,
            sampling=self.sampling,
            toolset=Toolset(),
            prefix=prefix,
            purpose=self.purpose,
            seed=seed,
            record=arrival.noting(attempt.record),
            check=attempt.check,
            iteration=key.iteration,
        )
        prompt = "\n\n".join(part for part in (self.system, context.text) if part)
        calls = _Calls(talk, self.max_steps, arrival, prompt if self.inject else "")
        try:
            task = await episode.opening()
        except Exception as error:
            raise EnvironmentFailure(described(error)) from error
        async with self.gateway.session(Session(calls.make, self.sampling.model)) as (base_url, api_key):
            asked = {
                "query": task,
                "base_url": base_url,
                "api_key": api_key,
                "model": self.sampling.model,
                "rollout": prefix,
                "seed": seed,
                "max_steps": self.max_steps,
                "system": "" if self.inject else prompt,
            }
            began, started = time.time(), time.perf_counter()
            answer = await calls.until_answered(self._ask(asked))
        arrival.answered()
        attempt.check()
        try:
            outcome = await episode.say(answer)
        except Exception as error:
            raise EnvironmentFailure(described(error)) from error
        talk.step(outcome.action, outcome.result, seen=calls.seen or task, began=began, started=started)
        return True

    async def _ask(self, asked: Mapping[str, Any]) -> str:
        """Raises AgentFailure. The rollout's own limit of time holds."""
        headers = {"content-type": "application/json", **self.headers}
        try:
            async with (
                OutboundClient(connect_s=CONNECT_SECONDS) as client,
                await client.send(
                    "POST", client.target(self.url), headers=headers, body=json.dumps(dict(asked)).encode()
                ) as response,
            ):
                read = await response.read(MAX_ANSWER)
        except OutboundError as error:
            raise AgentFailure(f"it can't be called: {error}") from None
        if len(read) > MAX_ANSWER:
            raise AgentFailure(f"it answered with more than {MAX_ANSWER // 2**20} MB")
        if response.status != 200:
            raise AgentFailure(f"it answered with HTTP {response.status}")
        return _answer(read)


class _Calls:
    """The model calls of one foreign rollout: each one a step, and the last step left for the answer. ``prompt`` is put
    into all of them.

    They are made in the gateway's tasks. What stops the rollout there (no money, no time, a person) is kept, and
    raised in the rollout's own task, which stops waiting for the agent. Once the agent has answered no call begins,
    and those under way are waited for, since they are paid for; once the rollout is over none is left.
    """

    def __init__(self, talk: Conversation, max_steps: int, arrival: Arrival, prompt: str) -> None:
        self.talk, self.left, self.arrival, self.prompt = talk, max_steps - 1, arrival, prompt
        self.stopped: BaseException | None = None
        self.refused: ModelFailure | None = None  # the last call, if the model's service did
        self.seen = ""
        self._over = False
        self._under_way: set[asyncio.Task[Completion]] = set()
        self._waiting: asyncio.Task[str] | None = None

    async def until_answered(self, asking: Coroutine[Any, Any, str]) -> str:
        """Raises what stopped the rollout, or AgentFailure."""
        self._waiting = asyncio.ensure_future(asking)
        try:
            answer = await self._waiting
            self._over = True
            await self._settled()
        except (AgentFailure, asyncio.CancelledError) as error:
            if self.stopped is not None:
                raise self.stopped from None
            if self.refused is not None and isinstance(error, AgentFailure):  # an agent fails without its model
                raise self.refused from error
            raise
        finally:
            self._over = True
            self._waiting.cancel()
            for call in self._under_way:
                call.cancel()
            await self._settled()
        if self.stopped is not None:
            raise self.stopped
        return answer

    async def make(self, body: ChatBody, on_delta: OnDelta | None = None) -> Completion:
        """Raises BadCall, Halted, LLMError, which the gateway reports to the agent."""
        if self.stopped is not None:
            raise _stopped()
        if self._over:
            raise BadCall("This rollout is over.", 401, "authentication_error")
        if self.left <= 0:
            raise BadCall("This rollout has used all of its model calls.", 429, "step_limit")
        try:
            self.talk.check()
        except BaseException as stop:
            self._stop(stop)
            raise _stopped() from None
        self.left -= 1
        call = asyncio.ensure_future(self._made(body, on_delta))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        await asyncio.wait({call})
        if call.cancelled():
            raise _stopped()
        return call.result()

    async def _made(self, body: ChatBody, on_delta: OnDelta | None) -> Completion:
        messages = prompted(body.conversation(), self.prompt)
        self.arrival.check(messages)
        seen = self.seen = messages[-1].content
        options = body.options()
        if on_delta is not None:
            options["on_delta"] = on_delta
        began, started = time.time(), time.perf_counter()

        def failed_step(kind: str, why: str, spent_micros: int) -> None:
            action = {"type": kind, "tool": "", "parameters": {}}
            self.talk.step(action, failed(why), seen=seen, began=began, started=started, spent_micros=spent_micros)

        try:
            answer = await self.talk.once(
                messages,
                tools=body.specs(),
                max_tokens=body.limit,
                temperature=body.temperature,
                **options,
            )
        except Halted as halt:
            self._stop(halt)
            raise
        except Malformed as error:
            failed_step("malformed", error.message, error.spent_micros)
            raise
        except ModelFailure as failure:
            self.refused = failure
            cause = failure.__cause__
            failed_step("refused", str(failure), cause.spent_micros if isinstance(cause, LLMError) else 0)
            if isinstance(cause, LLMError):
                raise cause from None
            raise BadCall(str(failure)) from failure
        except ValueError as error:  # what can't be written as JSON, such as 1e999
            failed_step("refused", str(error), 0)
            raise BadCall(f"This request can't be passed on: {error}.") from error
        self.refused = None
        wanted = [{"tool": call.name, "parameters": dict(call.arguments)} for call in answer.tool_calls]
        action: dict[str, Any] = {"type": "message", "tool": "", "parameters": {}}
        if len(wanted) == 1:
            action = {"type": "tool", **wanted[0]}
        elif wanted:
            action = {"type": "tool", "tool": "several", "parameters": {"calls": wanted}}
        result = {"success": True, "output": answer.text, "error": ""}
        text = answer.text if wanted else ""
        self.talk.step(action, result, seen=seen, text=text, began=began, started=started)
        return answer

    async def _settled(self) -> None:
        """Waits until no call is under way. Each result is sent to the agent and stored as a step."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    def _stop(self, why: BaseException) -> None:
        self.stopped = why
        if self._waiting is not None:
            self._waiting.cancel()


def prompted(messages: list[Message], prompt: str) -> list[Message]:
    """A conversation with ``prompt`` before the agent's own words. Many models' templates take one system message only,
    as the first, so that it becomes part of that one where there is one."""
    if not prompt:
        return messages
    first, *rest = messages
    if first.role == "system":
        return [replace(first, content=f"{prompt}\n\n{first.content}"), *rest]
    return [Message("system", prompt), first, *rest]


def _stopped() -> BadCall:
    return BadCall("This rollout was stopped.", 409, "stopped")


def _answer(read: bytes) -> str:
    try:
        value = json.loads(read)
    except ValueError:
        raise AgentFailure("it answered with something that is no JSON") from None
    answer = value.get("answer") if isinstance(value, Mapping) else None
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    if not isinstance(answer, str):
        raise AgentFailure('it answered without a text under "answer"')
    return answer
