"""Answers of a release that takes instructions, and perhaps tools and several calls: its philosophy is played here, by
the same code as while the release was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Unpack

from budgets.llm.caller_errors import UNUSABLE
from budgets.llm.errors import LLMError, Malformed
from budgets.llm.halves import clean
from budgets.llm.request import encode
from budgets.llm.types import Completion, Message, ToolSpec
from budgets.meter_port import CallKey
from evaluation.serving.gateway.endpoint_calls import EndpointCalls, refused_by
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.gateway_clients import PRODUCTION
from evaluation.serving.gateway.passed_fields import NOTHING
from evaluation.serving.gateway.refusals import CallRefused
from evaluation.serving.gateway.request import LENGTHS, ChatRequest
from experiences.agents.toolset_of import AgentTools
from experiences.privacy import cut_short
from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.base import StepOutcome, result
from experiences.rollouts.environments.scorers import UNFINISHED
from experiences.rollouts.rollout_clock import Clock
from experiences.rollouts.runtimes.base import Halted, RolloutFailure
from experiences.rollouts.runtimes.chat_body import BadCall, text_of
from experiences.rollouts.runtimes.llm.calls import CallOptions, Conversation, Sampling
from experiences.rollouts.runtimes.llm.philosophies import PHILOSOPHIES, PhilosophyPlay
from experiences.rollouts.runtimes.llm.prompts import Instructions
from experiences.rollouts.thoughts import thoughts_ran_out
from experiences.rollouts.types import Step

TAKEN: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "user", "metadata", "temperature", "seed", *LENGTHS}
)
ROLES: Final = ("system", "developer", "user", "assistant")
MOST_SHOWN: Final = 4_000  # characters of a result that callers and traces get; the model reads all
AWAY: Final = 5.0  # seconds until a caller may try again where a tool server does not answer


class OutOfSteps(BaseException):
    """The release took as many steps as it might."""


@dataclass
class ServedQuery:
    """The world of one call: its query, and what of the last message is the answer."""

    query: str
    answer: str | None = None
    one_answer: bool = True

    async def opening(self) -> str:
        return self.query

    async def say(self, text: str) -> StepOutcome:
        action = {"type": "answer", "tool": "", "parameters": {"text": text}}
        if thoughts_ran_out(text):
            return StepOutcome(action, result(False, error=UNFINISHED), done=True)
        self.answer = answer_in(text)
        return StepOutcome(action, result(True, self.answer), done=True)


@dataclass
class CallModel:
    """The model of one call: its endpoints in their order, paid for by the call."""

    call: GatewayCall
    endpoints: EndpointCalls
    answers: list[Completion] = field(default_factory=list)
    requests: int = 0
    spent_micros: int = 0

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        key: CallKey,
        tools: Sequence[ToolSpec] | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        **_: Unpack[CallOptions],
    ) -> Completion:
        """Raises CallRefused, Malformed: the answer can't be used, and the model may be asked again."""
        number, self.requests = self.requests, self.requests + len(self.call.upstreams)
        made = partial(
            encode,
            messages=messages,
            max_tokens=max_tokens,
            stream=False,
            tools=tools,
            temperature=temperature,
            seed=seed,
        )
        try:
            found = await self.endpoints.answer(self.call, made, number=number, spent_micros=self.spent_micros)
        except Malformed as error:
            self.spent_micros += error.spent_micros
            raise
        except LLMError as error:
            raise refused_by(error) from None
        self.answers.append(found)
        self.spent_micros += found.spent_micros
        return found


def played_check(request: ChatRequest) -> None:
    """Raises BadCall: a field would not reach the calls that the release makes by itself, or no query comes last."""
    for name, value in request.body.items():
        if value is not None and name not in TAKEN and value not in NOTHING.get(name, ()):
            why = f"{name} can't be used with this agent, which makes its calls by itself, as it was measured."
            raise BadCall(f"{why} Leave it out, or release the agent with the philosophy chat.", param=name)
    _messages(request)
    if request.body["messages"][-1]["role"] != "user":
        raise BadCall("The last message is the user's: this agent answers it as its task.", param="messages")


async def played(call: GatewayCall, endpoints: EndpointCalls, tools: Callable[[], AgentTools]) -> dict[str, Any]:
    """Columns of the trace, with the answer as ``response``: the text that was graded, and the steps that led to it.

    Raises:
        CallRefused: there is no answer.
    """
    assert call.release is not None and call.release.bundle.play is not None
    play, most = call.release.bundle.play, call.release.bundle.model.max_tokens
    try:
        played_check(call.request)
    except BadCall as error:
        raise CallRefused(error.status, str(error), error.kind, param=error.param or "") from None
    *before, task = _messages(call.request)
    world, model, steps = ServedQuery(task.content), CallModel(call, endpoints), list[Step]()

    def recorded(step: Step) -> None:
        steps.append(step)
        call.on_step()

    def check() -> None:
        if len(steps) >= play.max_steps:
            raise OutOfSteps

    own = tools()
    try:
        talk = Conversation(
            model=model,
            sampling=Sampling(call.priced, call.temperature, min(call.request.limit or most, most)),
            toolset=await own.toolset(),
            prefix=str(call.id),
            purpose=PRODUCTION,
            seed=call.request.seed,
            record=recorded,
            check=check,
            clock=(clock := Clock(play.seconds)),
        )
        philosophy = PHILOSOPHIES.get(call.release.bundle.philosophy)
        async with clock.running():
            await philosophy(PhilosophyPlay(talk, world, call.system, Instructions(**play.instructions), tuple(before)))
        if world.answer is None:
            raise _unusable(UNFINISHED, model)
    except OutOfSteps:
        raise _unusable(f"it took {play.max_steps} steps without one", model) from None
    except TimeoutError:
        raise _unusable(f"it took {play.seconds:g} seconds without one", model) from None
    except Halted as halted:
        wait = AWAY if halted.reason == "waiting_for_llm" else None
        raise CallRefused(503, f"The agent's tools can't be used: {halted}", "unavailable", wait=wait) from None
    except RolloutFailure as failure:
        raise _unusable(str(failure), model) from None
    finally:
        call.played = _columns(world.answer, steps, model)
        await own.aclose()
    call.token_received()
    return call.played


def completion_of(call: GatewayCall, row: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in the form of a model's API."""
    tokens = {"prompt_tokens": row["input_tokens"], "completion_tokens": row["output_tokens"]}
    return {
        "id": f"chatcmpl-{call.id.hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.priced,
        "choices": [{"index": 0, "message": row["response"], "finish_reason": row["finish_reason"]}],
        "usage": tokens | {"total_tokens": sum(tokens.values())},
    }


def _columns(answer: str | None, steps: Sequence[Step], model: CallModel) -> dict[str, Any]:
    done = [{"action": step.action, "result": _short(step.result)} for step in steps]
    said = {} if answer is None else {"content": clean(answer)}
    return {
        "response": {"role": "assistant", **said, "agentcore_steps": done} if said or done else {},
        "finish_reason": "" if answer is None else "stop",
        "input_tokens": sum(one.usage.input_tokens for one in model.answers),
        "output_tokens": sum(one.usage.output_tokens for one in model.answers),
        "attempts": sum(one.attempts for one in model.answers),
    }


def _short(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: cut_short(one, MOST_SHOWN) if isinstance(one, str) else one for name, one in result.items()}


def _messages(request: ChatRequest) -> list[Message]:
    """Raises BadCall: a message is no text, or of a tool."""
    found = []
    for at, message in enumerate(request.body["messages"]):
        if message["role"] not in ROLES or message.get("tool_calls") or message.get("function_call"):
            why = "This agent calls its own tools: send messages of system, user and assistant, without calls."
            raise BadCall(why, param=f"messages.{at}")
        try:
            found.append(Message(message["role"], text_of(message.get("content"))))
        except ValueError as error:
            raise BadCall(f"This agent reads text: {error}", param=f"messages.{at}.content") from None
    return found


def _unusable(why: str, model: CallModel) -> CallRefused:
    refused = CallRefused(UNUSABLE, f"The agent gave no answer: {why}.", "agent_error", final=True)
    refused.attempts = sum(one.attempts for one in model.answers)
    return refused
