"""A model behind the client's protocol that answers by a function: for tests that need thousands of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from budgets.llm.types import Completion, Message
from budgets.meter_port import Bill, CallKey
from budgets.pricing import Usage
from experiences.rollouts.runtimes.llm import Sampling
from experiences.rollouts.structured_output import Asker, ModelAnswer

PAID: Final = 7  # micro-dollars of each answer


@dataclass(frozen=True)
class Question:
    """One call as the model got it. ``stage`` is the first word of its key after the prefix."""

    key: str
    messages: tuple[Message, ...]
    response_format: Mapping[str, Any] | None
    number: int

    @property
    def stage(self) -> str:
        return self.key.split("/")[1]

    @property
    def is_repair(self) -> bool:
        return "That can't be used" in self.messages[-1].content or "That can't be used" in self.messages[-2].content

    @property
    def text(self) -> str:
        return "\n".join(message.content for message in self.messages)


@dataclass
class ScriptedModel:
    """``say`` gives the text of each answer, or an exception to raise."""

    say: Callable[[Question], str | Exception]
    asked: list[Question] = field(default_factory=list)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        key: CallKey,
        tools: Any = None,
        response_format: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> Completion:
        question = Question(key.key, tuple(messages), response_format, len(self.asked))
        self.asked.append(question)
        await asyncio.sleep(0)  # others that ask at the same time come in between, as they do over a network
        reply = self.say(question)
        if isinstance(reply, Exception):
            raise reply
        usage = Usage(10, 5)
        return Completion(reply, (), "stop", usage, PAID, "small", 1, "", Bill(PAID, usage, "table"))


def asker_of(model: ScriptedModel, **options: Any) -> tuple[Asker, list[ModelAnswer]]:
    """(an asker of this model, what it keeps)."""
    kept: list[ModelAnswer] = []
    return Asker(model, Sampling("small", 0.3, 512), "run", keep=kept.append, **options), kept
