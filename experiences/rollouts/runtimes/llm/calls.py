"""One rollout's talk with the model: messages kept, calls made under keys of their own, every answer a step.

A call that fails for a reason that has nothing to do with the agent (no money, no service, no right) halts the run;
an answer that can't be used is a step with its reason, and the model is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Unpack

from budgets.llm import tokens
from budgets.llm.errors import (
    AuthFailed,
    BadAddress,
    CircuitOpen,
    LLMError,
    Malformed,
    ModelNotFound,
    NoCredit,
    OtherApi,
    Permanent,
    Transient,
)
from budgets.llm.transport import OnDelta
from budgets.llm.types import AnswerOptions, Completion, Message, ToolCall, ToolSpec
from budgets.meter_port import (
    BudgetRefused,
    CallKey,
    MeterFailure,
    SpendingRateFull,
    SpendingTooFast,
    UnknownPrice,
)
from experiences.privacy import cut_short
from experiences.rollouts.call_notes import CallNotes
from experiences.rollouts.captured import SampledTokens
from experiences.rollouts.message_diff import MessageDiff
from experiences.rollouts.rollout_clock import Clock, current_clock
from experiences.rollouts.runtimes.base import Halted, RolloutFailure
from experiences.rollouts.tools.toolset import Toolset
from experiences.rollouts.tools.written_calls import with_hint
from experiences.rollouts.types import Step

OF_ROLLOUTS: Final = ("training", "evaluation", "test")  # purposes of an agent's own calls
SHORT: Final = 200  # tokens of a prompt that are not counted after
MAX_MALFORMED: Final = 3  # unusable answers in a row before a rollout is given up
MAX_RAW: Final = 2_000  # characters that are kept of arguments that are no JSON
MAX_TOOL_CALLS: Final = 16  # that are run of one message; a model in a loop asks for hundreds


class ModelFailure(RolloutFailure):
    """The model's answers can't be used, or it refuses this very request."""

    boundary = "model"


class ModelRefused(ModelFailure):
    """The model's service refuses this very request; ``error`` holds its words."""

    boundary = "refused"

    def __init__(self, error: LLMError) -> None:
        super().__init__(error.message)
        self.error = error


class ContextCut(ModelFailure):
    """The service answered to a part of the prompt only."""

    boundary = "cut"


class CallOptions(AnswerOptions, total=False):
    """Optional fields of a call; absent ones are not sent."""

    on_delta: OnDelta  # gets each piece of text as it arrives; the call is a streamed one


class ChatModel(Protocol):
    """Interface of the metered client (``budgets.llm.client``) that rollouts use."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        key: CallKey,
        tools: Sequence[ToolSpec] | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. ``model`` is the name under which calls are priced; ``max_tokens`` bounds each answer.
    ``top_p`` is the endpoint's own addition to each call, recorded here."""

    model: str
    temperature: float | None = 0.7
    max_tokens: int = 1024
    top_p: float | None = None


@dataclass
class Conversation:
    """The calls of one rollout.

    ``prefix`` makes the keys of its calls its own; ``seed`` is drawn once per rollout, so that two policies that
    are compared draw alike where the provider honours it. ``spent_micros`` and ``tokens`` of a call are put on the
    first step that comes of it.
    """

    model: ChatModel
    sampling: Sampling
    toolset: Toolset
    prefix: str
    purpose: str
    seed: int | None
    record: Callable[[Step], None]
    check: Callable[[], None]
    iteration: int | None = None
    clock: Clock = field(default_factory=current_clock, repr=False)
    _calls: int = 0
    _malformed: int = 0
    _pending: Completion | None = field(default=None, repr=False)
    _captured: SampledTokens | None = field(default=None, repr=False)  # the tokens of the call before
    _diff: MessageDiff = field(default_factory=MessageDiff, repr=False)
    _asked: Mapping[str, Any] | None = field(default=None, repr=False)  # settings of a call that has no step yet
    _notes: CallNotes = field(default_factory=CallNotes, repr=False)

    async def ask(
        self, messages: Sequence[Message], *, role: str = "", tools: bool = False, temperature: float | None = None
    ) -> Completion:
        """The model's next usable answer: text, or calls of tools. Unusable ones are recorded, and asked again.

        Raises:
            Halted: the run can't go on for now.
            ModelFailure: this request is refused, or several answers in a row were unusable.
        """
        while True:
            self.check()
            began, started = time.time(), time.perf_counter()
            try:
                specs = self.toolset.specs if tools else ()
                answer = await self._complete(messages, specs=specs, temperature=temperature)
            except Malformed as error:
                self._unusable(messages, role, error.message, began, started, spent_micros=error.spent_micros)
                continue
            if not answer.text.strip() and not answer.tool_calls:
                self._pending = answer
                why = "cut off by max_tokens" if answer.finish_reason == "length" else "it said nothing"
                self._unusable(messages, role, f"empty answer: {why}", began, started)
                continue
            self._malformed = 0
            self._pending = answer
            self._diff.answered(messages, answer, role)
            return answer

    async def once(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_tokens: int | None = None,
        temperature: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        """One call as an agent over HTTP makes it, within this rollout's limits. The caller has to ``check`` first.

        Raises:
            Halted, ModelFailure: as ``ask``.
            Malformed: the answer can't be used; it was paid for.
        """
        answer = await self._complete(messages, specs=tools, temperature=temperature, max_tokens=max_tokens, **options)
        self._pending = answer
        self._diff.answered(messages, answer)
        return answer

    async def use_tools(self, answer: Completion, seen: str, *, role: str = "") -> list[Message]:
        """Runs the tools that an answer calls, each as a step, and returns the resulting messages.

        A tool that is not there, arguments that are no JSON object, a tool that fails or takes too long: each is a
        failed result that the model reads, never a crash.
        """
        messages = [answer.message]
        for number, call in enumerate(answer.tool_calls):
            if number:
                self.check()
            began, started = time.time(), time.perf_counter()
            result = await self._run(call, number)
            self.step(
                {"type": "tool", "tool": call.name, "parameters": dict(call.arguments) or _raw(call)},
                result,
                seen=seen,
                role=role,
                began=began,
                started=started,
                text=answer.text if number == 0 else "",
            )
            output = result["output"] if result["success"] else f"error: {result['error']}"
            messages.append(Message("tool", output, tool_call_id=call.id))
        return messages

    def step(
        self,
        action: dict[str, Any],
        result: dict[str, Any],
        *,  # the fields of the step
        seen: str,
        role: str = "",
        text: str = "",
        began: float | None = None,
        started: float | None = None,
        spent_micros: int = 0,
    ) -> None:
        """Records a step. The answer that led to it pays for it, failed attempts included; its notes are beside.

        ``spent_micros``: of a call that brought no answer.
        """
        paid, self._pending = self._pending, None
        asked, self._asked = self._asked, None
        own = 0.0 if started is None else (time.perf_counter() - started) * 1e3
        if role:
            action = action | {"role": role}
        if text:
            action = action | {"text": text}
        if paid is not None and paid.notes:
            result = result | {"notes": list(paid.notes)}
        self.record(
            Step(
                state={"observation": seen, "done": [], **self._diff.noted(seen)},
                action=action,
                result=result,
                timestamp=time.time() if began is None else began,
                duration_ms=own + (0 if paid is None else paid.latency_ms),
                tokens=0 if paid is None else paid.usage.total_tokens,
                cost_micros=spent_micros if paid is None else paid.spent_micros or paid.cost_micros,
                sampled="" if paid is None else self._packed(paid),
                call={} if asked is None else self._notes.noted(asked, None if paid is None else paid.finish_reason),
            )
        )

    def _packed(self, answer: Completion) -> str:
        """The call's tokens, where the endpoint gave them."""
        if answer.tokens is None:
            return ""
        before = self._captured
        self._captured = SampledTokens(answer.tokens.prompt_ids, answer.tokens.token_ids, answer.tokens.logprobs)
        return self._captured.packed(before)

    async def _run(self, call: ToolCall, number: int) -> dict[str, Any]:
        if number >= MAX_TOOL_CALLS:
            return failed(f"not run: more than {MAX_TOOL_CALLS} tool calls in one message")
        if call.arguments_error:
            return failed(f"the arguments are no JSON object: {call.arguments_error}")
        found = await self.toolset.call(call.name, call.arguments)
        return {"success": found.ok, "output": found.output, "error": found.error}

    async def _complete(
        self,
        messages: Sequence[Message],
        *,
        specs: Sequence[ToolSpec],
        temperature: float | None,
        max_tokens: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        self._calls += 1
        sampling = self.sampling
        key = CallKey(f"{self.prefix}/{self._calls}", self.purpose, sampling.model, self.iteration, self.prefix)
        most = min(max_tokens or sampling.max_tokens, sampling.max_tokens)
        temperature = sampling.temperature if temperature is None else temperature
        own = 0.0
        self.clock.pause()
        try:
            answer = await self.model.complete(
                messages,
                max_tokens=most,
                key=key,
                tools=specs or None,
                temperature=temperature,
                seed=self.seed,
                **options,
            )
            if self.purpose != "judge":  # a slow verdict is not the agent's doing
                own = answer.latency_ms / 1000
            if self.purpose in OF_ROLLOUTS:
                _check_whole(messages, answer)
            return with_hint(answer) if specs else answer
        except SpendingRateFull as error:
            raise Halted("spending_rate", str(error), error.retry_after) from error
        except BudgetRefused as error:
            raise Halted("budget_exceeded", str(error)) from error
        except UnknownPrice as error:
            raise Halted("llm_refused", str(error)) from error
        except SpendingTooFast as error:
            raise Halted("spends_too_fast", str(error)) from error
        except MeterFailure as error:
            raise Halted("waiting_for_llm" if error.passing else "llm_refused", str(error)) from error
        except (Transient, CircuitOpen) as error:
            raise Halted("waiting_for_llm", error.message, error.retry_after) from error
        except (AuthFailed, BadAddress, NoCredit, ModelNotFound, OtherApi) as error:
            raise Halted("llm_refused", error.message) from error
        except Malformed:
            raise
        except (Permanent, LLMError) as error:
            raise ModelRefused(error) from error
        finally:
            self.clock.resume(own)
            # Only now: an agent over HTTP may have several calls under way.
            self._asked = {"temperature": temperature, "top_p": sampling.top_p, "max_tokens": most}

    def _unusable(
        self, messages: Sequence[Message], role: str, why: str, began: float, started: float, *, spent_micros: int = 0
    ) -> None:
        seen = messages[-1].content if messages else ""
        action = {"type": "malformed", "tool": "", "parameters": {}}
        self.step(action, failed(why), seen=seen, role=role, began=began, started=started, spent_micros=spent_micros)
        self._malformed += 1
        if self._malformed >= MAX_MALFORMED:
            raise ModelFailure(f"{self._malformed} unusable answers in a row; the last: {why}")


def _check_whole(messages: Sequence[Message], answer: Completion) -> None:
    """Raises ContextCut: the service reports fewer tokens of the prompt than it has at least."""
    usage, least = answer.usage, tokens.least_of(message.content for message in messages)
    if least < SHORT or usage.estimated or usage.cached_tokens or usage.input_tokens >= least:
        return
    raise ContextCut(
        f"the service read {usage.input_tokens:,} tokens of a prompt of at least {least:,}, and did not say so. Raise"
        " the context length of its server (Ollama: num_ctx; llama.cpp: -c; LM Studio: context length)."
    )


def failed(error: str) -> dict[str, Any]:
    return {"success": False, "output": "", "error": error}


def _raw(call: ToolCall) -> dict[str, Any]:
    return {"raw": cut_short(call.raw, MAX_RAW)} if call.raw and call.arguments_error else {}
