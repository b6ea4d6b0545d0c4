"""Philosophies of an agent: chat, ReAct, chain of thought, autonomous (plan, act, verify), multi-agent.

Each is a function of a ``PhilosophyPlay`` that returns whether the episode ended by itself. All act through one loop:
the model calls tools or writes; text without a tool call goes to the environment.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from agentcore_site.lib.registry import Registry
from budgets.llm.types import Message
from experiences.rollouts.environments.answers import EntireAnswer
from experiences.rollouts.environments.base import StepOutcome, TextWorld
from experiences.rollouts.runtimes.action import described
from experiences.rollouts.runtimes.base import EnvironmentFailure
from experiences.rollouts.runtimes.llm.calls import Conversation
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS, Instructions

MAX_CHECKS: Final = 2  # times that an agent which verifies goes back to work
_RIGHT = re.compile(r"verdict[*_]*\s*:[\s*_]*right", re.IGNORECASE)


@dataclass
class PhilosophyPlay:
    """One rollout as a philosophy sees it. ``before``: what was said before the task, between system and user."""

    talk: Conversation
    episode: TextWorld
    system: str
    instructions: Instructions = INSTRUCTIONS
    before: tuple[Message, ...] = ()
    task: str = ""  # the user's last message, where the query is a conversation; else the world's opening
    asked: Message | None = None  # the same as it is sent
    said: Message = field(default_factory=lambda: Message("assistant"))  # the loop's last answer, whole

    def prompt(self, *parts: str) -> Message:
        """The system message: the agent's own prompt and context, then what this part of the work adds."""
        data = self.instructions.data if self.talk.toolset.specs else ""
        return Message("system", "\n\n".join(part for part in (self.system, *parts, data) if part))

    def asking(self, task: str, *parts: str) -> list[Message]:
        """The messages that begin a conversation about a task."""
        return [self.prompt(*parts), *self.before, Message("user", task)]

    @property
    def form(self) -> str:
        """Required format of an answer; empty in an interactive environment, whose first message describes the
        format."""
        return self.instructions.answer if self.episode.one_answer else ""

    async def opening(self) -> str:
        if self.task:
            return self.task
        try:
            return await self.episode.opening()
        except Exception as error:
            raise EnvironmentFailure(described(error)) from error

    async def say(self, text: str, seen: str, *, role: str = "") -> StepOutcome:
        """Says a text to the world and records it as a step."""
        began, started = time.time(), time.perf_counter()
        try:
            outcome = await self.episode.say(text)
        except Exception as error:
            raise EnvironmentFailure(described(error)) from error
        # What the world took of a message may be less than the message.
        written = "" if (outcome.action.get("parameters") or {}).get("text") == text else text
        self.talk.step(outcome.action, outcome.result, seen=seen, role=role, text=written, began=began, started=started)
        return outcome

    async def act(self, messages: list[Message], *, role: str = "", until: Callable[[str], bool] | None = None) -> str:
        """The loop of tools and words. Returns what was written last: when the episode is over or, with ``until``,
        when it holds of a text, which then is not said to the world."""
        seen = messages[-1].content
        while True:
            answer = await self.talk.ask(messages, role=role, tools=True)
            if answer.tool_calls:
                added = await self.talk.use_tools(answer, seen, role=role)
                messages += added
                seen = added[-1].content
                continue
            self.said = answer.message
            if until is not None and until(answer.text):
                self.talk.step(note(role, answer.text), result_of(answer.text), seen=seen)
                return answer.text
            outcome = await self.say(answer.text, seen, role=role)
            if outcome.done:
                return answer.text
            seen = str(outcome.result.get("output") or outcome.result.get("error") or "")
            messages += [answer.message, Message("user", seen)]

    async def think(self, role: str, instructions: str, task: str) -> str:
        """One answer without tools, recorded as a step of its own kind."""
        answer = await self.talk.ask(self.asking(task, instructions), role=role)
        text = answer.text or "(it called a tool that it was not offered)"
        self.talk.step(note(role, text), result_of(text), seen=task)
        return text


Philosophy = Callable[[PhilosophyPlay], Awaitable[bool]]
PHILOSOPHIES: Registry[Philosophy] = Registry("philosophy", entry_point_group="agentcore.philosophies")


@PHILOSOPHIES.register("react")
async def react(play: PhilosophyPlay) -> bool:
    """Reason and act in turn (arXiv 2210.03629)."""
    await play.act(play.asking(await play.opening(), play.instructions.react, play.form))
    return True


@PHILOSOPHIES.register("chat")
async def chat(play: PhilosophyPlay) -> bool:
    """Answers as in production: the agent's own prompt, its context and the query, and nothing else. The whole answer
    is graded. No tools."""
    system = [Message("system", play.system)] if play.system else []
    asked = play.asked or Message("user", await play.opening())
    return await _without_tools(play, [*system, *play.before, asked], EntireAnswer)


@PHILOSOPHIES.register("cot")
async def chain_of_thought(play: PhilosophyPlay) -> bool:
    """Thinks aloud and answers, without tools (arXiv 2201.11903). In a world that answers back, it goes on."""
    return await _without_tools(play, play.asking(await play.opening(), play.instructions.cot, play.form), str)


async def _without_tools(play: PhilosophyPlay, messages: list[Message], graded: Callable[[str], str]) -> bool:
    """Answers until the world is done. ``graded``: how the world takes a text."""
    seen = messages[-1].content
    while True:
        answer = await play.talk.ask(messages)
        outcome = await play.say(graded(answer.text), seen)
        if outcome.done:
            return True
        seen = str(outcome.result.get("output") or outcome.result.get("error") or "")
        messages += [answer.message, Message("user", seen)]


@PHILOSOPHIES.register("autonomous")
async def autonomous(play: PhilosophyPlay) -> bool:
    """Plans, acts, and checks its answer before it gives it; a check that fails sends it back to work. In a world
    that answers back there is no single answer to check: it plans and acts."""
    task = await play.opening()
    plan = await play.think("planner", play.instructions.plan, task)
    messages = play.asking(f"{task}\n\nPlan:\n{plan}", play.instructions.react, play.form)
    if not play.episode.one_answer:
        await play.act(messages)
        return True
    answer = await _checked(play, task, messages, role="")
    await play.say(answer, messages[-1].content)
    return True


@PHILOSOPHIES.register("multi_agent")
async def multi_agent(play: PhilosophyPlay) -> bool:
    """Planner → executor → verifier → generator: four prompts over one model, each seeing what it needs."""
    task = await play.opening()
    plan = await play.think("planner", play.instructions.plan, task)
    work = play.asking(f"{task}\n\nPlan:\n{plan}", play.instructions.execute, play.instructions.react)
    if not play.episode.one_answer:
        await play.act(work, role="executor")
        return True
    notes = await _checked(play, task, work, role="executor")
    final = play.asking(f"{task}\n\nNotes:\n{notes}", play.instructions.generate, play.instructions.answer)
    await play.act(final, role="generator")
    return True


async def _checked(play: PhilosophyPlay, task: str, messages: list[Message], *, role: str) -> str:
    """The result after a verifier has checked it; the verifier may send the work back a bounded number of times."""
    for check in range(MAX_CHECKS):
        proposed = await play.act(messages, role=role, until=lambda _: True)
        if check + 1 == MAX_CHECKS:
            break
        verdict = await play.think("verifier", play.instructions.verify, f"{task}\n\nProposed answer:\n{proposed}")
        if _RIGHT.search(verdict):
            break
        messages += [play.said, Message("user", play.instructions.again.format(why=verdict))]
    return proposed


def note(role: str, text: str) -> dict[str, object]:
    """The action of a step that thinks and touches nothing."""
    kind = {"planner": "plan", "verifier": "verify"}.get(role, "think")
    return {"type": kind, "tool": "", "parameters": {}, "role": role or "agent", "text": text}


def result_of(text: str) -> dict[str, object]:
    return {"success": True, "output": text, "error": ""}
